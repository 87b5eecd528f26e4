"""Asking the engine for JSON, where docker-py and requests would take longer than the engine."""

import socket
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any

import msgspec

from agent.engine.translation import refusal


class PlainHttp:
    """One kept connection to the engine's socket, for one thread at a time."""

    def __init__(self, path: str) -> None:
        self._connection = _UnixConnection(path)

    def get(self, path: str, *, seconds: float) -> Any:
        """Give the JSON at a path, which begins with the version; each wait is that long at most.

        Raises:
            EngineError: the engine refused.
            OSError, HTTPException: the engine is away, or does not answer in time.

        """
        kept = self._connection.sock is not None
        try:
            return self._get(path, seconds)
        except ConnectionError:
            # An engine that was restarted has dropped the connection; that tells nothing yet.
            if not kept:
                raise
            return self._get(path, seconds)

    def _get(self, path: str, seconds: float) -> Any:
        connection = self._connection
        connection.timeout = seconds
        if connection.sock is not None:
            connection.sock.settimeout(seconds)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            content = msgspec.json.decode(response.read())
        except BaseException:
            connection.close()
            raise
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise refusal(str(content["message"]), response.status)
        return content

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("docker")
        self._path = path

    def connect(self) -> None:
        """Connect; no socket is left behind where that fails."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(self.timeout)
        try:
            connection.connect(self._path)
        except OSError:
            connection.close()
            raise
        self.sock = connection
