"""`why`: its verdicts on real containers."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import docker
import docker.errors
import pytest

from dev.waiting import until
from tests.support.cli.process import CommandLine
from tests.support.daemons import Daemon

pytestmark = [pytest.mark.real, pytest.mark.long(1)]
SOON = 90.0
PAGE = "exec httpd -f -p 8000 -h /www"
# The apps, by the commands of their containers.
COMMANDS = {
    "why-runs": PAGE,
    "why-exits": "sleep 2; exit 3",
    "why-grows": "sleep 2; x=a; while :; do x=$x$x; done",
    "why-fails": f"[ -e /www/was ] || touch /www/ok /www/was; (sleep 4; rm -f /www/ok) & {PAGE}",
    "why-stops": PAGE,
    "why-waits": PAGE,
    "why-goes": PAGE,
}
FIELDS = {
    "why-grows": ["--memory", "8"],
    "why-fails": ["--set", "health={path: /ok, interval_seconds: 1, retries: 1}"],
}
VERDICTS = {
    "why-runs": (0, "running, unchecked"),
    "why-exits": (1, "exit 3, "),
    "why-grows": (1, "out of memory, "),
    "why-fails": (1, "check failed: "),
    "why-stops": (1, "stopped by ops at "),
    "why-waits": (1, "paused"),
    "why-goes": (1, "its container is gone"),
}


@pytest.fixture
def apps(
    agent: Daemon, rollcall: CommandLine, busybox_image: str, docker_client: docker.APIClient
) -> Iterator[None]:
    """Create the apps; remove them afterwards."""
    try:
        for name, command in COMMANDS.items():
            asked = ["--image", busybox_image, "--set", f'command=[sh, -c, "{command}"]']
            asked += ["--set", "stop_seconds=1", "--no-wait", *FIELDS.get(name, ())]
            rollcall.ok("app", "create", f"web-1/{name}", *asked)
        rollcall.ok("app", "stop", "web-1/why-stops")
        docker_client.pause("why-waits")
        docker_client.remove_container("why-goes", force=True)
        yield
    finally:
        for name in COMMANDS:
            with suppress(docker.errors.APIError):
                docker_client.unpause(name)
            agent.ask("DELETE", f"/v1/apps/{name}")


@pytest.mark.usefixtures("apps")
def test_each_app_has_its_verdict(rollcall: CommandLine) -> None:
    for name, (status, verdict) in VERDICTS.items():
        until(said(rollcall, f"web-1/{name}", verdict, status), f"{name}: {verdict}", within=SOON)

    screen = rollcall.run("why", "web-1/why-exits").stdout
    host = rollcall.run("why", "web-1")
    assert "last change  create by ops at " in screen
    assert "die  exit 3" in screen
    assert "GiB free of" in screen
    assert host.returncode == 1
    assert "why-runs: running, unchecked" in host.stdout
    assert " of 7 apps not well: " in host.stdout


def said(rollcall: CommandLine, app: str, verdict: str, status: int) -> Callable[[], bool]:
    def look() -> bool:
        ran = rollcall.run("why", app)
        first = ran.stdout.partition("\n")[0]
        return (ran.returncode, first.startswith(f"{app}: {verdict}")) == (status, True)

    return look
