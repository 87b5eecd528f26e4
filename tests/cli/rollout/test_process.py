"""A rollout over three agents that are played: Ctrl-C, what is left, and the resume."""

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from cli.reach.contexts import ContextFile, state_folder
from cli.rollout.rollout import Bounds, HostProgress, Rollout, RolloutChange, StateFile
from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, FakeAgent, StartAgent, rejection
from tests.support.cli.process import WITH_SIGINT, CommandLine, Run
from tests.support.cli.terminal import at_terminal
from tests.support.machine.terminal import terminal
from tests.support.registry.fake_servers import HttpServer
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow
RECORD: dict[str, Any] = {
    **APP_RECORD,
    "health": None,
    "http_port": 1,
}
REBUILD = ("PUT", "/v1/apps/shop/rebuild")
SECONDS = 60


@pytest.fixture
async def agents(registry: InProcessRegistry, fake_agent: StartAgent) -> list[FakeAgent]:
    """Return the agents of web-0 to web-2, which all have the app."""
    running = [await fake_agent() for _ in range(3)]
    for number, agent in enumerate(running):
        agent.answers["GET", "/v1/apps/shop"] = RECORD
        agent.answers[REBUILD] = RECORD
        await registry.post(f"web-{number}", kv={"agent.url": agent.url})
    return running


def waiting(begun: asyncio.Event, go_on: asyncio.Event) -> Callable[[web.Request], Awaitable[Any]]:
    """Return an answer to a rebuild that comes once it may."""

    async def answer(_request: web.Request) -> web.Response:
        begun.set()
        await go_on.wait()
        return web.json_response(RECORD)

    return answer


