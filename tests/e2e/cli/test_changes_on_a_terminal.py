"""Changes and logs of apps on a terminal: what is shown meanwhile, Ctrl-C, and what fails."""

from pathlib import Path

import pytest

from tests.support.agent.image_registry import stalling_image_registry
from tests.support.cli.process import WITH_SIGINT, CommandLine
from tests.support.machine.terminal import terminal
from tests.support.registry.fake_servers import running_servers

pytestmark = pytest.mark.real
SOON = 60.0
TELLING = 'command=[sh, -c, "while true; do echo here; sleep 1; done"]'


def test_a_pull_is_shown_and_goes_on_after_ctrl_c(
    app: str, rollcall: CommandLine, tmp_path: Path
) -> None:
    host, _, name = app.partition("/")
    with running_servers([stalling_image_registry()]) as (server,):
        command = [*WITH_SIGINT, str(rollcall.program), "app", "create", app]
        command += ["--image", f"{server}/app"]
        environment = {**rollcall.environment, "TERM": "xterm", "COLUMNS": "100"}
        with terminal(command, folder=tmp_path, environment=environment) as screen:
            screen.wait_for(f"{name}: pulling", within=SOON)
            assert screen.press_ctrl_c() == 130
            screen.wait_for(f"next: rollcall app show {app}", within=SOON)

        assert rollcall.json("app", "show", app)["state"] == "pulling"
        rollcall.ok("app", "delete", app, "--yes")
        assert rollcall.ok("apps", host, "-o", "name").split() == []


def test_a_log_is_followed_until_ctrl_c(
    app: str, rollcall: CommandLine, busybox_image: str, tmp_path: Path
) -> None:
    settings = ("--set", TELLING, "--set", "stop_seconds=0")
    rollcall.ok("app", "create", app, "--image", busybox_image, "--no-wait", *settings)
    command = [*WITH_SIGINT, str(rollcall.program), "app", "logs", app, "--tail", "0", "-f"]

    with terminal(command, folder=tmp_path, environment=rollcall.environment) as screen:
        screen.wait_for("here\nhere\n", within=SOON)
        assert screen.press_ctrl_c() == 130
        assert "Traceback" not in screen.text()


def test_a_log_that_is_followed_ends_with_its_app(
    app: str, rollcall: CommandLine, busybox_image: str, tmp_path: Path
) -> None:
    settings = ("--set", TELLING, "--set", "stop_seconds=0")
    rollcall.ok("app", "create", app, "--image", busybox_image, "--no-wait", *settings)
    command = ["sh", "-c", '"$@"; echo ended with $?', "-"]
    command += [str(rollcall.program), "app", "logs", app, "-f"]

    with terminal(command, folder=tmp_path, environment=rollcall.environment) as screen:
        screen.wait_for("here", within=SOON)
        rollcall.ok("app", "delete", app, "--yes")
        screen.wait_for("ended with 0", within=SOON)


def test_an_update_whose_container_does_not_stay_up_fails_and_the_old_one_runs(
    app: str, rollcall: CommandLine, busybox_image: str
) -> None:
    rollcall.ok("app", "create", app, "--image", busybox_image, "--no-wait")
    before = rollcall.json("app", "show", app)

    failed = rollcall.run("app", "update", app, "--set", 'command=[sh, -c, "exit 3"]')

    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("rollcall: ")
    after = rollcall.json("app", "show", app)
    assert (after["state"], after["container_id"]) == ("running", before["container_id"])
    assert rollcall.json("app", "events", app)[-1]["outcome"] == "failed"


def test_an_app_that_ends_again_and_again_is_reported_with_its_exit_code_and_last_lines(
    app: str, rollcall: CommandLine, busybox_image: str
) -> None:
    # It runs for longer than the agent watches a start.
    command = 'command=[sh, -c, "echo no configuration; sleep 1.5; exit 3"]'

    failed = rollcall.run("app", "create", app, "--image", busybox_image, "--set", command)

    assert (failed.returncode, failed.stdout) == (1, "")
    assert "it does not stay up: it ended with exit code 3" in failed.stderr
    assert "\n  | no configuration\n" in failed.stderr
    assert failed.stderr.endswith(f"  next: rollcall app logs {app}\n")
    waiting = rollcall.run("app", "update", app, "--set", "description=a test", "--no-wait")
    assert waiting.returncode == 0, waiting.stderr


def test_a_label_that_is_only_tried_is_not_there(
    app: str, rollcall: CommandLine, busybox_image: str
) -> None:
    rollcall.ok("app", "create", app, "--image", busybox_image, "--no-wait")

    reported = rollcall.ok("app", "label", app, "prometheus:cli", "--dry-run")

    assert "nothing was changed" in reported
    assert rollcall.json("app", "show", app)["labels"] == []
    rejected = rollcall.run("app", "label", app, "prometheus:cli", "--remove", "--dry-run")
    assert rejected.returncode == 1
    short = rollcall.run("app", "password", app, "--dry-run", stdin="short\n")
    assert (short.returncode, "8" in short.stderr) == (2, True)


def test_no_app_is_changed_by_a_key_that_is_not_known(
    app: str, rollcall: CommandLine, busybox_image: str
) -> None:
    rollcall.ok("app", "create", app, "--image", busybox_image, "--no-wait")

    rejected = rollcall.run("app", "stop", app, ROLLCALL_KEY="unknown-key-0123456789")

    assert (rejected.returncode, rejected.stdout) == (3, "")
    assert "advice: unset ROLLCALL_KEY" in rejected.stderr
    assert rollcall.json("app", "show", app)["state"] == "running"
