"""A host whose agent stops to answer while it is changed, and one whose change is only slow."""

import asyncio
import signal

import pytest
from aiohttp import web

from cli.changes.change import TIMEOUTS, SilenceWatch
from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, FakeAgent, StartAgent
from tests.support.cli.process import WITH_SIGINT, CommandLine, Run
from tests.support.registry.in_process import InProcessRegistry

TIMEOUT = 0.05
SECONDS = 60
APP = ("GET", "/v1/apps/shop")
HEALTH = ("GET", "/healthz")
REBUILD = ("PUT", "/v1/apps/shop/rebuild")


class PlayedAgent:
    """An agent that is changed, and answers looks as long as it is not frozen."""

    def __init__(self) -> None:
        self.looks = 0
        self.is_frozen = False
        self.enough = asyncio.Event()
        self.reported: list[float] = []
        self.watch = SilenceWatch(self.look, timeout_seconds=TIMEOUT, reported=self.reported.append)

    async def look(self) -> bool:
        self.looks += 1
        if self.looks >= 2 * TIMEOUTS:
            self.enough.set()
        if self.is_frozen:
            await asyncio.Event().wait()
        return True

    async def change(self) -> str:
        await self.enough.wait()
        return "changed"


async def test_a_change_that_is_slow_is_waited_for_while_the_agent_answers() -> None:
    agent = PlayedAgent()

    # A look begins after a pause as long as the timeout, so that this takes twice the limit.
    assert await agent.watch.result(agent.change()) == "changed"

    assert agent.reported == []


@pytest.fixture
async def frozen(registry: InProcessRegistry, fake_agent: StartAgent) -> FakeAgent:
    """Return the agent of web-1, which answers nothing once it has got a change; of web-2, too."""
    agent = await fake_agent()

    async def freeze(_request: web.Request) -> web.Response:
        agent.answers[APP] = agent.answers[HEALTH] = freeze
        await asyncio.Event().wait()
        return web.json_response(APP_RECORD)

    agent.answers[APP] = APP_RECORD
    agent.answers[HEALTH] = {"status": "ok"}
    agent.answers[REBUILD] = freeze
    for host in ("web-1", "web-2"):
        await registry.post(host, kv={"agent.url": agent.url})
    return agent


@pytest.mark.slow
async def test_a_rollout_fails_at_a_host_that_is_frozen_and_does_not_know_what_it_has(
    run: Run, frozen: FakeAgent
) -> None:

    ran = await run("--timeout", "0.5", "rebuild", "shop", "--all")

    assert ran.returncode == 1
    assert "web-1: its agent does not answer; it is left after 3 s without an answer" in ran.stderr
    assert "failed: its agent has not answered for 3 s; what it does goes on\n" in ran.stderr
    assert ran.stdout.splitlines()[1].split()[:4] == ["web-1", "failed", "not", "known"]
    assert len(frozen.changes()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--no-wait",)])
async def test_a_change_of_one_app_ends_if_its_agent_is_frozen(
    run: Run, frozen: FakeAgent, options: tuple[str, ...]
) -> None:

    ran = await run("--timeout", "0.5", "app", "rebuild", "web-1/shop", *options)

    assert ran.returncode == 3
    assert ran.stderr.endswith(
        "rollcall: its agent has not answered for 3 s; what it does goes on\n"
        "  next: rollcall app show web-1/shop\n"
    )
    assert len(frozen.changes()) == 1


@pytest.mark.slow
async def test_ctrl_c_says_which_host_does_not_answer_and_the_second_leaves_at_once(
    rollcall: Rollcall, frozen: FakeAgent
) -> None:
    command = CommandLine(rollcall.contexts.parent)
    process = await asyncio.create_subprocess_exec(
        *(*WITH_SIGINT, command.program, "--timeout", "2", "rebuild", "shop", "--all"),
        env=command.environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None

    async with asyncio.timeout(SECONDS):
        assert b"web-1: changing" in await process.stderr.readline()
        assert b"web-1: its agent does not answer" in await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        said = await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        await process.communicate()

    assert b"ending after the present batch" in said
    assert b"; web-1 does not answer; Ctrl-C again ends at once" in said
    assert process.returncode == 130
    assert len(frozen.changes()) == 1


@pytest.mark.slow
async def test_ctrl_c_before_the_first_host_says_that_nothing_was_changed(
    rollcall: Rollcall, frozen: FakeAgent
) -> None:
    asked = asyncio.Event()

    async def freeze(_request: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    frozen.answers[APP] = freeze
    command = CommandLine(rollcall.contexts.parent)
    process = await asyncio.create_subprocess_exec(
        *(*WITH_SIGINT, command.program, "--timeout", "60", "rebuild", "shop", "--all"),
        env=command.environment,
        stderr=asyncio.subprocess.PIPE,
    )

    async with asyncio.timeout(SECONDS):
        await asked.wait()
        process.send_signal(signal.SIGINT)
        _, reported = await process.communicate()

    assert process.returncode == 130
    assert reported.startswith(b"nothing was changed\n")
