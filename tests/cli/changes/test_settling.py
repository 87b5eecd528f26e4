"""An app that does not stay up, or get healthy, after a change: what is reported, and when."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from cli.changes.settling import Clock, wait_until_settled
from cli.errors import CommandError
from cli.reach.choice import AppName
from clients.agent import AgentClient
from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, FakeAgent, StartAgent, rejection
from tests.support.cli.process import Run
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow

SHOP = "/v1/apps/shop"
RUNNING = {**APP_RECORD, "started_at": "2026-01-01T00:00:00Z", "restarts": 2}
# The container before has ended within the second in which this one was started.
BEFORE, AFTER = "2026-01-01T00:00:00.900Z", "2026-01-01T00:00:01.500Z"
REASON = "it does not stay up: it ended with exit code 4, and is started again and again"
LOG = "reading the settings\nno \x1b[2Jconfiguration\n"


@pytest.fixture
async def agent(registry: InProcessRegistry, fake_agent: StartAgent) -> FakeAgent:
    """Return the agent of web-1, which has an app that has logged why it ends."""
    running = await fake_agent()
    await registry.post("web-1", kv={"agent.url": running.url})
    running.answers["GET", f"{SHOP}/logs"] = log
    running.answers["GET", f"{SHOP}/events"] = [
        {"id": "1", "time": BEFORE, "exit_code": 1},
        {"id": "2", "time": AFTER, "exit_code": 3},
        {"id": "3", "time": AFTER, "exit_code": None},
    ]
    for action in ("start", "rebuild", "rollback"):
        running.answers["PUT", f"{SHOP}/{action}"] = RUNNING
    running.answers["PUT", SHOP] = running.answers["POST", "/v1/apps"] = RUNNING
    return running


async def log(request: web.Request) -> web.Response:
    assert request.query["follow"] == "false"
    return web.Response(text=LOG)


def records(
    *changes: dict[str, Any], is_young: bool = False
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return an answer of these records, one after the other; the last one stays."""
    left = [{**RUNNING, **change} for change in changes]

    async def answer(_: web.Request) -> web.Response:
        record = left.pop(0) if len(left) > 1 else left[0]
        if is_young:
            record["started_at"] = datetime.now(UTC).isoformat()
        return web.json_response(record)

    return answer


@pytest.mark.parametrize(
    "command",
    [
        ["create", "web-1/shop", "--image", "shop:1"],
        ["update", "web-1/shop", "--memory", "64"],
        ["start", "web-1/shop"],
        ["rebuild", "web-1/shop"],
        ["rollback", "web-1/shop"],
    ],
)
async def test_a_change_fails_if_the_app_is_started_again_and_again_after_it(
    rollcall: Rollcall, agent: FakeAgent, command: list[str]
) -> None:
    restarting = {"state": "restarting", "restarts": 3, "exit_code": 4}
    agent.answers["GET", SHOP] = records({}, restarting, is_young=True)

    ran = await rollcall("app", *command)

    assert (ran.status, ran.out) == (1, "")
    assert ran.err.splitlines() == [
        f"rollcall: {REASON}; it wrote:",
        "  | reading the settings",
        "  | no \\x1b[2Jconfiguration",
        "  next: rollcall app logs web-1/shop",
    ]


