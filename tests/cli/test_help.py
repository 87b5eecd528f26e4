"""The help of every command, what is made from it, and what is not imported for it."""

import asyncio
import pkgutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import click
import pytest

import cli.commands
from cli.changes.file import read_apps
from cli.errors import STATUSES
from cli.main import command_line
from tests.support.cli.command import Rollcall
from tests.support.cli.examples import commands
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow
TOP = Path(__file__).parents[2]
SLOW = {"aiohttp", "jinja2", "rich"}
HEAVY = {"aiohttp", "asyncio", "jinja2", "msgspec", "rich", "yaml"}


@pytest.mark.parametrize("name", [name for name, _ in commands(command_line())])
def test_each_command_says_what_it_does_and_what_each_option_is_for(name: str) -> None:
    command = dict(commands(command_line()))[name]

    assert command.help
    silent = [
        each.name for each in command.params if isinstance(each, click.Option) and not each.help
    ]
    assert silent == []


@pytest.mark.parametrize("name", ["rollcall diff", "rollcall apply"])
def test_the_help_has_the_form_of_a_file_of_apps(name: str, tmp_path: Path) -> None:
    lines = (dict(commands(command_line()))[name].help or "").splitlines()
    file = tmp_path / "apps.yml"
    file.write_text("\n".join(line.strip() for line in lines if "apps: [" in line))

    (app,) = read_apps(file, variables={})

    assert (app.name, app.hosts.labels, app.fields) == (
        "shop",
        ["service:web"],
        {"image": "shop:1.4"},
    )


def test_the_help_of_each_group_has_the_first_line_of_the_help_of_its_commands() -> None:
    root = command_line()
    groups = {"rollcall": root}
    for name in ("context", "app"):
        group = root.get_command(click.Context(root), name)
        assert isinstance(group, click.Group)
        groups[name] = group

    for name, command in commands(root):
        *_, above, last = name.split()
        text = " ".join(groups[above].get_help(click.Context(groups[above])).split())
        first, *_ = (command.help or "").splitlines()
        assert f" {last} {first}" in text


def test_every_command_of_a_module_can_be_called() -> None:
    modules = [
        import_module(each.name)
        for each in pkgutil.walk_packages(cli.commands.__path__, "cli.commands.")
        if not each.ispkg
    ]
    made = [
        each.name
        for module in modules
        for each in vars(module).values()
        if isinstance(each, click.Command)
    ]

    assert Counter(name.split()[-1] for name, _ in commands(command_line())) == Counter(made)


def test_the_main_help_has_the_exit_statuses() -> None:
    root = command_line()
    shown = " ".join(root.get_help(click.Context(root)).split())

    for status, meaning in STATUSES:
        assert f" {status} {meaning}" in shown


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("--help",), "node        Show what a host says"),
        (("app", "--help"), "backup    Copy the files"),
        (("--version",), "rollcall "),
        (("complete-words", "bash", "--", "no"), "nodes\nnode\n"),
        (("complete-words", "zsh", "--", "app", "ba"), "backup\n"),
        (("complete-words", "fish", "--", "--c"), "--context\n"),
    ],
)
def test_help_and_the_completion_of_commands_import_no_command(
    arguments: tuple[str, ...], printed: str
) -> None:
    done, imported = started(*arguments)

    assert printed in done
    assert imported & HEAVY == set()


def test_the_help_of_a_command_imports_no_client_and_nothing_that_draws_or_renders() -> None:
    program = """
import sys
from cli.main import command_line
from tests.support.cli.examples import commands

print(len(list(commands(command_line()))), *sys.modules)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=TOP, capture_output=True, text=True, check=True
    )
    number, *modules = ran.stdout.split()

    assert int(number) > 30
    assert {module.partition(".")[0] for module in modules} & SLOW == set()


@pytest.mark.parametrize("typed", ["man", "completion bash", "context list", "rollouts"])
def test_a_command_that_asks_no_daemon_imports_no_client(rollcall: Rollcall, typed: str) -> None:
    _, imported = started(*typed.split(), environment=rollcall.environment)

    assert imported & SLOW == set()


async def test_a_table_in_a_pipe_is_drawn_by_no_library(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    await registry.post("web-1", ["service:web"])
    printed, imported = await asyncio.to_thread(
        lambda: started("nodes", environment=rollcall.environment)
    )

    assert "web-1  fresh" in printed
    assert imported & SLOW == {"aiohttp"}


def test_the_client_is_imported_without_the_cas_of_the_system_and_the_environment_stays() -> None:
    program = """
import os
from cli.reach.session import import_aiohttp
before = dict(os.environ)
import_aiohttp()
assert dict(os.environ) == before
from aiohttp import connector
print(connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509_ca"])
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=TOP, capture_output=True, text=True, check=True
    )

    assert ran.stdout == "0\n"


