"""Each command that is named as a next step is one of the context that was given."""

import asyncio
import re
import shlex
from pathlib import Path

import pytest
import yaml

from cli.output.text import of_context, program, steps_of, typed
from config.registry import NodesSettings
from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, StartAgent
from tests.support.cli.terminal import at_terminal
from tests.support.registry.in_process import InProcessRegistry, in_process_registry
from tests.support.registry.stores.memory_store import MemoryStore

TO_TRY = re.compile(r"(?<![\w/-])rollcall ([a-z][^;,`\n]+)")
NAMED = re.compile(r"(?<![\w/])rollcall ([a-z-]+ \S+)")


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("rollcall nodes", "rollcall --context lab nodes"),
        ("or `rollcall app stop a/b`", "or `rollcall --context lab app stop a/b`"),
        (
            "rollcall rollouts; rollcall x",
            "rollcall --context lab rollouts; rollcall --context lab x",
        ),
        ("rollcall --context test nodes", "rollcall --context test nodes"),
        ("rollcall context set --ca FILE", "rollcall --context lab context set --ca FILE"),
        ("rollcall context list", "rollcall context list"),
        ("rollcall login URL --name NAME", "rollcall login URL --name NAME"),
        ("rollcall --help", "rollcall --help"),
        ("chmod 600 /etc/rollcall keys", "chmod 600 /etc/rollcall keys"),
        ("systemctl status rollcall-agent", "systemctl status rollcall-agent"),
    ],
)
def test_commands_get_the_context_once(text: str, reported: str) -> None:
    assert of_context(text, "lab") == reported
    assert of_context(text, None) == text


def test_a_context_is_written_as_a_shell_takes_it() -> None:
    assert program("a b") == "rollcall --context 'a b'"
    assert of_context("rollcall nodes", r"\1") == r"rollcall --context '\1' nodes"


@pytest.mark.parametrize(
    "given",
    [
        "nodes --label service:wbe",
        "nodes --label nothing:alike",
        "nodes --stale",
        "node web-9",
        "node old-1",
        "forget web-9 --yes",
        "targets nothing",
        "targets node",
        "apps web-9",
        "app show shop",
        "app show web-9/shop",
        "app show web-1/shop",
        "app update web-1/shop",
        "context set",
        "doctor",
        "rebuild shop web-2",
        "rebuild web-9 --resume",
        "rebuild web-1/shop",
        "restart a:b",
        "rollouts --forget shop",
        "logs",
        "app list",
    ],
)
@pytest.mark.slow
async def test_each_command_that_is_printed_names_the_context(
    rollcall: Rollcall,
    registry: InProcessRegistry,
    capsys: pytest.CaptureFixture[str],
    given: str,
) -> None:
    await registry.post("old-1")
    registry.clock.pass_seconds(301)
    await registry.post("web-1", ["service:web"], {"agent.url": "http://10.0.0.1:1"})
    await registry.post("web-2", ["prometheus:node:port:none"])

    ran = await rollcall("--context", "test", *given.split())

    printed = ran.out + ran.err + capsys.readouterr().err.partition("Error:")[2]
    named = [found[1] for found in NAMED.finditer(printed)]
    assert named, printed
    assert set(named) == {"--context test"}, printed


@pytest.mark.slow
async def test_a_context_that_is_not_there_is_in_no_next_step(rollcall: Rollcall) -> None:
    ran = await rollcall("--context", "nowhere", "nodes")

    assert ran.err == (
        "rollcall: there is no context 'nowhere'; known: test\n  next: rollcall context list\n"
    )


@pytest.mark.slow
async def test_context_set_changes_the_context_that_is_given(
    rollcall: Rollcall, tmp_path: Path
) -> None:
    found = yaml.safe_load(rollcall.contexts.read_text())
    found["contexts"]["lab"] = found["contexts"]["test"]
    rollcall.contexts.write_text(yaml.safe_dump(found))

    (tmp_path / "ca").touch()
    ran = await rollcall("--context", "lab", "context", "set", "--ca", str(tmp_path / "ca"))

    contexts = yaml.safe_load(rollcall.contexts.read_text())["contexts"]
    assert ran.err.startswith("lab is changed")
    assert {name: each["ca"] for name, each in contexts.items()} == {
        "test": None,
        "lab": str(tmp_path / "ca"),
    }


