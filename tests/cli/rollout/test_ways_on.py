"""The ways on from a rollout that is not done, as the command names them."""

import json

import pytest
from aiohttp import web

from tests.support.cli.fake_agent import APP_RECORD, rejection
from tests.support.cli.fleet_of_three import Fleet
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow
CHANGED = {"touched": True, "changed": True, "image": "shop:2", "revision": 4}
NOT_TOUCHED = {"touched": False, "changed": False, "image": "shop:1", "revision": 3}


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_rejected_resume_keeps_what_an_earlier_run_has_changed(
    fleet: Fleet, *, is_seen: bool
) -> None:
    update = ("update", "shop", "web-0", "--set", "image=shop:2")
    await fleet.run(*update, "--check-http", "/none", "--check-time", "0s")
    fleet.apps[0].rejection, fleet.apps[0].rejected_with = "image: it is not allowed any more", 400
    if not is_seen:
        fleet.agents[0].answers["GET", "/v1/apps/shop"] = None

    rejected = await fleet.run("update", "shop", "--resume")
    kept = await fleet.run("rollouts", "-o", "name")

    assert (rejected.returncode, fleet.changes) == (1, [2, 0, 0])
    assert "nothing was changed" not in rejected.stderr
    assert "to leave it so: rollcall rollouts --forget shop\n" in rejected.stderr
    assert kept.stdout == "shop\n"


async def test_hosts_whose_agents_cannot_be_asked_are_not_touched(
    fleet: Fleet, registry: InProcessRegistry
) -> None:
    await fleet.run("rebuild", "shop", "--all", "--check-http", "/none", "--check-time", "0s")
    await registry.post("web-0", kv={"agent.url": "http://127.0.0.1:1"})
    await registry.post("web-1", kv={"agent.url": "http://192.0.2.1:7656"})
    await registry.ask("DELETE", "/nodes/web-2")

    failed = await fleet.run("rebuild", "shop", "--resume", "--max-failures", "9", "-o", "json")

    rows = json.loads(failed.stdout)
    assert "Connection refused" in rows[0]["message"]
    assert "goes only to agents at a loopback address" in rows[1]["message"]
    assert rows[2]["message"] == "the registry does not know this host any more"
    seen = [{name: row[name] for name in NOT_TOUCHED} for row in rows]
    assert seen == [CHANGED, NOT_TOUCHED, NOT_TOUCHED]
    assert fleet.changes == [1, 0, 0]


async def test_a_host_with_more_than_one_revision_since_is_brought_back_by_its_number(
    fleet: Fleet,
) -> None:
    check = ("--check-http", "/none", "--check-time", "0s")
    await fleet.run("rebuild", "shop", "--all", *check)
    fleet.apps[0].next_revision = 5

    failed = await fleet.run("rebuild", "shop", "--resume", "--max-failures", "1")

    assert fleet.changes == [2, 1, 0]
    assert failed.stderr.splitlines()[-3:-1] == [
        "to undo it: rollcall rollback shop web-1 --give-up",
        "to undo it: rollcall app rollback web-0/shop --revision 3",
    ]


async def test_hosts_that_are_not_known_are_named_with_the_command_that_shows_them(
    fleet: Fleet,
) -> None:
    async def vanish(_request: web.Request) -> web.Response:
        fleet.agents[1].answers["GET", "/v1/apps/shop"] = None
        return web.Response(status=503)

    fleet.agents[1].answers["PUT", "/v1/apps/shop/rebuild"] = vanish

    failed = await fleet.run("--context", "test", "rebuild", "shop", "--all")

    assert failed.stderr.splitlines()[-4:-1] == [
        "to undo it: rollcall --context test rollback shop web-0 --give-up",
        "not known: web-1",
        "to look at them: rollcall --context test apps web-1",
    ]


async def test_an_update_that_makes_an_app_crash_is_undone_first(fleet: Fleet) -> None:
    async def crash(_request: web.Request) -> web.Response:
        answer = {**fleet.apps[0].record, "image": "shop:2", "revision": 4, "restarts": 0}
        fleet.apps[0].record = {**answer, "restarts": 1}
        return web.json_response(answer)

    fleet.agents[0].answers["PUT", "/v1/apps/shop"] = crash

    failed = await fleet.run("update", "shop", "--all", "--set", "image=shop:2")

    assert "web-0: failed: it does not stay up" in failed.stderr
    assert failed.stderr.splitlines()[-4:] == [
        "to undo it: rollcall rollback shop web-0 --give-up",
        "with other fields: give the command again with --give-up, not --resume",
        "to try the same again: rollcall update shop --resume",
        "to leave it so: rollcall rollouts --forget shop",
    ]


async def test_an_update_that_an_agent_has_rejected_wants_other_fields(fleet: Fleet) -> None:
    fleet.apps[1].rejection = "no such image"

    failed = await fleet.run("update", "shop", "--all", "--set", "image=shop:2")

    assert failed.stderr.splitlines()[-4:] == [
        "to undo it: rollcall rollback shop web-0 --give-up",
        "with other fields: give the command again with --give-up, not --resume",
        "to try the same again: rollcall update shop --resume",
        "to leave it so: rollcall rollouts --forget shop",
    ]


async def test_one_variable_is_changed_on_many_hosts(fleet: Fleet) -> None:
    done = await fleet.run("update", "shop", "web-0", "web-1", "--env", "A=1", "--unset-env", "B")

    assert done.returncode == 0, done.stderr
    body = {"env_set": {"A": "1"}, "env_unset": ["B"]}
    assert [json.loads(agent.changes()[0].body) for agent in fleet.agents[:2]] == [body, body]


