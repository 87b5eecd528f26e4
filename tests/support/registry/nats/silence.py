"""Servers that answer nothing: those that stand still, and those that a firewall hides."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

from tests.support.registry.nats.servers import NatsServer

FULL_AFTER_SECONDS = 0.2
MAX_WAITING = 10


@contextmanager
def frozen(server: NatsServer) -> Iterator[None]:
    """Freeze a server while the context is open: the kernel still makes connections to it."""
    server.stop()
    try:
        yield
    finally:
        server.resume()


@contextmanager
def hidden(server: NatsServer) -> Iterator[None]:
    """Drop whatever asks for a connection to a server while the context is open; it is away."""
    server.kill()
    ports = server.port, urlsplit(server.monitoring).port
    with ExitStack() as stack:
        for port in ports:
            assert port is not None
            stack.enter_context(_dropping(port))
        yield
    server.begin()
    server.wait()


@contextmanager
def _dropping(port: int) -> Iterator[None]:
    """Listen, without ever accepting: once the queue is full, the kernel drops what comes."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(0)
        for _ in range(MAX_WAITING):
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(FULL_AFTER_SECONDS)
            try:
                waiting.connect(("127.0.0.1", port))
            except TimeoutError:
                yield
                return
        raise AssertionError("the queue is never full")
