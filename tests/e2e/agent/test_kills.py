"""An agent killed at any moment: each change is finished or never was, and nothing is lost.

A handful of kills in each run; ``ROLLCALL_KILLS=100`` asks for more, ``ROLLCALL_SEED`` for the same
moments again.
"""

import logging
import os
import random
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import docker
import pytest
import requests

from tests.support.agent.kills.observed_app import ObservedApp
from tests.support.daemons import Daemons

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]

LOG = logging.getLogger(__name__)
KILLS = int(os.environ.get("ROLLCALL_KILLS", "7"))
# Each operation, with how long it takes at most: the kill comes at any moment of that.
OPERATIONS = {
    "create": 1.8,
    "rebuild": 1.8,
    "ports": 1.8,
    "limits": 0.15,
    "stop": 0.5,
    "start": 1.5,
    "delete": 0.6,
}


def prepare(app: ObservedApp, operation: str, image: str) -> None:
    """Prepare the app as the operation needs it, with content in its volume."""
    ask = app.agent.ask
    if app.record() is None:
        assert ask("POST", "/v1/apps", json=body(app, image)).status_code == 201
    assert ask("PUT", app.path + "/start").ok
    app.write()
    if operation == "create":
        assert ask("DELETE", app.path + "?keep_data=true").ok
    if operation == "start":
        assert ask("PUT", app.path + "/stop").ok


def body(app: ObservedApp, image: str) -> dict[str, Any]:
    return {"name": app.name, "image": image, "memory": 32, "cpu": 50}


def request_of(
    app: ObservedApp, operation: str, image: str, rng: random.Random
) -> Callable[[], None]:
    """Return what asks for the operation, whether or not somebody is there to answer."""
    record = {} if operation == "create" else app.record() or {}
    swapped = {"ssh_port": record.get("http_port"), "http_port": record.get("ssh_port")}
    limits = {"memory": rng.randrange(20, 60), "cpu": rng.randrange(20, 90)}
    keep = "?keep_data=true" * rng.randrange(2)
    method, path, json = {
        "create": ("POST", "/v1/apps", body(app, image)),
        "rebuild": ("PUT", app.path + "/rebuild", None),
        "ports": ("PUT", app.path, swapped),
        "limits": ("PUT", app.path, limits),
        "stop": ("PUT", app.path + "/stop", None),
        "start": ("PUT", app.path + "/start", None),
        "delete": ("DELETE", app.path + keep, None),
    }[operation]

    def ask() -> None:
        with suppress(requests.RequestException):
            app.agent.ask(method, path, json=json)

    return ask


@pytest.fixture
def rng() -> random.Random:
    """Return the source of the moments; its seed is printed."""
    seed = os.environ.get("ROLLCALL_SEED") or secrets.token_hex(4)
    LOG.warning("ROLLCALL_SEED=%s", seed)
    return random.Random(seed)


@pytest.fixture
def app(
    daemons: Daemons, engine_url: str, docker_client: docker.APIClient
) -> Iterator[ObservedApp]:
    """Yield an app that an agent of its own is to have."""
    settings = {"bind": "127.0.0.1", "stop_seconds": 1}
    observed = ObservedApp(daemons.agent(engine=engine_url, apps=settings), docker_client)
    yield observed
    observed.delete()


@pytest.mark.release("kills at random moments, beside those at each call")
def test_a_kill_at_any_moment_leaves_one_container_or_none_and_the_data(
    app: ObservedApp, busybox_image: str, rng: random.Random
) -> None:
    names = list(OPERATIONS)
    for round_ in range(KILLS):
        operation = names[round_ % len(names)]
        prepare(app, operation, busybox_image)
        delay = rng.uniform(0, OPERATIONS[operation])

        request = threading.Thread(target=request_of(app, operation, busybox_image, rng))
        request.start()
        threading.Event().wait(delay)  # the moment is what is tested
        app.agent.kill()
        request.join()
        app.agent.start()

        LOG.warning("%d: %s killed after %.3f s", round_, operation, delay)
        app.check()
