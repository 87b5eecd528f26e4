"""Changes of an app on many hosts, with a real agent on a real engine."""

from pathlib import Path

import docker
import pytest

from tests.support.cli.process import CommandLine

pytestmark = [pytest.mark.real, pytest.mark.long(1)]


def test_the_hosts_that_have_the_app_are_changed_and_checked(
    app: str, rollcall: CommandLine, busybox_image: str
) -> None:
    name = app.partition("/")[2]
    rollcall.ok("app", "create", app, "--image", busybox_image, "--no-wait")
    before = rollcall.json("app", "show", app)["container_id"]

    # web-0 does not answer, so nobody knows whether it has the app.
    unknown = rollcall.run("rebuild", name)
    assert (unknown.returncode, unknown.stdout) == (3, "")
    assert rollcall.run("rebuild", name, "--label", "service:none").returncode == 1
    plan = rollcall.json("rebuild", name, "web-1", "--dry-run")
    assert [(each["host"], each["replaces_container"]) for each in plan] == [("web-1", True)]
    _, row = rollcall.ok("rebuild", name, "web-1", "--dry-run").splitlines()
    assert row.split()[:4] == ["web-1", busybox_image, "-", "yes"]
    assert rollcall.json("app", "show", app)["container_id"] == before

    done = rollcall.json("rebuild", name, "--label", "service:web", "--check-http", "/")
    assert [(each["host"], each["state"]) for each in done] == [("web-1", "done")]
    after = rollcall.json("app", "show", app)["container_id"]
    assert after != before
    assert rollcall.run("rebuild", name, "web-1", "--resume").returncode == 2
    bad = rollcall.run("rebuild", name, "web-1", "--check-http", "/none", "--check-time", "1s")
    assert bad.returncode == 1
    assert "answers 404" in bad.stdout

    rejected = rollcall.run("stop", name, "web-1")
    assert (rejected.returncode, "--resume" in rejected.stderr) == (2, True)
    rollcall.ok("stop", name, "web-1", "--give-up")
    assert rollcall.json("app", "show", app)["state"] == "exited"
    rollcall.ok("start", name, "web-1")
    rollcall.ok("update", name, "web-1", "--set", "memory=64")
    rollcall.ok("rollback", name, "web-1")
    assert rollcall.json("app", "show", app)["memory"] != 64


def test_a_rollout_that_failed_leaves_the_app_as_it_was_and_is_resumed(
    app: str, rollcall: CommandLine, busybox_image: str, docker_client: docker.APIClient
) -> None:
    name = app.partition("/")[2]
    rollcall.ok("app", "create", app, "--image", busybox_image, "--no-wait")
    before = rollcall.json("app", "show", app)["container_id"]
    image = f"rollcall-test-rollout:{name}"

    failed = rollcall.run("update", name, "web-1", "--image", image)

    assert failed.returncode == 1
    assert "failed" in failed.stdout
    assert f": rollcall update {name} --resume\n" in failed.stderr
    assert rollcall.json("app", "show", app)["container_id"] == before
    assert rollcall.run("rebuild", name, "--resume").returncode == 2
    docker_client.tag(busybox_image, image)
    try:
        rollcall.ok("update", name, "--resume")
        assert rollcall.json("app", "show", app)["image"] == image
        assert rollcall.run("update", name, "--resume").returncode == 2
    finally:
        rollcall.run("app", "delete", app, "--yes")
        docker_client.remove_image(image, force=True)


def test_a_file_of_apps_is_brought_about_and_a_second_run_changes_nothing(
    app: str, rollcall: CommandLine, busybox_image: str, tmp_path: Path
) -> None:
    name = app.partition("/")[2]
    health = "health: {path: /, interval_seconds: 5}"
    wanted = f"{{name: {name}, where: {{hosts: [web-1]}}, image: '{busybox_image}', {health}}}"
    file = tmp_path / "apps.yml"
    file.write_text(f"apps: [{wanted}]")

    assert rollcall.run("diff", "-f", file).returncode == 1
    assert rollcall.run("app", "show", app).returncode == 1
    rollcall.ok("apply", "-f", file, "--yes")
    before = rollcall.json("app", "show", app)
    assert [each["step"] for each in rollcall.json("diff", "-f", file)] == ["none"]
    assert [each["step"] for each in rollcall.json("apply", "-f", file)] == ["none"]
    assert rollcall.json("app", "show", app)["revision"] == before["revision"]

    file.write_text(
        f"apps: [{wanted[:-1]}, env: {{MODE: live}}, labels: ['prometheus:x'], cpu: 50}}]"
    )
    rollcall.ok("apply", "-f", file, "--yes")
    after = rollcall.json("app", "show", app)
    assert (after["env"], after["labels"], after["cpu"]) == ({"MODE": "live"}, ["prometheus:x"], 50)
    assert rollcall.run("diff", "-f", file).returncode == 0

    file.write_text(f"apps: [{wanted[:-1]}, memory: 1}}]")
    rejected = rollcall.run("apply", "-f", file, "--yes")
    assert rejected.returncode == 2
    assert "nothing was changed" in rejected.stderr
    assert rollcall.json("app", "show", app)["revision"] == after["revision"]
