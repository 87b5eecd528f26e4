"""`roll-call`, and `why` of a host that is expected: who is missing."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.support.cli.command import Rollcall
from tests.support.registry.in_process import NO_LIMITS, InProcessRegistry, in_process_registry

pytestmark = pytest.mark.slow


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[InProcessRegistry]:
    """Yield a registry that expects web-1, web-2 and a laptop that is away."""
    file = tmp_path / "expected"
    file.write_text("web-1\nweb-2\nlaptop away\n")
    limits = msgspec.structs.replace(NO_LIMITS, expected=str(file))
    async with in_process_registry(limits=limits) as running:
        await running.post("web-1")
        await running.post("new-2")
        yield running


async def test_it_lists_who_is_missing_and_fails_for_those(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    early = await rollcall("roll-call")
    assert (early.status, early.out) == (3, "")
    assert "no list of expected hosts was read" in early.err

    await registry.components.expected_file.read()
    missed = await rollcall("roll-call")
    named = await rollcall("roll-call", "-o", "name")
    whole = await rollcall("roll-call", "-o", "json")

    assert [line.split() for line in missed.out.splitlines()[1:]] == [
        ["web-2", "absent", "never", "-"],
        ["laptop", "away", "-", "-"],
        ["new-2", "unexpected", "-", "-"],
    ]
    assert missed.status == named.status == whole.status == 1
    assert "rollcall why web-2" in missed.err
    assert named.out.split() == ["web-2", "laptop", "new-2"]
    assert msgspec.json.decode(whole.out)["absent"][0]["hostname"] == "web-2"

    await registry.post("web-2")
    all_there = await rollcall("roll-call")
    assert (all_there.status, "web-" in all_there.out) == (0, False)
    registry.clock.pass_seconds(100)
    assert (await rollcall("roll-call")).status == 1


async def test_without_a_list_it_says_what_to_set(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    registry.components.expected_file.path = None

    found = await rollcall("roll-call")

    assert found.status == 2
    assert "name a file of hostnames as `nodes.expected`" in found.err


async def test_why_shows_that_a_host_is_absent(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    assert (await rollcall("why", "web-2")).status == 1  # nothing is known of it
    await registry.components.expected_file.read()

    absent = await rollcall("why", "WEB-2.")
    away = await rollcall("why", "laptop")
    registry.clock.pass_seconds(2 * 86_400)
    silent = await rollcall("why", "web-1")

    assert (absent.status, away.status, silent.status) == (3, 3, 1)
    assert "absent: expected, and never seen, or deleted" in absent.out
    assert "rollcall roll-call" in absent.err
    assert "away: expected" in away.out
    assert "absent in the roll call" in silent.out


async def test_doctor_shows_of_absent_hosts_and_of_a_bad_list(
    rollcall: Rollcall, registry: InProcessRegistry, tmp_path: Path
) -> None:
    await registry.components.expected_file.read()
    await registry.components.call_roll()
    (tmp_path / "expected").write_text("")
    await registry.components.expected_file.read()

    found = await rollcall("doctor", "-o", "json")

    assert found.status == 1
    bad, absent = [each for each in msgspec.json.decode(found.out) if each["check"] == "expected"]
    assert "the list of expected hosts cannot be used" in bad["text"]
    assert absent["text"] == "of 3 hosts expected, 1 absent: web-2"
    assert (bad["level"], absent["level"]) == ("error", "error")
    assert absent["next"] == ["rollcall roll-call"]
