"""Asking what answers at a socket, where docker-py would leave one behind if nobody does."""

import socket
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any

import msgspec

from agent.engine.translation import refusal


def ask(socket_path: str, path: str, *, seconds: float) -> Any:
    """Give the JSON at a path; each wait is that long at most.

    Raises:
        EngineError: the engine refused.
        OSError, HTTPException: the engine is away, or does not answer in time.

    """
    with closing(_UnixConnection(socket_path, seconds)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        content = msgspec.json.decode(response.read())
    if response.status >= HTTPStatus.BAD_REQUEST:
        raise refusal(str(content["message"]), response.status)
    return content


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("docker", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        """Connect; close() takes the socket away also where that fails."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
