"""Listening sockets that systemd hands over, each test with real ones."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import pytest
import structlog

from httpd.metrics import RequestMetrics, new_metrics
from httpd.server.listener import ListenError, serving
from httpd.systemd.service import OWN_PREFIX, SystemdNotifier, SystemdSockets, UnwantedSocket
from tests.support.httpd.lane_server import LaneApi, lane_app
from tests.support.httpd.notify_socket import NotifySocket
from tests.support.httpd.sample_server import sample_server

UNIT = "rollcall-registry.socket"


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[NotifySocket]:
    """Yield the socket at which systemd listens."""
    with NotifySocket(tmp_path / "notify") as listening:
        yield listening


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Yield what closes the sockets of a test."""
    with ExitStack() as stack:
        yield stack


def bound(stack: ExitStack, host: str = "127.0.0.1", *, both_versions: bool = False) -> int:
    """Return the descriptor of a socket that listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.create_server((host, 0), family=family, dualstack_ipv6=both_versions)
    return stack.enter_context(made).fileno()


def handed_over(systemd: NotifySocket, sockets: Sequence[tuple[str, int]]) -> SystemdSockets:
    """Return what a process finds to which systemd hands copies of these sockets, with names."""
    first = _consecutive([descriptor for _, descriptor in sockets])
    environ = {
        "LISTEN_PID": str(os.getpid()),
        "LISTEN_FDS": str(len(sockets)),
        "LISTEN_FDNAMES": ":".join(name for name, _ in sockets),
    }
    return SystemdSockets(
        environ=environ, notifier=SystemdNotifier(systemd.environ), first_descriptor=first
    )


def _consecutive(descriptors: Sequence[int]) -> int:
    """Copy descriptors to numbers that follow each other; return the first."""
    first = max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 10
    for number, descriptor in enumerate(descriptors, first):
        os.dup2(descriptor, number)
    return first


def address_of(descriptor: int) -> tuple[str, int]:
    with socket.socket(fileno=os.dup(descriptor)) as same:
        host, port = same.getsockname()[:2]
        return host, port


async def test_connections_wait_from_one_run_to_the_next(
    systemd: NotifySocket, stack: ExitStack
) -> None:
    first_run = SystemdSockets(environ={}, notifier=SystemdNotifier(systemd.environ))
    async with sample_server(systemd=first_run) as (host, port):
        message, descriptors = systemd.next_with_descriptors()
    stack.callback(os.close, descriptors[0])
    name = f"listen-{host}-{port}"
    assert message == f"FDSTORE=1\nFDNAME={name}"

    # Nobody runs, and yet it is not rejected.
    waiting = stack.enter_context(socket.create_connection((host, port)))
    waiting.setblocking(False)
    next_run = handed_over(systemd, [(name, descriptors[0])])
    async with (
        sample_server(port=port, systemd=next_run),
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}/healthz") as response,
    ):
        assert response.status == 200
        assert systemd.is_silent(), "it is kept already"


@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_listener_shows_whether_connections_may_have_waited(
    systemd: NotifySocket, stack: ExitStack, *, is_kept: bool
) -> None:
    kept = bound(stack)
    address = address_of(kept) if is_kept else ("127.0.0.1", 0)
    request_metrics = RequestMetrics(new_metrics())
    async with serving(
        lane_app(LaneApi(), request_metrics, structlog.get_logger()),
        tls=None,
        metrics=request_metrics,
        max_connections=10,
        drain_seconds=1.0,
        log=structlog.get_logger(),
        systemd=handed_over(systemd, [("x.socket", kept)] if is_kept else []),
    ) as listener:
        await listener.start(address)

        assert listener.has_kept_socket == is_kept


def test_a_kept_socket_is_closed_for_good_once_listen_is_another(
    systemd: NotifySocket, stack: ExitStack
) -> None:
    kept, wanted = bound(stack), bound(stack)
    name = f"{OWN_PREFIX}x"
    sockets = handed_over(systemd, [(name, kept), (name, wanted)])

    found = sockets.take([address_of(wanted)])

    assert list(found) == [address_of(wanted)]
    assert systemd.next() == f"FDSTOREREMOVE=1\nFDNAME={name}"
    for each in found.values():
        each.close()


def test_a_kept_socket_does_not_keep_its_port_from_another_host(
    systemd: NotifySocket, stack: ExitStack
) -> None:
    kept = bound(stack, "127.0.0.2")  # it stays open, as in systemd until it reads the message
    port = address_of(kept)[1]
    sockets = handed_over(systemd, [(f"{OWN_PREFIX}x", kept)])

    assert sockets.take([]) == {}

    stack.enter_context(socket.create_server(("0.0.0.0", port)))


def test_a_kept_socket_that_does_not_listen_any_more_is_closed(
    systemd: NotifySocket, stack: ExitStack
) -> None:
    kept = bound(stack)
    for _ in range(2):
        sockets = handed_over(systemd, [(f"{OWN_PREFIX}x", kept)])
        assert sockets.take([]) == {}
        assert systemd.next() == f"FDSTOREREMOVE=1\nFDNAME={OWN_PREFIX}x"


@pytest.mark.parametrize(
    ("host", "both_versions", "described"),
    [
        ("127.0.0.1", False, "127.0.0.1:"),
        ("::1", False, r"\[::1\]:"),
        ("::", True, r"\[::\]:.* for IPv4 as well \(it lacks `BindIPv6Only=ipv6-only`\)"),
    ],
)
def test_a_socket_of_a_unit_that_differs_is_rejected(
    systemd: NotifySocket, stack: ExitStack, *, host: str, both_versions: bool, described: str
) -> None:
    other, wanted = bound(stack, host, both_versions=both_versions), bound(stack)
    addresses = [address_of(wanted)]
    if both_versions:
        addresses.append(address_of(other))
    sockets = handed_over(systemd, [(UNIT, other), (UNIT, wanted)])

    with pytest.raises(UnwantedSocket, match=f"^{UNIT} has {described}"):
        sockets.take(addresses)


def test_what_does_not_listen_on_tcp_is_rejected(systemd: NotifySocket, stack: ExitStack) -> None:
    datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    datagrams.bind(("127.0.0.1", 0))
    unix, peer = socket.socketpair()
    stack.enter_context(unix)
    stack.enter_context(peer)
    sockets = handed_over(systemd, [(UNIT, datagrams.fileno()), ("", unix.fileno())])

    with pytest.raises(UnwantedSocket, match=f"{UNIT} has a socket that is not of TCP, port .*; a"):
        sockets.take([address_of(datagrams.fileno())])


def test_what_another_process_was_handed_is_left_alone(systemd: NotifySocket) -> None:
    environ = {"LISTEN_PID": str(os.getpid() + 1), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x"}
    sockets = SystemdSockets(environ=environ, notifier=SystemdNotifier(systemd.environ))

    assert sockets.take([("127.0.0.1", 1)]) == {}


async def test_the_start_fails_with_what_differs(systemd: NotifySocket, stack: ExitStack) -> None:
    other = bound(stack)
    port = address_of(other)[1]
    sockets = handed_over(systemd, [(UNIT, other)])

    with pytest.raises(ListenError, match=f"{UNIT} has 127.0.0.1:{port}, but `listen` is 127.0"):
        async with sample_server(systemd=sockets):
            pass
