"""`nodes`: which nodes are listed."""

import pytest

from tests.support.cli.command import Rollcall
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow


async def test_hosts_that_are_named_are_listed_alone(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    for host in ("web-1", "web-2"):
        await registry.post(host)
    registry.clock.pass_seconds(91)
    await registry.post("web-3")

    async def names(*arguments: str) -> str:
        return (await rollcall("nodes", *arguments, "-o", "name")).out

    assert await names("WEB-3", "web-1") == "web-3\nweb-1\n"
    assert await names("web-3", "web-1", "--stale") == "web-1\n"
    assert await names("web-3", "web-1", "--fresh") == "web-3\n"
    states = [row[:2] for row in (await rollcall("nodes", "web-1", "web-3")).rows()]
    assert states == [["web-1", "stale"], ["web-3", "fresh"]]
    assert (await rollcall("nodes", "web-9")).status == 3


@pytest.mark.parametrize(
    ("typed", "told", "meant"),
    [
        ("db1", "; did you mean db-1?", "rollcall node db-1"),
        ("bd-1", "; did you mean db-1?", "rollcall node db-1"),
        ("cache", "; did you mean cache.example.com?", "rollcall node cache.example.com"),
        ("shop", "", "rollcall nodes; for the apps of all hosts: rollcall apps"),
    ],
)
async def test_a_host_that_is_mistyped_is_named(
    rollcall: Rollcall, registry: InProcessRegistry, typed: str, told: str, meant: str
) -> None:
    for host in ("db-1", "cache.example.com"):
        await registry.post(host)

    for arguments in (("node", typed), ("app", "show", f"{typed}/shop")):
        ran = await rollcall(*arguments)
        assert (ran.status, ran.out) == (3, "")
        assert ran.err == f"rollcall: no node '{typed}' is known{told}\n  next: {meant}\n"
