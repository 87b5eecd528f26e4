"""What a rollout that has failed shows: what each host has now, and the ways on."""

import asyncio
import json
from datetime import UTC, datetime

import pytest
from aiohttp import web

from tests.support.cli.fake_agent import rejection
from tests.support.cli.fleet_of_three import Fleet

pytestmark = pytest.mark.slow
CHANGED = {"touched": True, "changed": True, "image": "shop:2", "revision": 4}
PUT_BACK = {"touched": True, "changed": False, "image": "shop:1", "revision": 3}
NOT_TOUCHED = {"touched": False, "changed": False, "image": "shop:1", "revision": 3}


async def test_a_wrong_check_is_replaced_by_a_resume(fleet: Fleet) -> None:
    failed = await fleet.run(
        "rebuild", "shop", "--all", "--check-http", "/healthz", "--check-time", "0s"
    )

    assert (failed.returncode, fleet.changes) == (1, [1, 0, 0])
    assert failed.stderr.splitlines()[-6:] == [
        "not touched: web-1, web-2",
        "why: rollcall app logs web-0/shop",
        "to go on: rollcall rebuild shop --resume",
        "with another check: rollcall rebuild shop --resume --check-http PATH",
        "to undo it: rollcall rollback shop web-0 --give-up",
        "to leave it so: rollcall rollouts --forget shop",
    ]
    as_it_was = await fleet.run("rebuild", "shop", "--resume")
    assert (as_it_was.returncode, fleet.changes) == (1, [2, 0, 0])

    done = await fleet.run("rebuild", "shop", "--resume", "--check-http", "/", "--batch", "3")

    assert (done.returncode, fleet.changes) == (0, [3, 1, 1]), done.stderr


async def test_a_resume_can_do_without_a_path(fleet: Fleet) -> None:
    await fleet.run("rebuild", "shop", "--all", "--check-http", "/healthz", "--check-time", "0s")

    done = await fleet.run("rebuild", "shop", "--resume", "--check-http", "")

    assert (done.returncode, fleet.changes) == (0, [2, 1, 1]), done.stderr


async def test_the_bounds_that_a_resume_is_given_are_kept(fleet: Fleet) -> None:
    fleet.apps[0].rejection = fleet.apps[1].rejection = "no such image"
    await fleet.run("rebuild", "shop", "--all")
    assert fleet.changes == [1, 0, 0]

    await fleet.run("rebuild", "shop", "--resume", "--batch", "2")
    assert fleet.changes == [2, 1, 0]
    fleet.apps[0].rejection = fleet.apps[1].rejection = None
    fleet.apps[2].rejection = "no such image"
    last = await fleet.run("rebuild", "shop", "--resume")

    assert (last.returncode, fleet.changes) == (1, [3, 2, 1])
    assert "\nto undo it: rollcall rollback shop web-0 web-1 --give-up\n" in last.stderr


async def test_hosts_cannot_be_given_to_a_resume(fleet: Fleet) -> None:
    fleet.apps[0].rejection = "no such image"
    await fleet.run("rebuild", "shop", "--all")

    rejected = await fleet.run("rebuild", "shop", "web-1", "--resume")

    assert (rejected.returncode, fleet.changes) == (2, [1, 0, 0])
    assert "leave out hosts, --label, --prefix, --kv and --fresh" in rejected.stderr


async def test_each_row_says_what_the_host_has_now(fleet: Fleet) -> None:
    fleet.apps[1].rejection = "no such image"

    failed = await fleet.run("update", "shop", "--all", "--set", "image=shop:2", "-o", "json")

    rows = json.loads(failed.stdout)
    assert [each.pop("revision_before") for each in rows] == [3, 3, 3]
    assert rows == [
        {"host": "web-0", "state": "done", **CHANGED, "message": None},
        {"host": "web-1", "state": "failed", **PUT_BACK, "message": "no such image"},
        {"host": "web-2", "state": "waiting", **NOT_TOUCHED, "message": None},
    ]


async def test_the_table_says_what_each_host_has_now(fleet: Fleet) -> None:
    fleet.apps[1].rejection = "no such image"

    failed = await fleet.run("update", "shop", "--all", "--set", "image=shop:2")

    assert [" ".join(line.split()) for line in failed.stdout.splitlines()] == [
        "HOST STATE NOW MESSAGE",
        "web-0 done new: shop:2, revision 4 -",
        "web-1 failed as before: shop:1, revision 3 no such image",
        "web-2 waiting not touched -",
    ]
    assert "not touched: web-2\n" in failed.stderr


