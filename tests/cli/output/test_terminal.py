"""Colours are for terminals."""

import asyncio
import re
import subprocess
import sys

import pytest

from tests.support.cli.command import Rollcall
from tests.support.cli.terminal import TOP, at_terminal
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
    assert not COLOUR.search(plain)
    assert (plain.count("x"), plain.count("\N{HORIZONTAL ELLIPSIS}")) == (191, 1)
    _, wide = await asyncio.to_thread(at_terminal, rollcall, "nodes", "-o", "wide")
    assert wide.count("x") == 300

    del rollcall.environment["NO_COLOR"]
    piped = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "cli.main", "nodes"],
        env={**rollcall.environment, "PYTHONPATH": str(TOP), "TERM": "xterm"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\x1b" not in piped.stdout
    row = piped.stdout.splitlines()[1].split()
    assert (row[:2], row[-1]) == (["web-1", "fresh"], label)
