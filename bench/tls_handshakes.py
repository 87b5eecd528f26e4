"""Overloads a registry with TLS handshakes of clients that give up after a while.

Each client connects, sends its hello and waits for the registry's, which costs the registry the
most: its certificate has a key of 4,096 bits here, so that its core is busy long before this
program's. Prints how many were served in time. All traffic stays on 127.0.0.1.

    python bench/tls_handshakes.py --rate 300 --patience 2 --seconds 20
"""

import argparse
import select
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa

sys.path.insert(0, str(Path(__file__).parents[1]))

from clients.tls import client_context
from tests.support.certificates import Authority
from tests.support.daemons import Daemon

REPORT_SECONDS = 2.0
POLL_SECONDS = 0.002


@dataclass
class Counts:
    """Counts of clients since the last line of output."""

    gave_up: int = 0
    rejected: int = 0
    waits: list[float] = field(default_factory=list)

    def line(self, seconds: float, waiting: int) -> str:
        """Return a line of output, with the counts as rates per second."""
        middle = statistics.median(self.waits) if self.waits else float("nan")
        rates = [each / seconds for each in (len(self.waits), self.gave_up, self.rejected)]
        said = "served {:6.0f}/s   gave up {:6.0f}/s   rejected {:4.0f}/s".format(*rates)
        return f"{said}   waiting {waiting:5d}   median {middle:.3f} s"


class ImpatientClients:
    """Clients that arrive at a rate; each gives up after ``patience`` seconds."""

    def __init__(self, address: tuple[str, int], *, hello: bytes, patience: float) -> None:
        self._address = address
        self._hello = hello
        self._patience = patience
        self._poll = select.epoll()
        self._clients: dict[int, tuple[socket.socket, float]] = {}
        self._arrivals: deque[tuple[int, float]] = deque()
        self.counts = Counts()

    def __len__(self) -> int:
        return len(self._clients)

    def arrive(self, now: float) -> None:
        """Connect one more client."""
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(self._address)
        self._clients[client.fileno()] = client, now
        self._arrivals.append((client.fileno(), now))
        self._poll.register(client, select.EPOLLOUT)

    def give_up(self, now: float) -> None:
        """Close the clients that have waited too long."""
        while self._arrivals and self._arrivals[0][1] < now - self._patience:
            number, since = self._arrivals.popleft()
            if self._clients.get(number, (None, None))[1] == since:
                self._leave(number)
                self.counts.gave_up += 1

    def process_events(self) -> None:
        """Send the hello on new connections, and count the clients that got an answer."""
        for number, what in self._poll.poll(POLL_SECONDS):
            client, since = self._clients[number]
            if what == select.EPOLLOUT:
                client.send(self._hello)
                self._poll.modify(client, select.EPOLLIN)
                continue
            heard = b""
            with suppress(OSError):
                heard = client.recv(1)
            if heard:
                self.counts.waits.append(time.monotonic() - since)
            else:
                self.counts.rejected += 1
            self._leave(number)

    def close(self) -> None:
        """Close all clients."""
        for number in list(self._clients):
            self._leave(number)
        self._poll.close()

    def _leave(self, number: int) -> None:
        client, _ = self._clients.pop(number)
        self._poll.unregister(client)
        client.close()


def client_hello(ca: Path) -> bytes:
    """Return the bytes of a client's hello."""
    said = ssl.MemoryBIO()
    client = client_context(ca=ca).wrap_bio(ssl.MemoryBIO(), said, server_hostname="127.0.0.1")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return said.read()


def run(clients: ImpatientClients, *, rate: float, seconds: float) -> None:
    """Make clients arrive at the rate, and print a line every two seconds."""
    began = reported = time.monotonic()
    arrived = 0
    while (now := time.monotonic()) < began + seconds:
        while arrived < (now - began) * rate:
            clients.arrive(now)
            arrived += 1
        clients.give_up(now)
        clients.process_events()
        if now >= reported + REPORT_SECONDS:
            print(f"{now - began:5.1f} s  {clients.counts.line(now - reported, len(clients))}")
            reported, clients.counts = now, Counts()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=float, default=300, help="clients a second")
    parser.add_argument("--patience", type=float, default=2, help="of a client, in seconds")
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as free:
        folder = Path(name)
        port = free.getsockname()[1]
        free.close()
        authority = Authority(folder / "ca")
        pair = authority.issue("127.0.0.1", key=rsa.generate_private_key(65537, 4096))
        registry = Daemon(
            program="rollcall-registry",
            folder=folder / "registry",
            port=port,
            settings={"tls": {"certificate": str(pair.certificate), "key": str(pair.key)}},
            trust=(str(authority.ca), None),
        )
        registry.start()
        clients = ImpatientClients(
            ("127.0.0.1", port), hello=client_hello(authority.ca), patience=options.patience
        )
        try:
            run(clients, rate=options.rate, seconds=options.seconds)
        finally:
            clients.close()
            registry.close()


if __name__ == "__main__":
    main()
