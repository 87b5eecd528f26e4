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
    assert (await rollcall("node", "WEB-3", "-o", "name")).out == "web-3\n"
    assert (await rollcall("nodes", "web-9")).out == ""
