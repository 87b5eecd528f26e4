"""A new image on three hosts, each with an agent and an engine of its own."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from dev.images import import_busybox
from dev.waiting import until
from tests.support.agent.engines.dockerd import Dockerd
from tests.support.cli.agents import advertised_agent
from tests.support.cli.process import WITH_SIGINT, CommandLine
from tests.support.daemons import Daemons
from tests.support.requirements import need_root

pytestmark = [
    pytest.mark.real("dockerd"),
    pytest.mark.long(1),
    pytest.mark.release("three engines; test_rollouts.py holds rollouts on one"),
]
SOON = 60.0
HOSTS = ("web-1", "web-2", "web-3")
OLD, NEW = "rollcall-test-shop-old", "rollcall-test-shop-new"
SAYS_HELLO = "wget -q -O - http://127.0.0.1:8000/ | busybox grep -q Hello"
HEALTH = f'health={{command: [sh, -c, "{SAYS_HELLO}"], interval_seconds: 1, retries: 2}}'
ROLLOUT = ("update", "shop", "--image", NEW, "--label", "service:web")


@pytest.fixture
def engines() -> Iterator[list[Dockerd]]:
    """Yield an engine for each host, with the old image and the new one."""
    need_root()
    with ExitStack() as closing:
        running = [closing.enter_context(Dockerd()) for _ in HOSTS]
        for engine in running:
            engine.start()
            add_image(engine, OLD, page="Hello")
            add_image(engine, NEW, page="Hello again")
        yield running


@pytest.fixture
def fleet(daemons: Daemons, engines: list[Dockerd], rollcall: CommandLine) -> CommandLine:
    """Return the command, logged in where the app runs on all hosts."""
    registry = daemons.registry()
    apps = {"healthy_seconds": 5}
    for hostname, engine in zip(HOSTS, engines, strict=True):
        advertised_agent(daemons, registry, hostname=hostname, engine=engine.url, apps=apps)
    rollcall.login(registry)

    def all_known() -> bool:
        return rollcall.ok("nodes", "-o", "name").split() == list(HOSTS)

    until(all_known, "three nodes", within=SOON)
    for hostname in HOSTS:
        rollcall.ok("app", "create", f"{hostname}/shop", "--image", OLD, "--set", HEALTH)
    return rollcall


def add_image(engine: Dockerd, repository: str, *, page: str) -> None:
    client = engine.client()
    import_busybox(client, repository, page=page)
    client.close()


def images(command: CommandLine) -> list[str]:
    """Return the image of the app on each host, which has to be healthy there."""
    until(
        lambda: all(each["healthy"] is True for each in command.json("apps")),
        "healthy apps",
        within=SOON,
    )
    return [each["image"] for each in command.json("apps")]


def test_a_new_image_goes_host_by_host_until_one_does_not_get_healthy_with_it(
    fleet: CommandLine, engines: list[Dockerd]
) -> None:
    containers = [each["container_id"] for each in fleet.json("apps")]
    add_image(engines[1], NEW, page="Out of order")

    failed = fleet.run(*ROLLOUT, "-o", "json")

    assert failed.returncode == 1
    assert [each["state"] for each in parsed(failed)] == ["done", "failed", "waiting"]
    assert "healthy" in parsed(failed)[1]["message"]
    now = [(each["touched"], each["changed"], each["image"]) for each in parsed(failed)]
    assert now == [(True, True, NEW), (True, False, OLD), (False, False, OLD)]
    first, second, _ = HOSTS
    assert f"why: rollcall app events {second}/shop\n" in failed.stderr
    assert f"to undo it: rollcall rollback shop {first} --give-up\n" in failed.stderr
    assert images(fleet) == [NEW, OLD, OLD]
    assert fleet.json("apps")[2]["container_id"] == containers[2]

    add_image(engines[1], NEW, page="Hello again")
    assert interrupted_at_first_change(fleet, "update", "shop", "--resume") == 130
    assert images(fleet) == [NEW, NEW, OLD]

    done = fleet.json("update", "shop", "--resume")
    assert [each["state"] for each in done] == ["done", "done", "done"]
    assert images(fleet) == [NEW, NEW, NEW]

    back = fleet.json("rollback", "shop", "--batch", "2", "--label", "service:web")
    assert [each["state"] for each in back] == ["done", "done", "done"]
    assert images(fleet) == [OLD, OLD, OLD]


def parsed(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def interrupted_at_first_change(command: CommandLine, *arguments: str) -> int:
    """Run a rollout, press Ctrl-C while it changes its first host, and return its exit status."""
    with subprocess.Popen(
        [*WITH_SIGINT, command.program, *arguments],
        env=command.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.endswith(": changing\n"):
                process.send_signal(signal.SIGINT)
        return process.wait(timeout=SOON)
