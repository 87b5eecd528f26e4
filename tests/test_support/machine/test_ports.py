"""Ports for the servers of tests."""

import socket

import pytest

from tests.support.machine.ports import PORTS, FreePorts


def test_no_port_is_found_twice() -> None:
    find = FreePorts()
    found = [find() for _ in range(len(PORTS) // 2)]
    assert len(set(found)) == len(found)


@pytest.mark.slow
def test_no_port_is_found_on_which_a_server_listens() -> None:
    find = FreePorts()
    port = find()
    with socket.create_server(("127.0.0.1", port)):
        assert port not in {find() for _ in range(len(PORTS) - 1)}