async def test_the_exit_code_of_an_app_that_runs_again_is_that_of_its_last_end(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    again = {"restarts": 3, "exit_code": 0, "oom_killed": True}
    agent.answers["GET", SHOP] = records({}, again, is_young=True)

    ran = await rollcall("app", "start", "web-1/shop")

    assert "it ended with exit code 3, for want of memory, and is started again" in ran.err


async def test_an_app_that_its_agent_restarts_has_not_ended_by_itself(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    why = "unhealthy, and restarted again and again until it is healthy: ls: /ok: No such file"
    restarted = {"restarts": 3, "health": {"command": ["ls", "/ok"]}, "message": why}
    agent.answers["GET", SHOP] = records({}, restarted, is_young=True)

    ran = await rollcall("app", "start", "web-1/shop")

    assert f"it does not stay up: it is {why}" in ran.err
    assert "ended" not in ran.err


async def test_what_ended_before_the_change_is_no_exit_code_of_the_app(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    agent.answers["GET", f"{SHOP}/events"] = [{"id": "1", "time": BEFORE, "exit_code": 1}]
    agent.answers["GET", SHOP] = records({}, {"restarts": 3}, is_young=True)

    ran = await rollcall("app", "rebuild", "web-1/shop")

    assert "it does not stay up: it ended by itself, and is started again" in ran.err


async def test_a_restart_between_the_answer_and_the_first_look_counts(
    rollcall: Rollcall, run: Run, agent: FakeAgent
) -> None:
    agent.answers["GET", SHOP] = records({"restarts": 3})

    ran = await rollcall("app", "start", "web-1/shop")
    rolled = await run("rebuild", "shop", "web-1")

    assert "it does not stay up: it ended with exit code 3" in ran.err
    assert "web-1: failed: it does not stay up: it ended with exit code 3" in rolled.stderr


async def test_hints_name_the_context_that_was_given(rollcall: Rollcall, agent: FakeAgent) -> None:
    agent.answers["GET", SHOP] = records({"restarts": 3})
    crashed = await rollcall("--context", "test", "app", "start", "web-1/shop")
    agent.answers["GET", SHOP] = None
    unseen = await rollcall("--context", "test", "app", "start", "web-1/shop")

    program = "rollcall --context test app"
    assert f"next: {program} logs web-1/shop\n" in crashed.err
    assert f"next: {program} show web-1/shop" in unseen.err


class PlayedTime:
    """A clock that goes on where it is waited for, and by `step` seconds then."""

    def __init__(self, step: float) -> None:
        self._now = 0.0
        self._step = step

    def now(self) -> float:
        return self._now

    async def sleep(self, _seconds: float) -> None:
        self._now += self._step


async def test_an_error_that_passes_late_in_a_wait_for_health_does_not_end_it(
    agent: FakeAgent,
) -> None:
    # Looks at 0 s, 25 s and 50 s; without a check, a wait of 10 s would be over.
    check: dict[str, Any] = {"health": {"path": "/"}, "healthy": None}
    looks: list[tuple[int, dict[str, Any]]] = [
        (200, check),
        (503, {}),
        (200, {**check, "healthy": True}),
    ]

    async def answer(_: web.Request) -> web.Response:
        status, record = looks.pop(0)
        return web.json_response({**RUNNING, **record}, status=status)

    agent.answers["GET", SHOP] = answer
    time = PlayedTime(25)

    async with AgentClient(url=agent.url, server_hostname="web-1", key=lambda: "key") as client:
        record = await wait_until_settled(
            client,
            AppName("web-1", "shop"),
            RUNNING,
            rollcall="rollcall",
            clock=Clock(time.now, time.sleep),
        )

    assert (record["healthy"], looks) == (True, [])


async def wait_for_shop(agent: FakeAgent) -> None:
    """Wait until the app has settled; CommandError."""
    time = PlayedTime(40)
    async with AgentClient(url=agent.url, server_hostname="web-1", key=lambda: "key") as client:
        await wait_until_settled(
            client,
            AppName("web-1", "shop"),
            RUNNING,
            rollcall="rollcall",
            clock=Clock(time.now, time.sleep),
        )


@pytest.mark.parametrize(
    "numbers",
    [
        {},
        {"interval_seconds": "5", "timeout_seconds": "s", "start_seconds": "", "retries": 1},
        {"interval_seconds": [], "timeout_seconds": {}, "start_seconds": None, "retries": 1},
    ],
)
async def test_an_app_whose_check_has_odd_numbers_is_waited_for_as_any_other(
    agent: FakeAgent, numbers: dict[str, Any]
) -> None:
    agent.answers["GET", SHOP] = records({"health": {"path": "/", **numbers}})

    with pytest.raises(CommandError, match=r"^after 80 s: it is not healthy; it wrote:"):
        await wait_for_shop(agent)


async def test_an_app_that_does_not_get_healthy_is_reported_with_what_its_agent_found(
    agent: FakeAgent,
) -> None:
    found = "unhealthy: GET / was not answered: the connection failed"
    agent.answers["GET", SHOP] = records(
        {"health": {"path": "/"}, "healthy": False, "message": found}
    )

    with pytest.raises(CommandError, match=rf"^after 80 s: it is not healthy: {found}; it"):
        await wait_for_shop(agent)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"started_at": "of another agent"},
        {"desired": "stopped", "state": "exited"},
        {"health": {"path": "/"}, "healthy": True},
    ],
)
async def test_an_app_that_is_as_it_should_be_is_looked_at_once(
    rollcall: Rollcall, agent: FakeAgent, record: dict[str, Any]
) -> None:
    agent.answers["GET", SHOP] = records(record)

    ran = await rollcall("app", "rebuild", "web-1/shop")

    assert ran.status == 0, ran.err
    assert [each.method for each in agent.asked] == ["PUT", "GET"]


