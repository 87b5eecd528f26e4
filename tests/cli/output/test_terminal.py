"""Colours and bars are for terminals."""

import asyncio
import re

import pytest
from aiohttp import web

from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, StartAgent
from tests.support.cli.process import CommandLine
from tests.support.cli.terminal import at_terminal
from tests.support.forks import run_program
from tests.support.machine.terminal import terminal
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")


async def test_a_terminal_gets_colours_unless_it_wants_none_and_programs_get_whole_lines(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    label = "service:" + "x" * 300
    await registry.post("web-1", [label])

    status, coloured = await asyncio.to_thread(at_terminal, rollcall, "nodes")
    assert status == 0
    assert COLOUR.search(coloured)

    rollcall.environment["NO_COLOR"] = "1"
    status, plain = await asyncio.to_thread(at_terminal, rollcall, "nodes")
    assert status == 0
    assert "fresh" in plain
    assert "\x1b" not in plain
    assert (plain.count("x"), plain.count("\N{HORIZONTAL ELLIPSIS}")) == (191, 1)
    _, wide = await asyncio.to_thread(at_terminal, rollcall, "nodes", "-o", "wide")
    assert wide.count("x") == 300

    del rollcall.environment["NO_COLOR"]
    piped = await asyncio.to_thread(
        run_program,
        ["rollcall", "nodes"],
        timeout=60,
        environment={**rollcall.environment, "TERM": "xterm"},
    )
    assert piped.returncode == 0
    assert "\x1b" not in piped.stdout
    assert [line for line in piped.stdout.splitlines() if line != line.rstrip()] == []
    row = piped.stdout.splitlines()[1].split()
    assert (row[:2], row[-1]) == (["web-1", "fresh"], label)


async def test_a_backup_shows_how_much_has_come(
    rollcall: Rollcall, registry: InProcessRegistry, fake_agent: StartAgent
) -> None:
    loop, go_on = asyncio.get_running_loop(), asyncio.Event()
    folder = rollcall.contexts.parent
    command = CommandLine(folder)

    async def data(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x" * 2_000_000)
        await go_on.wait()
        await response.write(b"x" * 97_152)
        return response

    def look() -> None:
        arguments = (command.program, "app", "backup", "web-1/shop", "shop.tar")
        environment = {**command.environment, "TERM": "xterm"}
        with terminal([*map(str, arguments)], folder=folder, environment=environment) as screen:
            screen.wait_for("2.0/? MB", within=60)
            loop.call_soon_threadsafe(go_on.set)
            screen.wait_for("web-1/shop: 2.0 MiB in shop.tar", within=60)

    agent = await fake_agent()
    agent.answers["GET", "/v1/apps/shop/data"] = data
    await registry.post("web-1", kv={"agent.url": agent.url})
    await asyncio.to_thread(look)

    assert (folder / "shop.tar").stat().st_size == 2**21
    assert "MB" not in (await rollcall("app", "backup", "web-1/shop", str(folder / "2.tar"))).err


async def test_a_table_on_a_terminal_ends_with_how_many_there_are(
    rollcall: Rollcall, registry: InProcessRegistry, fake_agent: StartAgent
) -> None:
    async def last(*arguments: str) -> str:
        _, shown = await asyncio.to_thread(at_terminal, rollcall, *arguments)
        return shown.splitlines()[-1]

    agent = await fake_agent()
    agent.answers["GET", "/v1/apps"] = [APP_RECORD, APP_RECORD | {"name": "blog"}]
    await registry.post("web-1", kv={"agent.url": agent.url})
    assert await last("nodes") == "1 node"
    assert await last("apps") == "2 apps on 1 host"

    await registry.post("web-2", kv={"agent.url": "http://127.0.0.1:1"})
    assert await last("apps") == "2 apps on 1 host; 1 host with an error"
    for form in ("json", "yaml", "name"):
        assert "2 apps" not in (await last("apps", "-o", form))
    assert "2 apps" not in (await rollcall("apps")).out

    registry.clock.pass_seconds(91)
    await registry.post("web-1", kv={"agent.url": agent.url})
    assert await last("nodes") == "2 nodes, 1 stale"
    assert await last("nodes", "web-1") == "1 node"
    assert "2 nodes" not in (await rollcall("nodes")).out


async def test_a_narrow_terminal_has_whole_names_and_no_empty_columns(
    rollcall: Rollcall, registry: InProcessRegistry, fake_agent: StartAgent
) -> None:
    message = "its container has ended with exit code 7, and is started again and again"
    record = APP_RECORD | {"name": "worker", "image": "registry.example.com/worker:1.4"}
    rollcall.environment |= {"COLUMNS": "60", "NO_COLOR": "1"}

    async def shown(*arguments: str) -> list[str]:
        _, text = await asyncio.to_thread(at_terminal, rollcall, *arguments)
        return text.splitlines()

    agent = await fake_agent()
    await registry.post("web-2", kv={"agent.url": agent.url})
    agent.answers["GET", "/v1/apps"] = [record]
    head, row, *_ = await shown("apps")
    assert (head.split(), row.split()[:2]) == (
        ["APP", "STATE", "IMAGE", "PORTS"],
        ["web-2/worker", "running"],
    )
    assert "HEALTH" in (await rollcall("apps")).out
    agent.answers["GET", "/v1/apps"] = [record | {"message": message}]
    lines = await shown("apps")
    assert lines[1].startswith("web-2/worker  running")
    assert max(map(len, lines)) <= 60
    reported = " ".join(line[lines[0].index("MESSAGE") :] for line in lines[1:-2])
    assert " ".join(reported.split()) == message

    rollcall.environment["COLUMNS"] = "38"
    lines = [line.rstrip() for line in await shown("apps")]
    assert lines[:3] == [
        "APP      web-2/worker",
        "STATE    running",
        "IMAGE    registry.example.com/worker:1",
    ]
    assert "PORTS    http 20080, ssh 20022" in lines

    rollcall.environment["COLUMNS"] = "200"
    assert "HEALTH" not in (await shown("apps"))[0]
    assert "HEALTH" in (await shown("apps", "-o", "wide"))[0]