async def test_an_app_that_is_down_after_its_change_was_restored_is_reported(fleet: Fleet) -> None:
    fleet.apps[0].rejection = "the old container could not be started again"
    fleet.apps[0].record["state"] = "exited"

    failed = await fleet.run("rebuild", "shop", "web-0")

    assert "as before: shop:1, revision 3, exited" in failed.stdout


async def test_an_app_that_goes_down_while_it_is_checked_is_reported(fleet: Fleet) -> None:
    async def end(_request: web.Request) -> web.Response:
        answer = {**fleet.apps[0].record, "image": "shop:2", "revision": 4}
        fleet.apps[0].record = {**answer, "state": "exited"}
        return web.json_response(answer)

    fleet.agents[0].answers["PUT", "/v1/apps/shop/rebuild"] = end

    failed = await fleet.run("rebuild", "shop", "web-0", "--check-time", "0s")

    assert "new: shop:2, revision 4, exited" in failed.stdout


async def test_what_cannot_be_seen_is_not_known(fleet: Fleet) -> None:
    async def vanish(_request: web.Request) -> web.Response:
        fleet.agents[0].answers["GET", "/v1/apps/shop"] = reject
        return await reject(_request)

    reject = rejection(503, "the engine is away")
    fleet.agents[0].answers["PUT", "/v1/apps/shop/rebuild"] = vanish

    table = await fleet.run("rebuild", "shop", "web-0")
    again = await fleet.run("rebuild", "shop", "--resume", "-o", "json")

    assert "not known" in table.stdout
    (row,) = json.loads(again.stdout)
    assert (row["touched"], row["changed"], row["image"]) == (True, None, None)


@pytest.mark.parametrize(("action", "opposite"), [("start", "stop"), ("stop", "start")])
async def test_a_start_is_undone_by_a_stop_of_the_hosts_that_did_not_run(
    fleet: Fleet, action: str, opposite: str
) -> None:
    was = "running" if action == "stop" else "exited"
    for number, app in enumerate(fleet.apps):
        other = "exited" if was == "running" else "running"
        state = other if number == 0 else was
        app.record |= {"state": state, "desired": "running" if state == "running" else "stopped"}
    del fleet.agents[2].answers["PUT", f"/v1/apps/shop/{action}"]

    failed = await fleet.run(action, "shop", "--all")

    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-3:-1] == [
        f"to go on: rollcall {action} shop --resume",
        f"to undo it: rollcall {opposite} shop web-1 --give-up",
    ]
    undone = await fleet.run(opposite, "shop", "web-1", "--give-up")
    assert undone.returncode == 0, undone.stderr


async def test_what_was_restored_is_explained_by_its_events(fleet: Fleet) -> None:
    fleet.apps[0].rejection = "it ended with exit code 4; it wrote:\nno configuration"
    again = event(datetime.now(UTC).isoformat(), "update", outcome="failed", message="exit code 4")
    fleet.agents[0].answers["GET", "/v1/apps/shop/events"] = [again]

    failed = await fleet.run("--context", "test", "update", "shop", "--all", "--set", "cpu=5")

    assert "web-0: failed: it ended with exit code 4; it wrote:\n  | no config" in failed.stderr
    assert "why: rollcall --context test app events web-0/shop\n" in failed.stderr
    assert "app logs" not in failed.stderr
    # The agent's own answer has the reason already.
    assert "by its events" not in failed.stderr


async def test_an_app_whose_container_is_gone_is_explained_by_its_events(fleet: Fleet) -> None:
    async def remove(_request: web.Request) -> web.Response:
        fleet.apps[0].record["state"] = "missing"
        return web.json_response(fleet.apps[0].record)

    fleet.agents[0].answers["PUT", "/v1/apps/shop/restart"] = remove

    failed = await fleet.run("restart", "shop", "web-0", "--check-time", "0s")

    assert "after 0 s: it is missing" in failed.stdout
    assert "why: rollcall app events web-0/shop\n" in failed.stderr


async def test_a_port_where_nobody_listens_is_reported_in_plain_words(fleet: Fleet) -> None:
    fleet.apps[0].record["http_port"] = 1

    failed = await fleet.run(
        "rebuild", "shop", "web-0", "--check-http", "/", "--check-time", "0s", "-o", "json"
    )

    (row,) = json.loads(failed.stdout)
    assert row["message"] == "after 0 s: http://127.0.0.1:1/ does not answer: Connection refused"


