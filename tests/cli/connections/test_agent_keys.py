"""Where each host has a key of its own, its agent gets no other one."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.cli.collector import collector
from tests.support.cli.command import Rollcall
from tests.support.registry.client import server_context
from tests.support.registry.in_process import OPS, InProcessRegistry

pytestmark = pytest.mark.slow


async def test_each_agent_gets_the_key_of_its_own_host_alone(
    trusting: Rollcall, registry: InProcessRegistry, authority: Authority, tmp_path: Path
) -> None:
    keys = {"victim.test": "key-of-the-victim", "other.test": "key-of-the-other"}
    for host, key in keys.items():
        (tmp_path / host).mkdir()
        (tmp_path / host / "ops").touch(mode=0o600)
        (tmp_path / host / "ops").write_text(key)
    assert (
        await trusting("context", "set", "--agent-key-file", str(tmp_path / "{hostname}/ops"))
    ).status == 0
    async with AsyncExitStack() as stack:
        agents = {}
        for host in (*keys, "new.test"):
            tls = server_context(authority.issue(host))
            agents[host] = await stack.enter_async_context(collector(tls))
            await registry.post(host, kv={"agent.url": agents[host].url})

        ran = await trusting("apps")

    assert f"the key in {tmp_path}/new.test/ops cannot be read" in ran.out + ran.err
    for host, key in keys.items():
        others = [OPS, *(each for each in keys.values() if each != key)]
        assert key.encode() in agents[host].received
        assert not any(each.encode() in agents[host].received for each in others)
    assert agents["new.test"].received == b""
