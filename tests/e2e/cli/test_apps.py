"""Apps of a real agent on a real engine, by the command."""

import tarfile
from pathlib import Path

import docker
import msgspec
import pytest

from dev.waiting import until
from tests.support.cli.process import CommandLine

pytestmark = [pytest.mark.real, pytest.mark.long(1)]
SOON = 60.0


def test_an_app_is_created_and_deleted(app: str, rollcall: CommandLine, busybox_image: str) -> None:
    plan = rollcall.json("app", "create", app, "--image", busybox_image, "--dry-run")
    assert plan["replaces_container"] is True or plan["app"]["container_id"] is None
    assert rollcall.run("app", "show", app).returncode == 1

    reported = rollcall.ok("app", "create", app, "--image", busybox_image, "--memory", "64")
    assert reported.startswith(f"{app}: running, http port ")
    again = rollcall.run("app", "create", app, "--image", busybox_image)
    assert (again.returncode, again.stdout) == (1, "")
    assert "rollcall: " in again.stderr

    rollcall.ok("app", "delete", app, "--yes")
    assert rollcall.run("app", "show", app).returncode == 1


def test_an_app_is_changed_and_looked_at(
    app: str, rollcall: CommandLine, busybox_image: str
) -> None:
    rollcall.ok("app", "create", app, "--image", busybox_image, "--memory", "64")

    rollcall.ok("app", "update", app, "--memory", "65", "--set", "stop_seconds=1")

    assert rollcall.json("app", "show", app)["memory"] == 65
    assert "keep the container" in rollcall.ok("app", "update", app, "--memory", "66", "--dry-run")
    assert rollcall.json("app", "show", app)["memory"] == 65
    assert [each["revision"] for each in rollcall.json("app", "history", app)] == [2, 1]
    assert rollcall.json("app", "events", app)[0]["action"] == "create"
    assert rollcall.json("app", "stats", app)["memory_limit_bytes"] == 65 * 2**20
    assert any("httpd" in each["command"] for each in rollcall.json("app", "ps", app))
    assert "httpd" in rollcall.ok("app", "ps", app)
    rollcall.ok("app", "logs", app)
    rollcall.ok("app", "label", app, "prometheus:cli")
    assert rollcall.json("app", "show", app)["labels"] == ["prometheus:cli"]
    rollcall.ok("app", "label", app, "prometheus:cli", "--remove")
    rollcall.ok("app", "rollback", app)
    assert rollcall.json("app", "show", app)["memory"] == 64


def test_a_password_is_read_from_a_pipe_and_never_shown(
    app: str, rollcall: CommandLine, busybox_image: str
) -> None:
    rollcall.ok("app", "create", app, "--image", busybox_image, "--no-wait")

    # The image has no user whose password could be set.
    rejected = rollcall.run("app", "password", app, stdin="correct horse\n")
    assert rejected.returncode == 1
    assert "correct horse" not in rejected.stdout + rejected.stderr


def test_data_goes_out_and_in_and_a_deletion_is_confirmed(
    app: str, rollcall: CommandLine, busybox_image: str, tmp_path: Path
) -> None:
    rollcall.ok("app", "create", app, "--image", busybox_image, "--no-wait")
    tar = tmp_path / "data.tar"
    rollcall.ok("app", "stop", app)

    rollcall.ok("app", "backup", app, tar)

    with tarfile.open(tar) as opened:
        assert any(name.endswith("index.html") for name in opened.getnames())
    assert tar.stat().st_mode & 0o077 == 0
    before = tar.read_bytes()
    assert rollcall.run("app", "backup", app, tar).returncode == 2
    assert tar.read_bytes() == before
    rollcall.ok("app", "restore", app, tar, "--dry-run")
    rollcall.ok("app", "restore", app, tar)
    rollcall.ok("app", "start", app)
    assert rollcall.run("app", "restore", app, tar).returncode == 1
    assert rollcall.run("app", "delete", app).returncode != 0
    assert rollcall.json("app", "show", app)["state"] == "running"
    rollcall.ok("app", "delete", app, "--yes")
    assert rollcall.run("app", "show", app).returncode == 1
    assert sorted(path.name for path in tmp_path.glob("*.part")) == []


def test_all_hosts_are_asked_and_one_that_does_not_answer_is_a_row(
    app: str, rollcall: CommandLine, busybox_image: str, docker_client: docker.APIClient
) -> None:
    rollcall.ok("app", "create", app, "--image", busybox_image, "--no-wait")

    everywhere = rollcall.run("apps", "-o", "json")
    table = rollcall.run("apps")

    assert everywhere.returncode == table.returncode == 1
    assert table.stdout.splitlines()[1].split()[:2] == ["web-0/", "error"]
    assert any(row.split()[:2] == [app, "running"] for row in table.stdout.splitlines())
    assert app in rollcall.ok("apps", "web-1", "-o", "name").split()
    assert app in rollcall.ok("apps", "--label", "service:web", "-o", "name").split()
    unknown = rollcall.run("apps", "web-9")
    assert (unknown.returncode, unknown.stdout) == (1, "")

    # Nothing checks the health of the app, so that no heartbeat reports its end.
    docker_client.stop(app.partition("/")[2], timeout=0)
    (reported,) = until(lambda: dead_apps(rollcall), "what doctor says of the app", within=SOON)
    assert reported.startswith(f"{app} is exited")
    assert f"  next: rollcall why {app}" in rollcall.run("doctor").stdout.splitlines()


def dead_apps(rollcall: CommandLine) -> list[str]:
    """Return what `doctor` says of apps."""
    findings = msgspec.json.decode(rollcall.run("doctor", "-o", "json").stdout)
    return [each["text"] for each in findings if each["check"] == "apps"]


def test_a_log_cannot_control_the_terminal(
    app: str, rollcall: CommandLine, busybox_image: str
) -> None:
    command = r"""command=[sh, -c, "printf '\\033[2J%s\\n' evil; exec httpd -f -p 8000 -h /www"]"""
    rollcall.ok("app", "create", app, "--image", busybox_image, "--set", command)

    until(lambda: "evil" in rollcall.ok("app", "logs", app), "the log", within=SOON)

    assert rollcall.ok("app", "logs", app) == "\\x1b[2Jevil\n"
