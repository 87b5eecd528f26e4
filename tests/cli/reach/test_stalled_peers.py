"""A daemon that accepts connections and answers nothing, as one that was stopped by SIGSTOP."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import FakeAgent, StartAgent
from tests.support.cli.process import CommandLine, Run
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow
TIMEOUT = 0.3
# Within this time the registry answers also on a machine under load.
PATIENT = 2.0


@pytest.fixture
def stalled() -> Iterator[str]:
    """Yield the URL of a daemon whose kernel alone makes connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    "given",
    [
        "app logs web-1/shop",
        "app logs web-1/shop --follow",
        "app backup web-1/shop shop.tar",
        "app backup web-1/shop -",
        "app restore web-1/shop old.tar",
        "app show web-1/shop",
        "app history web-1/shop",
        "app stop web-1/shop",
        "app update web-1/shop --image shop:2",
        "app create web-1/shop --image shop:2",
    ],
)
async def test_a_command_of_an_app_ends_where_the_agent_is_stopped(
    run: Run,
    registry: InProcessRegistry,
    stalled: str,
    tmp_path: Path,
    given: str,
) -> None:
    (tmp_path / "old.tar").write_bytes(b"x" * 1024)
    await registry.post("web-1", kv={"agent.url": stalled})
    words = [str(tmp_path / word) if word.endswith(".tar") else word for word in given.split()]
    left = files(tmp_path)

    ran = await run("--timeout", TIMEOUT, *words)

    assert (ran.returncode, ran.stdout) == (3, "")
    assert "answer" in ran.stderr
    assert files(tmp_path) == left


@pytest.mark.parametrize(
    "given",
    ["nodes", "node web-1", "targets web", "services", "watch", "apps", "doctor", "rebuild shop"],
)
async def test_a_command_of_hosts_ends_where_the_registry_is_stopped(
    rollcall: Rollcall, key_file: Path, stalled: str, given: str
) -> None:
    rollcall.use(registry=stalled, key_file=str(key_file), allow_plain=["127.0.0.1"])

    if given == "watch":  # it connects again and again, and says so
        process = await asyncio.create_subprocess_exec(
            *(CommandLine(rollcall.contexts.parent).program, "--timeout", str(TIMEOUT), given),
            env=CommandLine(rollcall.contexts.parent).environment,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        reported = (await process.stderr.readline()).decode()
        process.kill()
        await process.wait()
    else:
        ran = await rollcall("--timeout", str(TIMEOUT), *given.split())
        assert ran.status == 3
        reported = ran.err

    assert f"no answer within {TIMEOUT:g} s" in reported


async def test_a_log_that_is_silent_after_its_beginning_goes_on(
    rollcall: Rollcall, registry: InProcessRegistry, fake_agent: StartAgent
) -> None:
    async def send(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(2.5 * PATIENT)
        await response.write(b"late\n")
        return response

    agent = await fake_agent()
    agent.answers["GET", "/v1/apps/shop/logs"] = send
    await registry.post("web-1", kv={"agent.url": agent.url})

    ran = await rollcall("--timeout", str(PATIENT), "app", "logs", "web-1/shop", "--follow")

    assert (ran.status, ran.out) == (0, "late\n"), ran.err


async def test_a_backup_that_begins_late_is_waited_for_while_the_agent_answers(
    rollcall: Rollcall, registry: InProcessRegistry, tmp_path: Path, fake_agent: StartAgent
) -> None:
    agent = await fake_agent()
    agent.answers["GET", "/healthz"] = {"status": "ok"}
    agent.answers["GET", "/v1/apps/shop/data"] = _late
    await registry.post("web-1", kv={"agent.url": agent.url})
    tar = tmp_path / "shop.tar"

    ran = await rollcall("--timeout", str(PATIENT), "app", "backup", "web-1/shop", str(tar))

    assert ran.status == 0, ran.err
    assert tar.read_bytes() == b"data"
    assert _looks(agent) > 1


async def _late(_request: web.Request) -> web.Response:
    await asyncio.sleep(2.5 * PATIENT)
    return web.Response(body=b"data")


def _looks(agent: FakeAgent) -> int:
    return sum(each.path == "/healthz" for each in agent.asked)
