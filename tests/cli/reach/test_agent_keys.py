"""Which key an agent gets: that of its host and no other one."""

import asyncio
import base64
import hmac
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml

from tests.support.certificates import Authority
from tests.support.cli.collector import collector
from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import StartAgent, rejection
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


async def test_a_derived_key_is_good_for_one_host_and_is_what_the_command_prints(
    trusting: Rollcall,
    registry: InProcessRegistry,
    authority: Authority,
    secret_file: Path,
) -> None:
    secret = await asyncio.to_thread(secret_file.read_bytes)
    async with AsyncExitStack() as stack:
        agents = {}
        for host in ("victim.test", "other.test"):
            tls = server_context(authority.issue(host))
            agents[host] = await stack.enter_async_context(collector(tls))
            await registry.post(host, kv={"agent.url": agents[host].url})
        assert (await trusting("apps")).status == 0

    keys = {}
    for host in agents:
        mac = hmac.digest(secret.strip(), f"rollcall agent {host}".encode(), "sha256")
        keys[host] = f"ak1.{host}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
        assert (await trusting("agent-key", host.upper())).out == f"{keys[host]}\n"
    for host, agent in agents.items():
        assert f" {keys[host]}\r\n".encode() in agent.received
        others = (OPS, *(key for each, key in keys.items() if each != host))
        assert not any(key.encode() in agent.received for key in others)


async def test_a_context_without_keys_of_agents_contacts_none_and_says_what_to_set(
    rollcall: Rollcall, registry: InProcessRegistry, key_file: Path
) -> None:
    rollcall.use(
        registry=f"http://127.0.0.1:{registry.address[1]}",
        key_file=str(key_file),
        allow_plain=["127.0.0.0/8"],
    )
    step = "rollcall --context test context set --agent-secret-file FILE, or --agent-key-file FILE"
    async with collector() as agent:
        await registry.post("web-1", kv={"agent.url": agent.url})
        for command in (
            ("apps",),
            ("app", "show", "web-1/shop"),
            ("app", "stop", "web-1/shop"),
            ("rebuild", "shop", "web-1"),
        ):
            ran = await rollcall("--context", "test", *command)
            assert (ran.status, ran.out) == (2, ""), command
            assert "the context has no key for agents" in ran.err
            assert f"advice: {step}" in ran.err
        doctor = await rollcall("--context", "test", "doctor", "-o", "json")

    (warning,) = [each for each in doctor.json() if each["check"] == "agents"]
    assert warning["level"] == "warning"
    assert step in warning["text"]
    assert agent.connections == 0


async def test_the_key_of_the_registry_goes_to_no_agent_beyond_loopback(
    rollcall: Rollcall, registry: InProcessRegistry, key_file: Path
) -> None:
    context = {"key_file": str(key_file), "agent_key": "same", "allow_plain": ["0.0.0.0"]}
    async with collector() as agent:
        for registry_host, agent_host in (("127.0.0.1", "0.0.0.0"), ("0.0.0.0", "127.0.0.2")):
            rollcall.use(registry=f"http://{registry_host}:{registry.address[1]}", **context)
            url = f"http://{agent_host}:{agent.port}"
            await registry.post("web-1", kv={"agent.url": url})

            ran = await rollcall("app", "show", "web-1/shop")

            assert ran.status in (2, 3)
            assert "at a loopback address such as 127.0.0.1" in ran.err
            assert "rollcall context set --agent-secret-file FILE" in ran.err
    assert agent.connections == 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--agent-key-file", "ops"), "--agent-key-file has no {hostname} in its path"),
        (
            ("--agent-secret-file", "s", "--agent-key-file", "{hostname}"),
            "--agent-key-file and --agent-secret-file do not go together",
        ),
        (
            ("--agent-secret-file", "s", "--agent-key", "same"),
            "--agent-key and --agent-secret-file do not go together",
        ),
        (("--agent-secret-file", "gone"), "gone cannot be read"),
        (("--agent-secret-file", "weak"), "fewer than 8 different ones"),
        (("--agent-secret-file", "open"), "others than its owner may read"),
    ],
)
async def test_options_for_keys_of_agents_that_cannot_be_used_change_no_context(
    trusting: Rollcall, tmp_path: Path, options: tuple[str, ...], why: str
) -> None:
    for name, mode, text in (("weak", 0o600, "abcdefg" * 9), ("open", 0o644, "0123456789abcdef")):
        (tmp_path / name).touch(mode=mode)
        (tmp_path / name).chmod(mode)
        (tmp_path / name).write_text(text)
    before = trusting.contexts.read_text()
    url = yaml.safe_load(before)["contexts"]["test"]["registry"]
    given = [str(tmp_path / each) if each in ("gone", "weak", "open") else each for each in options]

    for command in (("context", "set"), ("login", url, "--allow-plain", "0.0.0.0")):
        ran = await trusting(*command, *given)

        assert (ran.status, ran.out) == (2, "")
        assert why in ran.err
        assert trusting.contexts.read_text() == before


async def test_a_distant_registry_shares_its_key_with_no_agent(trusting: Rollcall) -> None:
    before = trusting.contexts.read_text()

    ran = await trusting("context", "set", "--agent-key", "same")

    assert ran.status == 2
    assert "only beside a registry at a loopback address" in ran.err
    assert trusting.contexts.read_text() == before


async def test_a_context_file_with_two_keys_for_agents_is_a_mistake(trusting: Rollcall) -> None:
    trusting.use(
        registry="https://registry:7655", agent_secret_file="/s", agent_key_file="/{hostname}"
    )

    ran = await trusting("nodes")

    assert ran.status == 2
    assert "agent_key_file and agent_secret_file do not go together" in ran.err


async def test_an_agent_without_the_derived_key_is_named_with_the_command_that_prints_it(
    trusting: Rollcall, registry: InProcessRegistry, fake_agent: StartAgent, secret_file: Path
) -> None:
    agent = await fake_agent()
    agent.answers["GET", "/v1/apps/shop"] = rejection(401, "a valid key is needed")
    await registry.post("web-1", kv={"agent.url": agent.url})

    ran = await trusting("app", "show", "web-1/shop")

    assert ran.status == 3
    assert f"does not know the key that is derived from the secret in {secret_file}" in ran.err
    assert ran.err.endswith("of the agent: rollcall agent-key web-1\n")


async def test_without_a_secret_no_key_is_derived(rollcall: Rollcall) -> None:
    ran = await rollcall("agent-key", "web-1")

    assert (ran.status, ran.out) == (2, "")
    assert ran.err.endswith("next: rollcall agent-key web-1 --agent-secret-file FILE\n")