def started(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[str, set[str]]:
    """Run the command; return what it printed, and the packages that it has imported."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "cli.main", *arguments],
        cwd=TOP,
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    modules = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]
    return done.stdout, {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("stats web-1/shop", "rollcall app stats web-1/shop"),
        ("delete web-1/shop --yes", "rollcall app delete --help"),
        ("delete web-1/shop --dry-run", "rollcall app delete web-1/shop --dry-run"),
        ("history", "rollcall app history --help"),
        ("hosts", "rollcall nodes"),
        ("get nodes", "rollcall nodes"),
        ("app list", "rollcall apps"),
        ("app rm", "rollcall app delete --help"),
        ("rm", "rollcall app delete --help"),
        ("context rm", "rollcall context remove --help"),
        ("version", "rollcall --version"),
        ("deregister", "rollcall forget --help"),
        ("app web-1/shop", "rollcall app show web-1/shop"),
        ("app web-1/shop logs", "rollcall app logs web-1/shop"),
        ("web-1/shop", "rollcall app show web-1/shop"),
        ("web-1/shop restart", "rollcall app restart --help"),
        ("web-1/shop restart --dry-run", "rollcall app restart web-1/shop --dry-run"),
    ],
)
def test_a_command_that_is_looked_for_in_another_place_is_named(
    tmp_path: Path, typed: str, meant: str
) -> None:
    ran = Rollcall(tmp_path).run(*typed.split())

    assert ran.status == 2
    assert ran.err.startswith("rollcall: no such command '")
    assert ran.err.endswith(f"; did you mean `{meant}`?\n  next: {meant}\n")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ndoes", "rollcall nodes"),
        ("app lgos", "rollcall app logs"),
        ("context lst", "rollcall context list"),
        ("stpo shop", "rollcall stop --help"),
        ("forgte db-1", "rollcall forget --help"),
        ("app delet a/b", "rollcall app delete --help"),
        ("context uset lab", "rollcall context use --help"),
    ],
)
def test_a_command_that_is_mistyped_is_named(tmp_path: Path, typed: str, meant: str) -> None:
    ran = Rollcall(tmp_path).run(*typed.split())

    assert ran.status == 2
    assert f"; did you mean `{meant}`" in ran.err
    assert f"\n  next: {meant}\n" in ran.err


@pytest.mark.parametrize(
    "command", ["rebuild", "update", "start", "stop", "restart", "rollback", "logs"]
)
def test_an_app_on_a_host_is_none_of_a_fleet(tmp_path: Path, command: str) -> None:
    known = dict(commands(command_line()))
    ran = Rollcall(tmp_path).run(command, "web-1/shop")
    said = ran.err

    assert ran.status == 2

    for meant, arguments in (
        (f"rollcall {command}", "shop web-1"),
        (f"rollcall app {command}", "web-1/shop"),
    ):
        assert f"`{meant} {arguments}`" in said
        assert meant in known


def test_an_image_with_a_path_is_no_app_on_a_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Rollcall(tmp_path).run("update", "shop", "--image", "registry/shop")

    assert "no registry is known yet" in ran.err
    assert capsys.readouterr().err == ""


READ_ONLY = {
    "nodes",
    "node",
    "watch",
    "targets",
    "services",
    "roll-call",
    "doctor",
    "apps",
    "top",
    "logs",
    "why",
    "inventory",
    "rollouts",
    "diff",
    "agent-key",
}


def test_no_guess_changes_anything(tmp_path: Path) -> None:
    """Each name of a command with a letter less, and two swapped, in each group."""
    rollcall = Rollcall(tmp_path)
    names = [name for name, _ in commands(command_line())]
    for name in names:
        *before, word = name.split()[1:]
        typos = {word[1:], word[:-1], word[1] + word[0] + word[2:]} - {word, ""}
        for typo in (each for each in typos if " ".join(["rollcall", *before, each]) not in names):
            for step in steps(rollcall.run(*before, typo, "web-1", "web-2").err):
                words = step.split()
                is_read = words[1] in READ_ONLY or words[2:3] in (["list"], ["show"], ["logs"])
                is_read |= words[1:2] == ["app"] and words[2] in (
                    "stats",
                    "ps",
                    "history",
                    "events",
                )
                assert (
                    words[-1] in ("--help", "--version")
                    or is_read
                    or words[1]
                    in (
                        "man",
                        "completion",
                    )
                ), (typo, step)


def steps(reported: str) -> list[str]:
    return [line.removeprefix("  next: ") for line in reported.splitlines() if "  next: " in line]
