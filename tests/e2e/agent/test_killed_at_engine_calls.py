"""An agent killed at its calls that change something at the engine, or without their answers.

Each operation is run twice without a fault, then once for each fault at a call that both runs made.
A test run takes the kills after the last call and after every second one before it, and at each
call an answer that is lost or comes after the time limit, in turns. ``ROLLCALL_FAULTS=all`` takes
all four faults at each call. ``ROLLCALL_OPERATION=rebuild`` takes only the operations with that in
their names.
"""

import asyncio
import logging
import os
import secrets
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import docker
import pytest

from dev.images import build
from tests.support.agent.image_registry import PASSWORD, USER, ImageRegistry, image_registry
from tests.support.agent.in_process import without_adoption
from tests.support.agent.kills.engine_proxy import (
    ANSWERS,
    KILLS,
    Call,
    EngineProxy,
    Fault,
)
from tests.support.agent.kills.host import KilledHost, KilledHosts
from tests.support.agent.kills.operations import OPERATIONS
from tests.support.agent.kills.subject import DECLARED, AppImages, image_id
from tests.support.daemons import Daemons, FreePort

pytestmark = [pytest.mark.real("docker-registry"), pytest.mark.timeout(1800)]

LOG = logging.getLogger(__name__)
ALL = os.environ.get("ROLLCALL_FAULTS") == "all"
ONLY = os.environ.get("ROLLCALL_OPERATION", "")
HOSTS = 8
# A late answer takes so long. An engine under eight agents may not need as long for any call.
TIMEOUT_SECONDS = 6
# A pull has limits of its own, and may take long.
PULL = "POST /images/create"
FIRST_PORT, PORTS_OF_A_HOST = 30_000, 100
# Sufficient for the agent, which sets the hash of one user.
CHPASSWD = b"""#!/bin/sh
IFS= read -r line && printf '%s:19000:0:99999:7:::\\n' "$line" > /etc/shadow
"""
GOOD = """\
FROM {base}
COPY . /
ENV BUILD={build}
VOLUME {volume}
"""
CRASHING = 'FROM {base}\nCMD ["/bin/sh", "-c", "echo no configuration here; exit 3"]\n'
CRASHING_LATER = """\
FROM {base}
CMD ["/bin/sh", "-c", "while [ ! -s /etc/shadow ]; do sleep 0.05; done; sleep 0.3; exit 3"]
"""
TABLE_HEAD = (
    "| operation | changing calls | kills | answers lost or late | done | as before |",
    "| --- " * 6 + "|",
)


@dataclass(frozen=True)
class OperationRuns:
    """The runs of one operation: the calls of those without a fault, and a run for each fault."""

    name: str
    calls: list[Call]
    faulty: dict[Fault, Future[str]]

    def failures(self) -> list[str]:
        """Return a description of each run that failed."""
        return [
            f"{self.name}, {fault.moment} {fault.call}: {error!r}"
            for fault, run in self.faulty.items()
            if (error := run.exception()) is not None
        ]

    def row(self) -> str:
        """Return the operation's row of the table."""
        outcomes = Counter(run.result() for run in self.faulty.values() if run.exception() is None)
        kills = sum(fault.moment in KILLS for fault in self.faulty)
        cells = (
            self.name,
            len(self.calls),
            kills,
            len(self.faulty) - kills,
            outcomes["done"],
            outcomes["as before"],
        )
        return f"| {' | '.join(map(str, cells))} |"


@pytest.fixture
def images(docker_client: docker.APIClient, busybox_image: str) -> Iterator[AppImages]:
    """Return the images of the apps."""
    run = secrets.token_hex(4)
    tags = {name: f"rollcall-test-kills-{name}:{run}" for name in ("1", "2", "crash", "later")}
    files = {"etc/passwd": b"root:x:0:0:root:/:/bin/sh\napp:x:1:1::/:/bin/sh\n"}
    files |= {"bin/chpasswd": CHPASSWD}
    for name in ("1", "2"):
        build(
            docker_client,
            tags[name],
            GOOD.format(base=busybox_image, build=name, volume=DECLARED),
            files,
        )
    build(docker_client, tags["crash"], CRASHING.format(base=tags["1"]), {})
    build(docker_client, tags["later"], CRASHING_LATER.format(base=tags["1"]), {})
    first, second = (image_id(docker_client, tags[name]) for name in ("1", "2"))
    yield AppImages(good=(first, second), crashing=tags["crash"], crashing_later=tags["later"])
    for tag in reversed(tags.values()):
        docker_client.remove_image(tag, force=True)


