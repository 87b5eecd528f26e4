"""A cable leaves no connection behind, whatever it passes when it ends."""

import gc
import socket
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus

import pytest
import requests

from tests.support.machine.ports import FreePorts
from tests.support.registry.cut_off import BAD_GATEWAY, Cable

pytestmark = pytest.mark.slow

MORE_THAN_THE_SYSTEM_BUFFERS = bytes(16 * 1024 * 1024)
NO_ANSWER_SECONDS = 30


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Yield a server that accepts connections and reads nothing by itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def cable(server: socket.socket) -> Cable:
    return Cable(FreePorts()(), server.getsockname()[1])


def connect(cable: Cable) -> socket.socket:
    return socket.create_connection(("127.0.0.1", cable.port), NO_ANSWER_SECONDS)


def close_all_and_collect(*connections: socket.socket) -> None:
    for connection in connections:
        connection.close()
    gc.collect()  # a connection that stayed open is a warning, and so an error


def test_an_idle_connection_is_closed(cable: Cable, server: socket.socket) -> None:
    with cable:
        client = connect(cable)
        far, _ = server.accept()
        client.sendall(b"question")
        assert far.recv(8) == b"question"
    assert client.recv(1) == far.recv(1) == b""
    close_all_and_collect(client, far)


def test_a_request_to_a_server_that_is_gone_is_answered_by_the_load_balancer() -> None:
    free_port = FreePorts()
    with Cable(free_port(), free_port(), rejection=BAD_GATEWAY) as balancer:
        answer = requests.post(f"http://127.0.0.1:{balancer.port}/", json={}, timeout=30)
    assert (answer.status_code, answer.json()) == (HTTPStatus.BAD_GATEWAY, {})


def test_a_connection_that_waits_for_the_cable_is_closed(cable: Cable) -> None:
    with cable:
        cable.cut()
        client = connect(cable)
        client.sendall(b"question")
    close_all_and_collect(client)


def test_a_connection_whose_other_side_does_not_read_is_closed(
    cable: Cable, server: socket.socket
) -> None:
    with cable:
        client = connect(cable)
        far, _ = server.accept()
        client.settimeout(0.2)
        with suppress(TimeoutError):
            client.sendall(MORE_THAN_THE_SYSTEM_BUFFERS)
    close_all_and_collect(client, far)