@pytest.mark.parametrize(
    ("arguments", "options", "reported"),
    [
        (("web-1",), "", "rollcall x web-1"),
        (("shop", "web-1"), "--give-up", "rollcall x shop web-1 --give-up"),
        (("-web-1",), "", "rollcall x -- -web-1"),
        (("a b", "web-1/x;$(id)"), "", "rollcall x 'a b' 'web-1/x;$(id)'"),
        (("shop", "-web-1", "web-2"), "--give-up", "rollcall x --give-up -- shop -web-1 web-2"),
    ],
)
def test_what_begins_like_an_option_is_after_two_dashes(
    arguments: tuple[str, ...], options: str, reported: str
) -> None:
    assert typed("rollcall x", *arguments, options=options) == reported


@pytest.mark.parametrize(
    "given",
    [
        "nodes --stale",
        "node -- -old-1",
        "doctor",
        "apps --label service:x -- -web-1",
        "app show -- -old-1/shop",
        "app show -- -web-1/shpo",
        "app update --image shop:2 -- -web-1/shop",
    ],
)
@pytest.mark.slow
async def test_a_step_that_names_a_host_with_a_dash_in_front_can_be_taken(
    rollcall: Rollcall, registry: InProcessRegistry, given: str, fake_agent: StartAgent
) -> None:
    await registry.post("-old-1", ["service:x"])
    registry.clock.pass_seconds(301)
    agent = await fake_agent()
    agent.answers["GET", "/v1/apps"] = [APP_RECORD | {"state": "exited"}]
    agent.answers["GET", "/v1/apps/shop"] = APP_RECORD
    await registry.post("-web-1", kv={"agent.url": agent.url})

    ran = await rollcall(*given.split())

    steps = [found for found in TO_TRY.findall(ran.out + ran.err) if "HOST" not in found]
    assert any(" -- " in step for step in steps), ran
    for step in steps:
        taken = await rollcall(*shlex.split(step))
        assert "option" not in taken.err.lower(), (step, taken)


@pytest.mark.slow
async def test_while_the_registry_warms_up_the_step_is_to_wait(
    rollcall: Rollcall, key_file: Path
) -> None:
    limits = NodesSettings(warm_up_seconds=90)
    async with in_process_registry(
        store=MemoryStore([], continues=False), limits=limits
    ) as warming:
        host, port = warming.address
        rollcall.use(registry=f"http://{host}:{port}", key_file=str(key_file))

        ran = await rollcall("targets", "web")

    assert "warming up" in ran.err
    assert "advice: wait a moment, and run the same command again\n" in ran.err


@pytest.mark.parametrize(
    ("hint", "lines"),
    [
        (None, []),
        ("rollcall nodes --label service:web", ["  next: rollcall nodes --label service:web"]),
        (
            "rollcall app events a/b\nchmod 600 /x",
            ["  next: rollcall app events a/b", "  next: chmod 600 /x"],
        ),
        ("use a key: rollcall context set", ["  advice: use a key: rollcall context set"]),
        ("rollcall nodes; or wait", ["  advice: rollcall nodes; or wait"]),
        ("chmod 600 '/my, own/key'", ["  next: chmod 600 '/my, own/key'"]),
    ],
)
def test_only_what_a_shell_takes_as_it_is_stands_after_next(
    hint: str | None, lines: list[str]
) -> None:
    assert steps_of(hint) == lines


@pytest.mark.slow
async def test_a_step_is_whole_on_a_narrow_terminal(
    rollcall: Rollcall, registry: InProcessRegistry, fake_agent: StartAgent
) -> None:
    name = "an-app-with-a-long-name-that-no-terminal-has-room-for-in-a-column-of-a-table"
    host = "a-host-with-a-long-name.of-a-domain-with-a-long-name.example.com"
    agent = await fake_agent()
    record = APP_RECORD | {"name": name, "state": "exited", "message": "it ended " * 40}
    agent.answers["GET", "/v1/apps"] = [record]
    agent.answers["GET", "/healthz"] = {"status": "ok"}
    await registry.post(host, kv={"agent.url": agent.url})

    doctor = await asyncio.to_thread(at_terminal, rollcall, "doctor")
    unknown = await asyncio.to_thread(at_terminal, rollcall, "app", "show", f"{host}/{name}s")

    assert f"  next: rollcall why {host}/{name}\r\n" in doctor[1]
    assert f"  next: rollcall app show {host}/{name}\r\n" in unknown[1]
