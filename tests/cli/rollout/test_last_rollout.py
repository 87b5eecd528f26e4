"""A rollback by a filter takes the hosts that the last rollout changed, and leaves the others."""

import json
from typing import Any

import pytest
from aiohttp import web

from tests.support.cli.fleet_of_three import Fleet
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow
UPDATE = ("update", "shop", "--all", "--set", "image=shop:2")
ROLLBACK = ("rollback", "shop", "--label", "service:web")
PLAN = {
    "app": None,
    "replaces_container": True,
    "seconds_without_service": None,
    "message": None,
}


@pytest.fixture
async def labelled(fleet: Fleet, registry: InProcessRegistry) -> Fleet:
    """Return three hosts with a label whose agents tell the history of the app."""
    for number, agent in enumerate(fleet.agents):

        async def history(_request: web.Request, app: Any = fleet.apps[number]) -> web.Response:
            revisions = range(app.record["revision"], 0, -1)
            return web.json_response([{"revision": each} for each in revisions])

        agent.answers["GET", "/v1/apps/shop/history"] = history
        agent.answers["PUT", "/v1/apps/shop/rollback?dry_run=true"] = PLAN
        await registry.post(f"web-{number}", ["service:web"], {"agent.url": agent.url})
    return fleet


def back_to(fleet: Fleet, revision: int) -> None:
    """Let the next change of each app make this revision."""
    for app in fleet.apps:
        app.next_revision = revision


async def test_after_a_failure_the_hosts_that_were_not_changed_are_left(labelled: Fleet) -> None:
    labelled.apps[1].rejection = "no such image"
    await labelled.run(*UPDATE)
    labelled.apps[1].rejection = None
    back_to(labelled, 5)
    before = labelled.changes

    dry = await labelled.run(*ROLLBACK, "--dry-run", "-o", "json")
    done = await labelled.run(*ROLLBACK, "--give-up", "-o", "json")

    assert [each["host"] for each in json.loads(dry.stdout)] == ["web-0"]
    assert [each["host"] for each in json.loads(done.stdout)] == ["web-0"]
    assert "did not change them: web-1, web-2\n" in done.stderr
    # One of web-0's is the dry run.
    assert labelled.changes == [before[0] + 2, *before[1:]]


async def test_a_rollout_that_is_done_is_known_still(labelled: Fleet) -> None:
    await labelled.run("update", "shop", "web-2", "--set", "image=shop:2")
    back_to(labelled, 5)

    done = await labelled.run(*ROLLBACK, "-o", "name")

    assert (done.returncode, done.stdout) == (0, "web-2\n"), done.stderr
    assert labelled.changes == [0, 0, 2]


async def test_a_rollout_that_was_forgotten_or_another_change_since_makes_no_difference(
    labelled: Fleet,
) -> None:
    labelled.apps[1].rejection = "no such image"
    await labelled.run(*UPDATE)
    await labelled.run("rollouts", "--forget", "shop")
    await labelled.run("restart", "shop", "web-1", "web-2")
    back_to(labelled, 5)

    done = await labelled.run(*ROLLBACK, "-o", "name")

    assert (done.returncode, done.stdout) == (0, "web-0\n"), done.stderr


async def test_all_takes_the_rest_too(labelled: Fleet) -> None:
    await labelled.run("update", "shop", "web-2", "--set", "image=shop:2")
    back_to(labelled, 5)

    done = await labelled.run(*ROLLBACK, "--all", "-o", "name")

    assert done.stdout.split() == ["web-0", "web-1", "web-2"]


@pytest.mark.parametrize("option", ["--dry-run", "--yes"])
async def test_where_no_rollout_is_known_a_filter_is_not_enough(
    labelled: Fleet, option: str
) -> None:
    rejected = await labelled.run(*ROLLBACK, option)

    assert rejected.returncode == 1
    assert (
        "nobody knows which hosts to roll back; name the hosts, or add --all\n" in rejected.stderr
    )
    assert labelled.changes == [0, 0, 0]


async def test_a_rollout_that_changed_nothing_leaves_nothing_to_roll_back(labelled: Fleet) -> None:
    labelled.apps[0].rejection = "no such image"
    await labelled.run(*UPDATE)

    rejected = await labelled.run(*ROLLBACK, "--give-up")

    assert rejected.returncode == 1
    assert "the last rollout (update of shop) changed none of these hosts; " in rejected.stderr
    assert labelled.changes == [1, 0, 0]


async def test_no_value_of_a_field_is_kept_after_the_end(labelled: Fleet) -> None:
    await labelled.run(*UPDATE, "--set", "env={KEY: a-secret-value}")

    kept = [path for path in labelled.home.rglob("*.json") if path.is_file()]

    assert [path.parent.name for path in kept] == ["ended"]
    assert "a-secret-value" not in kept[0].read_text()
    assert kept[0].stat().st_mode & 0o077 == 0