async def test_an_app_that_is_not_healthy_in_time_may_get_another_check(fleet: Fleet) -> None:
    fleet.apps[0].record["healthy"] = False

    failed = await fleet.run("rebuild", "shop", "web-0", "--check-time", "0s")

    assert "with another check: rollcall rebuild shop --resume --check-time TIME\n" in failed.stderr


async def test_an_app_that_is_gone_wants_no_other_check(fleet: Fleet) -> None:
    async def delete(_request: web.Request) -> web.Response:
        fleet.agents[0].answers["GET", "/v1/apps/shop"] = None
        return web.json_response(fleet.apps[0].record)

    fleet.agents[0].answers["PUT", "/v1/apps/shop/rebuild"] = delete

    failed = await fleet.run("rebuild", "shop", "web-0")

    assert "to go on: rollcall rebuild shop --resume\n" in failed.stderr
    assert "with another check" not in failed.stderr


async def test_a_resume_with_other_fields_is_reported_how_to_begin_anew(fleet: Fleet) -> None:
    fleet.apps[0].rejection = "no such image"
    await fleet.run("update", "shop", "--all", "--set", "image=shop:2")

    rejected = await fleet.run("update", "shop", "--resume", "--image", "shop:3")

    assert rejected.returncode == 2
    assert "a resume keeps the fields that its rollout began with (update shop, image;" in (
        rejected.stderr
    )
    assert (
        "to begin anew with other fields, give the command with --give-up, not --resume"
        in rejected.stderr
    )
    assert fleet.changes == [1, 0, 0]


async def test_stale_hosts_are_left_out_where_that_is_asked_for(
    fleet: Fleet, registry: InProcessRegistry
) -> None:
    await registry.post("db-1", kv={"agent.url": "http://127.0.0.1:1"})
    registry.clock.pass_seconds(301)
    for number, agent in enumerate(fleet.agents):
        await registry.post(f"web-{number}", kv={"agent.url": agent.url})

    blocked = await fleet.run("rebuild", "shop", "--all")
    planned = await fleet.run("rebuild", "shop", "--dry-run")
    done = await fleet.run("rebuild", "shop", "--all", "--fresh")
    named = await fleet.run("rebuild", "shop", "web-0", "db-1", "--fresh", "-o", "name")
    fresh = await fleet.run("rebuild", "shop", "web-0", "--dry-run", "--fresh")
    await registry.post("db-1", kv={"agent.url": "http://127.0.0.1:1"})
    silent = await fleet.run("rebuild", "shop", "--all")

    advice = "leave them out: name the other hosts, or select them by --label\n"
    assert (blocked.returncode, planned.returncode, silent.returncode) == (3, 3, 3)
    assert blocked.stderr.startswith("rollcall: nothing was changed: hosts do not answer: db-1: ")
    assert planned.stderr.startswith("rollcall: hosts do not answer: db-1: ")
    assert f"  advice: --fresh leaves out the stale ones; {advice}" in blocked.stderr
    assert "--fresh" not in silent.stderr
    assert silent.stderr.endswith(f"  advice: {advice}  next: rollcall doctor\n")
    assert "left out, since they are stale: db-1\n" in done.stderr
    assert (named.returncode, named.stdout) == (0, "web-0\n")
    assert "stale" not in fresh.stderr
    assert (done.returncode, fleet.changes) == (0, [3, 1, 1])  # of them one dry run


async def test_an_app_that_is_mistyped_is_named(fleet: Fleet) -> None:
    for agent in fleet.agents[:2]:
        agent.answers["GET", "/v1/apps"] = [APP_RECORD]

    ran = await fleet.run("rebuild", "shp", "--all")

    assert ran.returncode != 0
    assert "none of these hosts has an app 'shp'; did you mean shop?\n" in ran.stderr
    assert fleet.changes == [0, 0, 0]


async def test_a_dry_run_of_a_stop_says_how_long_the_app_is_away(fleet: Fleet) -> None:
    path = "/v1/apps/shop/stop?dry_run=true"
    fleet.agents[0].answers["PUT", path] = {
        "app": APP_RECORD,
        "replaces_container": False,
        "seconds_without_service": None,
        "message": None,
    }

    ran = await fleet.run("stop", "shop", "web-0", "--dry-run")

    assert ran.returncode == 0, ran.stderr
    assert "until it is started" in ran.stdout


async def test_hosts_that_are_all_stale_are_reported_as_such(
    fleet: Fleet, registry: InProcessRegistry
) -> None:
    registry.clock.pass_seconds(301)

    ran = await fleet.run("rebuild", "shop", "web-0", "--all", "--fresh")

    assert ran.returncode != 0
    assert "all of these hosts are stale\n  next: rollcall nodes --stale\n" in ran.stderr
    assert fleet.changes == [0, 0, 0]


@pytest.mark.parametrize("status", [401, 403, 507])
async def test_fields_are_not_blamed_where_the_key_or_the_host_is(
    fleet: Fleet, status: int
) -> None:
    fleet.agents[0].answers["PUT", "/v1/apps/shop"] = rejection(status, "not here")

    failed = await fleet.run("update", "shop", "--all", "--set", "image=shop:2")

    assert "web-0: failed: " in failed.stderr
    assert "with other fields" not in failed.stderr


async def test_fields_are_blamed_where_a_setting_of_the_agent_forbids_them(fleet: Fleet) -> None:
    message = "the image `shop:2` is not allowed; `apps.allowed_images` of this agent allows x"
    fleet.agents[0].answers["PUT", "/v1/apps/shop"] = rejection(403, message)

    failed = await fleet.run("update", "shop", "--all", "--set", "image=shop:2")

    assert "web-0: failed: " in failed.stderr
    assert "with other fields" in failed.stderr
