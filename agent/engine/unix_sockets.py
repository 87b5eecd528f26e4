"""docker-py's way to a Unix socket, which here leaves none behind where nobody answers."""

import socket
from typing import Any, cast

from docker.transport.unixconn import (
    UnixHTTPAdapter,
    UnixHTTPConnection,
    UnixHTTPConnectionPool,
)


class _Connection(UnixHTTPConnection):
    def connect(self) -> None:
        # Known before it is connected, so that urllib3 closes it where that fails.
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.unix_socket)


class _Pool(UnixHTTPConnectionPool):
    def _new_conn(self) -> Any:
        return _Connection(self.base_url, self.socket_path, cast("int", self.timeout))


class UnixAdapter(UnixHTTPAdapter):
    """What requests goes through, for a client of docker-py."""

    def get_connection(self, url: bytes | str, proxies: Any = None) -> UnixHTTPConnectionPool:
        """Give the pool of connections for a URL."""
        with self.pools.lock:
            pool = self.pools.get(url)
            if pool is None:
                pool = self.pools[url] = _Pool(str(url), self.socket_path, self.timeout)
        return cast("UnixHTTPConnectionPool", pool)