async def test_ctrl_c_ends_it_after_the_batch_and_a_resume_does_the_rest(
    rollcall: Rollcall, run: Run, agents: list[FakeAgent]
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    agents[0].answers[REBUILD] = waiting(begun, go_on)
    command = CommandLine(rollcall.contexts.parent)
    process = await asyncio.create_subprocess_exec(
        *(*WITH_SIGINT, command.program, "rebuild", "shop", "--all", "--batch", "2", "-o", "name"),
        env=command.environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS):
        await begun.wait()
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert b"ending after the present batch" in await process.stderr.readline()
        go_on.set()
        _, reported = await process.communicate()

    assert process.returncode == 130
    assert b"\nto go on: rollcall rebuild shop --resume\n" in reported
    assert reported.endswith(b"to leave it so: rollcall rollouts --forget shop\n")
    assert [len(agent.changes()) for agent in agents] == [1, 1, 0]

    rejected = await run("rebuild", "shop", "web-1", "--resume")
    assert rejected.returncode == 2
    done = await run("rebuild", "shop", "--resume", "-o", "json")

    assert done.returncode == 0, done.stderr
    assert [len(agent.changes()) for agent in agents] == [1, 1, 1]


async def test_a_host_that_fails_ends_it_and_a_stopped_app_does_not(
    run: Run, agents: list[FakeAgent]
) -> None:
    stopped = RECORD | {"state": "exited", "desired": "stopped", "health": {"path": "/"}}
    agents[0].answers["GET", "/v1/apps/shop"] = stopped
    del agents[1].answers[REBUILD]

    done = await run("rebuild", "shop", "--all", "--check-http", "/", "-o", "json")

    assert done.returncode == 1
    assert [len(agent.changes()) for agent in agents] == [1, 1, 0]
    states = [line.split('"')[0] for line in done.stdout.split('"state": "')[1:]]
    assert states == ["done", "failed", "waiting"]


async def test_an_agent_and_an_app_that_answer_late_are_well(
    run: Run, agents: list[FakeAgent], http_server: HttpServer
) -> None:
    answers = {"agent": [503, 200], "app": [502, 404, 204]}

    async def app(_request: web.Request) -> web.Response:
        return web.Response(status=answers["app"].pop(0))

    async def record(_request: web.Request) -> web.Response:
        is_changed = bool(agents[0].changes())
        status = answers["agent"].pop(0) if is_changed and answers["agent"] else 200
        return web.json_response(RECORD | {"http_port": port}, status=status)

    port = urlsplit(await http_server(app)).port
    agents[0].answers["GET", "/v1/apps/shop"] = record
    done = await run("rebuild", "shop", "web-0", "--check-http", "/health")

    assert (done.returncode, answers) == (0, {"agent": [], "app": []}), done.stderr


async def test_a_rollback_that_is_resumed_goes_to_the_revision_it_began_with(
    run: Run, agents: list[FakeAgent]
) -> None:
    rollback = ("PUT", "/v1/apps/shop/rollback")

    async def lost(_request: web.Request) -> web.Response:
        # It is rolled back, by a revision of its own, and the answer does not arrive.
        agents[1].answers["GET", "/v1/apps/shop/history"] = revisions(4, 3, 2)
        agents[1].answers[rollback] = RECORD
        raise web.HTTPBadGateway

    for agent in agents:
        agent.answers["GET", "/v1/apps/shop/history"] = revisions(3, 2)
        agent.answers[rollback] = RECORD
    agents[2].answers["GET", "/v1/apps/shop/history"] = revisions(9, 7, 6)
    agents[1].answers[rollback] = lost

    failed = await run("rollback", "shop", "--all")
    done = await run("rollback", "shop", "--resume")

    assert (failed.returncode, done.returncode) == (1, 0), done.stderr
    bodies = [[json.loads(each.body)["revision"] for each in agent.changes()] for agent in agents]
    assert bodies == [[2], [2, 2], [7]]


async def test_nothing_is_rolled_back_where_a_host_has_no_revision_before(
    run: Run, agents: list[FakeAgent]
) -> None:
    for agent in agents:
        agent.answers["GET", "/v1/apps/shop/history"] = revisions(3, 2)
    agents[2].answers["GET", "/v1/apps/shop/history"] = revisions(1)

    done = await run("rollback", "shop", "--all")

    assert done.returncode == 1
    assert "no revision of shop before the present one on web-2" in done.stderr
    assert [agent.changes() for agent in agents] == [[], [], []]


async def test_all_hosts_are_changed_only_for_whoever_says_so(
    run: Run, agents: list[FakeAgent]
) -> None:

    rejected = await run("stop", "shop", "--yes")

    assert rejected.returncode == 2
    assert "name hosts, select them by --label, or add --all" in rejected.stderr
    assert [agent.changes() for agent in agents] == [[], [], []]


async def test_a_batch_ends_where_its_progress_cannot_be_kept(
    rollcall: Rollcall, run: Run, agents: list[FakeAgent]
) -> None:

    async def disk_gone(_request: web.Request) -> web.Response:
        (folder,) = rollcall.contexts.parent.rglob("rollouts")
        folder.rename(folder.with_name("gone"))
        return web.json_response(RECORD)

    agents[0].answers[REBUILD] = disk_gone
    done = await run("rebuild", "shop", "--all", "--batch", "2")

    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:]] == [
        ["web-0", "done"],
        ["web-1", "done"],
        ["web-2", "waiting"],
    ]
    assert [len(agent.changes()) for agent in agents] == [1, 1, 0]


@pytest.mark.parametrize("without", ["app", "agent"])
async def test_a_named_host_without_the_app_is_reported_before_anything_changes(
    run: Run, registry: InProcessRegistry, agents: list[FakeAgent], without: str
) -> None:
    if without == "app":
        del agents[1].answers["GET", "/v1/apps/shop"]
    else:
        await registry.post("web-1")

    named = await run("rebuild", "shop", "web-0", "web-1")
    assert named.returncode == 1
    assert "nothing was changed: no app 'shop' on web-1" in named.stderr
    assert [agent.changes() for agent in agents] == [[], [], []]

    everywhere = await run("rebuild", "shop", "--all", "-o", "name")
    assert (everywhere.returncode, everywhere.stdout.split()) == (0, ["web-0", "web-2"])