async def test_an_app_is_waited_for_until_it_is_healthy(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    check = {"path": "/"}
    agent.answers["GET", SHOP] = records(
        *[{"health": check, "healthy": each} for each in (None, False, True)]
    )

    ran = await rollcall("app", "start", "web-1/shop", "-o", "json")

    assert ran.json()["healthy"] is True
    assert [each.method for each in agent.asked] == ["PUT", "GET", "GET", "GET"]


async def test_an_agent_that_does_not_answer_for_a_moment_is_asked_again(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    settled, asked = records({}), 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if asked == 1:
            return web.json_response({"message": "the engine is away"}, status=503)
        return await settled(request)

    agent.answers["GET", SHOP] = answer

    ran = await rollcall("app", "start", "web-1/shop")

    assert (ran.status, asked) == (0, 2)


async def test_a_change_that_cannot_be_looked_at_counts_as_done(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    agent.answers["GET", SHOP] = rejection(403, "this key may not read")

    ran = await rollcall("app", "start", "web-1/shop")

    assert ran.status == 1
    assert "the change is done, but its agent cannot be asked about it" in ran.err
    assert "next: rollcall app show web-1/shop" in ran.err


async def test_nobody_has_to_wait(rollcall: Rollcall, agent: FakeAgent) -> None:
    agent.answers["GET", SHOP] = records({"state": "restarting"})

    ran = await rollcall("app", "start", "web-1/shop", "--no-wait")

    assert (ran.status, ran.out.split(", ")[0]) == (0, "web-1/shop: running")
    assert [each.method for each in agent.asked] == ["PUT"]


async def test_a_rollout_fails_where_the_app_does_not_stay_up(run: Run, agent: FakeAgent) -> None:
    looks: tuple[dict[str, Any], ...] = (
        {},
        {},
        {"state": "restarting", "restarts": 3, "exit_code": 4},
    )
    agent.answers["GET", SHOP] = records(*looks, is_young=True)

    ran = await run("start", "shop", "web-1")

    assert ran.returncode == 1
    assert ran.stdout.splitlines()[1].split() == [
        *("web-1", "failed", "shop:1,", "restarting"),
        *REASON.split(),
    ]
    assert ran.stderr.splitlines()[-6:] == [
        f"web-1: failed: {REASON}; it wrote:",
        "  | reading the settings",
        "  | no \\x1b[2Jconfiguration",
        "why: rollcall app logs web-1/shop",
        "to try the same again: rollcall start shop --resume",
        "to leave it so: rollcall rollouts --forget shop",
    ]


async def test_a_file_is_not_brought_about_if_its_app_does_not_stay_up(
    rollcall: Rollcall, agent: FakeAgent, tmp_path: Path
) -> None:
    looks: tuple[dict[str, Any], ...] = (
        {},
        {},
        {"state": "restarting", "restarts": 3, "exit_code": 4},
    )
    agent.answers["GET", SHOP] = records(*looks, is_young=True)
    agent.answers["PUT", f"{SHOP}?dry_run=true"] = {
        "app": RUNNING,
        "replaces_container": True,
        "seconds_without_service": 1,
        "message": None,
    }
    file = tmp_path / "apps.yml"
    file.write_text("apps: [{name: shop, where: {hosts: [web-1]}, image: 'shop:2'}]")

    ran = await rollcall("apply", "-f", str(file), "--yes")

    assert ran.status == 1
    assert "web-1/shop: it does not stay up: it ended with exit code 4" in ran.err
    assert "  | reading the settings\n" in ran.err
    assert ran.err.endswith("0 of 1 steps are done; apply again to go on\n")
