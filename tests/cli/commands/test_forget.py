"""`forget`: a host that is gone is taken out of the registry, after a question."""

import asyncio

import pytest

from tests.support.cli.command import Rollcall
from tests.support.cli.terminal import at_terminal
from tests.support.registry.in_process import READER, InProcessRegistry

pytestmark = pytest.mark.slow


@pytest.fixture
async def silent(registry: InProcessRegistry) -> None:
    """Let a host be silent for five minutes; another one reports."""
    await registry.post("db-1", ["prometheus:node:port:9100"])
    registry.clock.pass_seconds(301)
    await registry.post("web-1")


async def known(registry: InProcessRegistry) -> list[str]:
    return [node["hostname"] for node in await registry.get("/nodes")]


@pytest.mark.usefixtures("silent")
async def test_a_host_that_is_gone_is_forgotten_with_its_targets(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    ran = await rollcall("forget", "DB-1", "--yes")

    assert (ran.status, ran.out) == (0, "")
    assert ran.err == "db-1 is forgotten; an agent that runs registers it again\n"
    assert await known(registry) == ["web-1"]
    assert await registry.get("/prometheus/node?format=http_sd") == []


@pytest.mark.usefixtures("silent")
async def test_a_host_that_reports_has_to_come_back(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    ran = await rollcall("forget", "web-1", "-y")

    assert ran.err.endswith("; on web-1: rollcall-agent deregister keeps it out\n")
    assert await known(registry) == ["db-1"]


@pytest.mark.usefixtures("silent")
async def test_several_hosts_are_forgotten_after_one_question(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    again = "an agent that runs registers it again"
    question = f"Forget db-1 (silent for 5m), web-1 (last seen 0s ago: {again}), and their targets?"

    asked = await rollcall("forget", "db-1", "web-1", "DB-1")
    assert (asked.status, question in asked.err) == (2, True), asked.err
    assert await known(registry) == ["db-1", "web-1"]

    ran = await rollcall("forget", "db-1", "web-1", "--yes")
    assert ran.status == 0
    assert [line.split()[0] for line in ran.err.splitlines()] == ["db-1", "web-1"]
    assert await known(registry) == []


@pytest.mark.usefixtures("silent")
async def test_none_is_forgotten_if_one_of_them_is_not_known(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    ran = await rollcall("forget", "db-1", "db-9", "--yes")

    assert (ran.status, "no node 'db-9' is known" in ran.err) == (1, True)
    assert await known(registry) == ["db-1", "web-1"]


@pytest.mark.usefixtures("silent")
async def test_it_asks_first(rollcall: Rollcall, registry: InProcessRegistry) -> None:
    question = "Forget db-1 (silent for 5m), and its targets?"

    ran = await rollcall("forget", "db-1")

    assert (ran.status, ran.out) == (2, "")
    assert f"no terminal to ask at: {question} (add --yes)\n" in ran.err
    for answer, status, left in (("n", 1, ["db-1", "web-1"]), ("y", 0, ["web-1"])):
        ended, shown = await asyncio.to_thread(
            at_terminal, rollcall, "forget", "db-1", typed={f"{question} [y/N]: ": answer}
        )
        assert ended == status, shown
        assert await known(registry) == left


@pytest.mark.usefixtures("silent")
async def test_a_key_that_may_only_read_forgets_nothing(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    rollcall.environment["ROLLCALL_KEY"] = READER

    ran = await rollcall("forget", "db-1", "--yes")

    assert ran.status == 3
    assert "advice: use a key that may do this: rollcall context set --key-file FILE" in ran.err
    assert await known(registry) == ["db-1", "web-1"]


async def test_a_host_that_nobody_knows_is_reported(rollcall: Rollcall) -> None:
    ran = await rollcall("forget", "web-9", "--yes")

    assert ran.status == 1
    assert "no node 'web-9' is known\n  next: rollcall nodes" in ran.err
