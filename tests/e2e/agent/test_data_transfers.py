"""Data of apps out and in, through an agent as a process: kills, stops, memory.

``ROLLCALL_DATA_MIB=5120`` asks for more data than a test run takes.
"""

import hashlib
import logging
import os
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest

from dev.waiting import until
from tests.support.agent.containers import run_in_container
from tests.support.agent.kills.observed_app import ObservedApp
from tests.support.daemons import Daemons
from tests.support.machine.memory import MEBIBYTE, peak, reset_peak, resident

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

LOG = logging.getLogger(__name__)
DATA_MIB = int(os.environ.get("ROLLCALL_DATA_MIB", "300"))
BEYOND_BUFFERS_MIB = 48  # what is not sent while nobody reads
MAX_GROWTH = 20 * MEBIBYTE
CHUNK = 1 << 20
STALL_SECONDS = 60.0


@pytest.fixture
def data_mib() -> int:
    """Return how much data the app has."""
    return BEYOND_BUFFERS_MIB


@pytest.fixture
def app(
    daemons: Daemons,
    engine_url: str,
    docker_client: docker.APIClient,
    busybox_image: str,
    data_mib: int,
) -> Iterator[ObservedApp]:
    """Yield an app that an agent of its own has, with a large file of random bytes."""
    settings = {"bind": "127.0.0.1", "stop_seconds": 1}
    observed = ObservedApp(daemons.agent(engine=engine_url, apps=settings), docker_client)
    # What is written counts for the memory of the app where the engine keeps it in memory.
    body = {"name": observed.name, "image": busybox_image, "memory": data_mib + 64}
    created = observed.agent.ask("POST", "/v1/apps", json=body)
    assert created.status_code == 201, created.text
    random = f"busybox dd if=/dev/urandom of=/srv/large bs=1M count={data_mib}"
    run_in_container(docker_client, created.json(), random)
    yield observed
    observed.delete()


def until_state(app: ObservedApp, state: str) -> None:
    """Wait until the app is in a state, and nothing is done to it."""

    def reached() -> bool:
        record = app.record()
        assert record is not None
        return record["state"] == state and record["progress"] is None

    until(reached, state, within=STALL_SECONDS)


def begin_reading(app: ObservedApp) -> Iterator[bytes]:
    """Begin to read the data of a paused app; return the rest, which nobody reads yet."""
    answer = app.agent.ask("GET", f"{app.path}/data?pause=true", stream=True)
    assert answer.ok, answer.text
    chunks: Iterator[bytes] = answer.iter_content(CHUNK)
    assert len(next(chunks)) > 0
    record = app.record()
    assert record is not None
    assert record["state"] == "paused"
    return chunks


def test_an_app_that_was_paused_goes_on_after_the_agent_was_killed(app: ObservedApp) -> None:
    rest = begin_reading(app)
    app.agent.kill()
    assert len(app.readers()) == 1
    del rest

    app.agent.start()

    until_state(app, "running")
    until(lambda: app.readers() == [], "the sweep", within=STALL_SECONDS)


def test_an_agent_that_is_stopped_while_it_sends_lets_the_app_go_on_and_ends(
    app: ObservedApp,
) -> None:
    rest = begin_reading(app)

    assert app.agent.terminate() == 0

    assert app.readers() == []
    (container,) = app.containers()
    assert container["State"] == "running"
    del rest


def test_an_agent_that_is_stopped_while_it_receives_undoes_that_and_ends(app: ObservedApp) -> None:
    before = app.agent.ask("PUT", f"{app.path}/stop").json()
    with closing(socket.create_connection(("127.0.0.1", int(app.agent.base_url[-5:])))) as client:
        head = f"PUT {app.path}/data HTTP/1.1\r\nHost: x\r\nAuthorization: {app.agent.key}\r\n"
        client.sendall(f"{head}Content-Length: 1000000000\r\n\r\n".encode())
        file = tarfile.TarInfo("srv/file")
        file.size = 900_000_000
        client.sendall(file.tobuf())
        until(lambda: len(app.containers()) == 2, "the container to fill", within=STALL_SECONDS)

        assert app.agent.terminate() == 0

    app.agent.start()
    app.settled()
    assert app.record() == before
    assert [each["Id"] for each in app.containers()] == [before["container_id"]]
    assert app.volumes() == before["volumes"]


@pytest.mark.release("measures memory over some 300 MiB")
@pytest.mark.console_script
@pytest.mark.parametrize("data_mib", [DATA_MIB])
def test_large_data_passes_both_ways_in_little_memory(app: ObservedApp) -> None:
    daemon = app.agent
    url, file = f"{daemon.base_url}{app.path}/data", daemon.log_path.with_name("data.tar")

    def curl(*arguments: str | Path) -> int:
        """Run curl; return the bytes by which the agent's memory grew meanwhile, at most."""
        before, begun = resident(daemon), time.monotonic()
        reset_peak(daemon)
        key = f"Authorization: Bearer {daemon.key}"
        subprocess.run(
            ["curl", "-sS", "--fail-with-body", "-H", key, *arguments, url],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        grown, seconds = peak(daemon) - before, time.monotonic() - begun
        LOG.warning("curl %s: %.0f s, %.1f MiB", arguments[0], seconds, grown / MEBIBYTE)
        return grown

    grown_by_reading = curl("-o", file)
    assert file.stat().st_size > DATA_MIB * MEBIBYTE
    assert daemon.ask("PUT", f"{app.path}/stop").ok
    grown_by_filling = curl("-T", file)

    assert grown_by_reading < MAX_GROWTH
    assert grown_by_filling < MAX_GROWTH
    again = file.with_name("again.tar")
    assert curl("--limit-rate", "200M", "-o", again) < MAX_GROWTH
    with file.open("rb") as one, again.open("rb") as other:
        assert hashlib.file_digest(one, "sha256").digest() == (
            hashlib.file_digest(other, "sha256").digest()
        )