async def test_what_the_first_host_rejects_as_invalid_is_not_kept_for_a_resume(
    run: Run, agents: list[FakeAgent]
) -> None:
    agents[0].answers["PUT", "/v1/apps/shop"] = rejection(400, "cpu: -1 is less than 1")
    agents[1].answers["PUT", "/v1/apps/shop"] = RECORD
    update = ("update", "shop", "--all", "--set", "cpu=-1")

    rejected = await run(*update)
    resumed = await run("update", "shop", "--resume")
    kept = await run(*update, "--batch", "2")

    assert (rejected.returncode, resumed.returncode, kept.returncode) == (1, 2, 1)
    assert "nothing was changed; give the command again" in rejected.stderr
    assert "--resume" not in rejected.stderr
    assert "no rollout of this app to resume" in resumed.stderr
    # A second host of the batch was changed.
    assert "to try the same again: rollcall update shop --resume\n" in kept.stderr


async def test_an_app_that_is_stopped_again_was_not_started(
    rollcall: Rollcall, run: Run, agents: list[FakeAgent]
) -> None:
    agents[0].answers["GET", "/v1/apps/shop"] = RECORD | {"state": "exited", "desired": "stopped"}
    agents[0].answers["PUT", "/v1/apps/shop/start"] = RECORD
    command = CommandLine(rollcall.contexts.parent)
    chosen = ContextFile(rollcall.contexts).chosen("test")
    file = StateFile(state_folder("rollouts", command.environment, *chosen), "shop")

    with file.locked():
        one = [HostProgress(host="web-0")]
        change, bounds = RolloutChange(action="start", app="shop"), Bounds(check_seconds=0)
        file.save(Rollout(change=change, bounds=bounds, hosts=one))
    done = await run("start", "shop", "--resume")

    assert done.returncode == 1
    assert "it is exited" in done.stdout


@pytest.mark.parametrize(("answer", "status", "changes"), [("n", 1, 0), ("y", 0, 1)])
async def test_a_question_is_asked_on_a_terminal(
    rollcall: Rollcall, agents: list[FakeAgent], answer: str, status: int, changes: int
) -> None:
    shown_status, shown = await asyncio.to_thread(
        at_terminal, rollcall, "rebuild", "shop", typed={"[y/N]: ": answer}
    )

    assert shown_status == status
    assert "rebuild shop on all hosts that have it, 3 of them?" in shown
    assert ("nothing was changed" in shown) == (answer == "n")
    assert [len(agent.changes()) for agent in agents] == [changes] * 3


async def test_a_terminal_shows_how_far_it_is_and_then_what_came_of_it(
    rollcall: Rollcall, agents: list[FakeAgent]
) -> None:
    loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    agents[1].answers[REBUILD] = waiting(begun, go_on)
    command = CommandLine(rollcall.contexts.parent)
    environment = {**command.environment, "TERM": "xterm", "NO_COLOR": "1"}

    def look() -> str:
        arguments = (command.program, "rebuild", "shop", "--all")
        folder = rollcall.contexts.parent
        with terminal([*map(str, arguments)], folder=folder, environment=environment) as screen:
            screen.wait_for("1 waiting, 1 changing, 1 done", within=SECONDS)
            screen.wait_for("web-1  changing", within=SECONDS)
            loop.call_soon_threadsafe(go_on.set)
            return screen.wait_for("web-2  done", within=SECONDS)

    shown = await asyncio.to_thread(look)

    assert [f"web-{number}  done" in shown for number in range(3)] == [True] * 3


def revisions(*numbers: int) -> list[dict[str, Any]]:
    """Return a history, the newest revision first."""
    return [{"revision": number} for number in numbers]