@pytest.fixture
def image_server(
    tmp_path_factory: pytest.TempPathFactory, free_port: FreePort, docker_client: docker.APIClient
) -> Iterator[ImageRegistry]:
    """Yield a registry of images."""
    folder = tmp_path_factory.mktemp("images")
    with image_registry(folder / "server", free_port()) as server:
        yield server
        server.forget(docker_client)


@pytest.fixture
def hosts(
    tmp_path_factory: pytest.TempPathFactory,
    free_port: FreePort,
    engine_url: str,
    images: AppImages,
    image_server: ImageRegistry,
) -> Iterator[KilledHosts]:
    """Return agents on one engine, none of which adopts the containers of another."""
    folder = tmp_path_factory.mktemp("kills")
    (folder / "password").write_text(PASSWORD)
    login = {
        "server": image_server.server,
        "user": USER,
        "password_file": str(folder / "password"),
    }
    with ExitStack() as stack:
        daemons = stack.enter_context(Daemons(folder=folder / "daemons", free_port=free_port))
        hosts = []
        for number in range(HOSTS):
            client = docker.APIClient(base_url=engine_url, version="auto", timeout=120)
            stack.callback(client.close)
            pulled = image_server.push(client, images.good[0], f"kills-{number}")
            proxy = EngineProxy(path=folder / f"engine-{number}", engine_url=engine_url)
            stack.enter_context(proxy)
            asyncio.run(without_adoption(folder / str(number)))
            first = FIRST_PORT + number * PORTS_OF_A_HOST
            agent = daemons.agent(
                docker={
                    "url": proxy.url,
                    "timeout_seconds": TIMEOUT_SECONDS,
                    "registries": [login],
                },
                store=f"sqlite:///{folder / str(number) / 'agent.db'}",
                apps={"ports": f"{first}-{first + PORTS_OF_A_HOST - 1}", "stop_seconds": 1},
            )
            hosts.append(KilledHost(agent, proxy, client, replace(images, pulled=pulled)))
            stack.callback(hosts[-1].clean)
        yield stack.enter_context(KilledHosts(hosts))


def faults_at(calls: list[Call]) -> list[Fault]:
    """List the faults at these calls."""
    answers = [
        Fault(call, moment)
        for number, call in enumerate(calls)
        for moment in (ANSWERS if ALL else ANSWERS[number % 2 :][:1])
        if (moment, call.name) != ("late", PULL)
    ]
    if not ALL:
        return [*(Fault(call, "after") for call in calls[::-2]), *answers]
    return [*(Fault(call, moment) for call in calls for moment in KILLS), *answers]


def unlabelled_volumes(client: docker.APIClient) -> set[str]:
    """Return the names of the volumes that are no app's, such as those that the engine makes."""
    volumes = client.volumes()["Volumes"] or ()
    return {each["Name"] for each in volumes if "rollcall.app" not in (each["Labels"] or {})}


def test_an_agent_killed_or_left_without_an_answer_at_any_call_has_changed_all_or_nothing(
    hosts: KilledHosts, docker_client: docker.APIClient
) -> None:
    before = unlabelled_volumes(docker_client)
    operations = [each for each in OPERATIONS if ONLY in each.name]
    whole = [
        [hosts.submit(partial(KilledHost.run_whole, operation=each)) for _ in range(2)]
        for each in operations
    ]
    runs = [
        OperationRuns(
            operation.name,
            # The engine's answers decide on a few calls, such as a command in an app that crashes.
            calls := [call for call in first.result() if call in second.result()],
            {
                fault: hosts.submit(
                    partial(KilledHost.run_with_fault, operation=operation, fault=fault)
                )
                for fault in faults_at(calls)
            },
        )
        for operation, (first, second) in zip(operations, whole, strict=True)
    ]

    failures = [failure for each in runs for failure in each.failures()]
    rows = [each.row() for each in runs]
    LOG.warning("\n%s", "\n".join([*TABLE_HEAD, *rows]))
    assert failures == [], "\n".join(failures)
    assert unlabelled_volumes(docker_client) == before