async def test_an_answer_that_is_no_http_is_reported(fleet: Fleet) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        fleet.apps[0].record["http_port"] = server.sockets[0].getsockname()[1]
        failed = await fleet.run(
            "rebuild", "shop", "web-0", "--check-http", "/", "--check-time", "0s", "-o", "json"
        )

    (row,) = json.loads(failed.stdout)
    assert row["message"].endswith("/ does not answer: Server disconnected")


@pytest.mark.parametrize(
    ("outcome", "reported"),
    [
        ({"outcome": "failed", "message": "no space left"}, "is failed: no space left"),
        ({"outcome": "done", "message": None}, "is done"),
    ],
)
async def test_an_answer_that_was_lost_is_looked_up_in_the_events(
    fleet: Fleet, outcome: dict[str, str | None], reported: str
) -> None:
    old = event("2026-01-01T00:00:00.000Z", "rebuild", outcome="failed", message="long ago")
    new = event(datetime.now(UTC).isoformat(), "rebuild", **outcome)
    label = event(datetime.now(UTC).isoformat(), "label", outcome="done", message="another")
    fleet.apps[0].rejection, fleet.apps[0].rejected_with = "the engine is away", 503
    fleet.agents[0].answers["GET", "/v1/apps/shop/events"] = [old, new, label]

    failed = await fleet.run("rebuild", "shop", "web-0")

    message = f"web-0: failed: the engine is away; by its events, the rebuild {reported}\n"
    assert message in failed.stderr


async def test_events_before_the_change_do_not_explain_it(fleet: Fleet) -> None:
    old = event("2026-01-01T00:00:00.000Z", "rebuild", outcome="failed", message="long ago")
    fleet.apps[0].rejection, fleet.apps[0].rejected_with = "the engine is away", 503
    fleet.agents[0].answers["GET", "/v1/apps/shop/events"] = [old]

    failed = await fleet.run("rebuild", "shop", "web-0")

    assert "web-0: failed: the engine is away\n" in failed.stderr


async def test_a_new_rollout_shows_which_it_replaces_and_what_its_hosts_keep(fleet: Fleet) -> None:
    fleet.apps[1].rejection = "no such image"
    await fleet.run("update", "shop", "--all", "--set", "image=shop:2")

    rejected = await fleet.run("restart", "shop", "web-2")
    unasked = await fleet.run("restart", "shop", "web-2", "--yes")
    both = await fleet.run("update", "shop", "--resume", "--give-up")
    none_has_it = await fleet.run("rebuild", "other", "--all", "--give-up")
    begun = await fleet.run("restart", "shop", "web-2", "--give-up")

    summary = "unfinished rollout (update shop, image; 1 of 3 hosts are done)"
    assert rejected.returncode == 2
    assert f"no terminal to ask at: Give up the {summary} for this one?" in rejected.stderr
    ways = "(add --give-up, or go on: rollcall update shop --resume)\n"
    assert rejected.stderr.endswith(ways)
    assert (unasked.returncode, both.returncode) == (2, 2)
    assert unasked.stderr.endswith(ways)
    assert "--yes does not answer this" in unasked.stderr
    assert fleet.changes == [1, 1, 1]
    assert "gives up" not in none_has_it.stderr
    assert begun.stderr.splitlines()[0] == (
        f"gives up the {summary}; left as they are: web-0 (new: shop:2, revision 4),"
        " web-1 (as before: shop:1, revision 3)"
    )


async def test_a_rollout_of_the_same_hosts_leaves_none_as_it_is(fleet: Fleet) -> None:
    fleet.apps[0].rejection = "no such image"
    await fleet.run("rebuild", "shop", "web-0", "web-1")

    begun = await fleet.run("restart", "shop", "--all", "--give-up")

    assert begun.stderr.startswith(
        "gives up the unfinished rollout (rebuild shop; 0 of 2 hosts are done);"
        " this one changes all of its hosts\n"
    )


async def test_an_unfinished_rollout_is_not_given_up_where_nothing_else_begins(
    fleet: Fleet,
) -> None:
    fleet.apps[0].rejection = "no such image"
    await fleet.run("rebuild", "shop", "--all")
    fleet.agents[1].answers["GET", "/v1/apps/shop"] = None

    rejected = await fleet.run("restart", "shop", "web-1", "--give-up")
    fleet.agents[0].answers.clear()
    resumed = await fleet.run("rebuild", "shop", "--resume")

    assert (rejected.returncode, "gives up" in rejected.stderr) == (1, False)
    assert "web-0: failed" in resumed.stderr


def event(time: str, action: str, **fields: str | None) -> dict[str, str | None]:
    """Return an event of an app."""
    return {"id": "1-1", "time": time, "action": action, **fields}
