"""Agents that are killed, or left without an answer, while they change an app."""

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import docker
import pytest

from dev.images import build
from tests.support.agent.containers import TAKES_PASSWORDS
from tests.support.agent.image_registry import PASSWORD, USER, ImageRegistry, image_registry
from tests.support.agent.in_process import without_adoption
from tests.support.agent.kills.engine_proxy import EngineProxy
from tests.support.agent.kills.host import KilledHost, KilledHosts
from tests.support.agent.kills.operation import Operation
from tests.support.agent.kills.runs import Check, failures_of
from tests.support.agent.kills.subject import DECLARED, AppImages, image_id
from tests.support.daemons import Daemons, FreePort

# The agents of a file wait for most of the time, and so do those of the files that run beside it.
HOSTS = 3
# A late answer takes so long. No call to an engine may take as long under the load of these tests.
TIMEOUT_SECONDS = 6
FIRST_PORT, PORTS_OF_A_HOST = 30_000, 100
GOOD = """\
FROM {base}
COPY . /
ENV BUILD={build}
VOLUME {volume}
"""
REMOVABLE = "FROM {base}\nENV HOST={host}\n"
CRASHING = 'FROM {base}\nCMD ["/bin/sh", "-c", "echo no configuration here; exit 3"]\n'
CRASHING_LATER = """\
FROM {base}
CMD ["/bin/sh", "-c", "while [ ! -s /etc/shadow ]; do sleep 0.05; done; sleep 0.3; exit 3"]
"""


@pytest.fixture
def images(docker_client: docker.APIClient, busybox_image: str) -> Iterator[AppImages]:
    """Yield the images of the apps."""
    run = secrets.token_hex(4)
    tags = {name: f"rollcall-test-kills-{name}:{run}" for name in ("1", "2", "crash", "later")}
    for name in ("1", "2"):
        build(
            docker_client,
            tags[name],
            GOOD.format(base=busybox_image, build=name, volume=DECLARED),
            TAKES_PASSWORDS,
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
def host_count() -> int:
    """Return how many agents there are."""
    return HOSTS


@pytest.fixture
def app_settings() -> dict[str, Any]:
    """Return the settings of apps that the agents of a file have besides."""
    return {}


@pytest.fixture
def hosts(
    tmp_path_factory: pytest.TempPathFactory,
    free_port: FreePort,
    engine_url: str,
    images: AppImages,
    image_server: ImageRegistry,
    host_count: int,
    app_settings: dict[str, Any],
) -> Iterator[KilledHosts]:
    """Yield agents on one engine, none of which adopts the containers of another."""
    folder = tmp_path_factory.mktemp("kills")
    (folder / "password").write_text(PASSWORD)
    login = {
        "server": image_server.server,
        "user": USER,
        "password_file": str(folder / "password"),
    }
    with ExitStack() as stack:
        # The agents end before their proxies, which are asked nothing more when they stop.
        proxies = [
            stack.enter_context(EngineProxy(path=folder / f"engine-{each}", engine_url=engine_url))
            for each in range(host_count)
        ]
        daemons = stack.enter_context(Daemons(folder=folder / "daemons", free_port=free_port))
        hosts = []
        for number, proxy in enumerate(proxies):
            client = docker.APIClient(base_url=engine_url, version="auto", timeout=120)
            stack.callback(client.close)
            pulled = image_server.push(client, images.good[0], f"kills-{number}")
            removable = _push_removable(client, image_server, images.good[0], number)
            asyncio.run(without_adoption(folder / str(number)))
            first = FIRST_PORT + number * PORTS_OF_A_HOST
            agent = daemons.agent(
                docker={
                    "url": proxy.url,
                    "timeout_seconds": TIMEOUT_SECONDS,
                    "registries": [login],
                },
                store=f"sqlite:///{folder / str(number) / 'agent.db'}",
                apps={
                    "ports": f"{first}-{first + PORTS_OF_A_HOST - 1}",
                    "stop_seconds": 1,
                    **app_settings,
                },
            )
            own = replace(images, pulled=pulled, removable=removable)
            hosts.append(KilledHost(agent, proxy, client, own))
            stack.callback(hosts[-1].clean)
        yield stack.enter_context(KilledHosts(hosts))


def _push_removable(client: docker.APIClient, server: ImageRegistry, base: str, number: int) -> str:
    tag = f"rollcall-test-kills-removable:{secrets.token_hex(4)}"
    build(client, tag, REMOVABLE.format(base=base, host=number), {})
    reference = server.push(client, tag, f"kills-removable-{number}")
    client.remove_image(tag, force=True)
    return reference


@pytest.fixture
def no_volume_left(docker_client: docker.APIClient) -> Iterator[None]:
    """Assert that afterwards there are no more volumes without the label of an app."""
    before = _unlabelled_volumes(docker_client)
    yield
    assert _unlabelled_volumes(docker_client) == before


@pytest.fixture
def check(hosts: KilledHosts, no_volume_left: None) -> Check:
    """Return a function that asserts that each fault leaves an operation done or undone."""
    del no_volume_left

    def run(operations: Sequence[Operation]) -> None:
        failures = failures_of(hosts, operations)
        assert failures == [], "\n".join(failures)

    return run


def _unlabelled_volumes(client: docker.APIClient) -> set[str]:
    # Such as those that the engine makes.
    volumes = client.volumes()["Volumes"] or ()
    return {each["Name"] for each in volumes if "rollcall.app" not in (each["Labels"] or {})}
