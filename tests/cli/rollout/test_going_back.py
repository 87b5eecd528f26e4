"""What a rollback shows before it begins: the revisions, and what differs between them."""

import asyncio
from typing import Any

import pytest

from cli.rollout.hosts import in_words, step_back
from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, FakeAgent, StartAgent
from tests.support.cli.process import CommandLine, Run
from tests.support.registry.in_process import InProcessRegistry

UPDATED = [
    {"revision": 4, "image": "shop:2", "changed": ["image", "env"], "operation": "update"},
    {"revision": 3, "image": "shop:1", "changed": [], "operation": "create"},
]
ROLLED_BACK = [
    {"revision": 5, "image": "shop:1", "changed": ["image"], "operation": "rollback"},
    *UPDATED,
]
# Of an agent whose answers have no more.
BARE = [{"revision": 2}, {"revision": 1}]
STEP = "revision 4 -> 3 (image shop:2 -> shop:1, env)"
UNDOING = (
    "revision 5 -> 4 (image shop:1 -> shop:2); revision 5 is itself a rollback from revision 4"
)


@pytest.mark.parametrize(
    ("history", "reported"),
    [(UPDATED, STEP), (ROLLED_BACK, UNDOING), (BARE, "revision 2 -> 1"), (BARE[:1], "None")],
)
def test_a_step_names_the_revisions_and_what_differs(
    history: list[dict[str, Any]], reported: str
) -> None:
    assert str(step_back(history)) == reported


def test_hosts_that_take_the_same_step_share_a_line() -> None:
    first, second = step_back(UPDATED), step_back(ROLLED_BACK)
    assert first is not None
    assert second is not None

    assert in_words({"web-1": first, "web-2": second, "web-3": first}) == [
        f"web-1, web-3: {STEP}",
        f"web-2: {UNDOING}",
        "the hosts go back to different images: shop:1, shop:2",
    ]
    assert in_words({"web-1": first}) == [f"web-1: {STEP}"]


@pytest.fixture
async def agents(registry: InProcessRegistry, fake_agent: StartAgent) -> list[FakeAgent]:
    """Return the agents of web-0, which was updated, and web-1, which was rolled back since."""
    running = []
    for number, history in enumerate((UPDATED, ROLLED_BACK)):
        agent = await fake_agent()
        agent.answers["GET", "/v1/apps/shop"] = APP_RECORD
        agent.answers["GET", "/v1/apps/shop/history"] = history
        agent.answers["PUT", "/v1/apps/shop/rollback"] = APP_RECORD
        agent.answers["PUT", "/v1/apps/shop/rollback?dry_run=true"] = {
            "app": None,
            "replaces_container": True,
            "seconds_without_service": None,
            "message": None,
        }
        await registry.post(f"web-{number}", kv={"agent.url": agent.url})
        running.append(agent)
    return running


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--all", "--dry-run", "without a question"])
async def test_a_rollback_shows_each_step_before_it_begins(
    run: Run, agents: list[FakeAgent], option: str
) -> None:
    options = [option] if option.startswith("-") else []

    ran = await run("rollback", "shop", *options)

    assert ran.stderr.startswith(
        f"web-0: {STEP}\nweb-1: {UNDOING}\nthe hosts go back to different images: shop:1, shop:2\n"
    )
    is_asked = "there is no terminal to ask at: rollback shop on 2 hosts?" in ran.stderr
    assert is_asked == (not options)
    changes = [len([each for each in agent.changes() if "?" not in each.path]) for agent in agents]
    assert changes == [int(option == "--all")] * 2


@pytest.mark.slow
async def test_a_dry_run_shows_programs_the_revisions_and_never_that_nothing_was_changed(
    rollcall: Rollcall, run: Run, agents: list[FakeAgent]
) -> None:
    command = CommandLine(rollcall.contexts.parent)

    plan = await asyncio.to_thread(command.json, "rollback", "shop", "web-0", "--dry-run")
    agents[0].answers["GET", "/v1/apps/shop"] = None
    dry = await run("rollback", "shop", "web-0", "--dry-run")
    wet = await run("rollback", "shop", "web-0")

    assert (plan[0]["revision_before"], plan[0]["revision"]) == (4, 3)
    assert plan[0]["changed"] == ["image", "env"]
    reason = "no app 'shop' on web-0\n"
    assert f"rollcall: {reason}" in dry.stderr
    assert f"rollcall: nothing was changed: {reason}" in wet.stderr
