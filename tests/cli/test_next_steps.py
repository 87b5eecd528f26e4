"""Each command that is named as a next step is one of the context that was given."""

import re
from pathlib import Path

import pytest
import yaml

from cli.output.program import of_context, program
from tests.support.cli.command import Rollcall
from tests.support.registry.in_process import InProcessRegistry

NAMED = re.compile(r"(?<![\w/])rollcall ([a-z-]+ \S+)")


@pytest.mark.parametrize(
    ("text", "told"),
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
def test_commands_get_the_context_once(text: str, told: str) -> None:
    assert of_context(text, "lab") == told
    assert of_context(text, None) == text


def test_a_context_is_written_as_a_shell_takes_it() -> None:
    assert program("a b") == "rollcall --context 'a b'"
    assert of_context("rollcall nodes", r"\1") == r"rollcall --context '\1' nodes"


@pytest.mark.parametrize(
    "typed",
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
    typed: str,
) -> None:
    await registry.post("old-1")
    registry.clock.pass_seconds(301)
    await registry.post("web-1", ["service:web"], {"agent.url": "http://10.0.0.1:1"})
    await registry.post("web-2", ["prometheus:node:port:none"])

    ran = await rollcall("--context", "test", *typed.split())

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

    ran = await rollcall("--context", "lab", "context", "set", "--ca", str(tmp_path / "ca"))

    contexts = yaml.safe_load(rollcall.contexts.read_text())["contexts"]
    assert ran.err.startswith("lab is changed")
    assert {name: each["ca"] for name, each in contexts.items()} == {
        "test": None,
        "lab": str(tmp_path / "ca"),
    }
