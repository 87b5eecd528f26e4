"""TCP ports for the servers of tests."""

import socket
from contextlib import suppress
from itertools import cycle
from random import SystemRandom

# The kernel takes the ports of outgoing connections from 32768 on. It could take that of a server
# which a test has ended, and is about to start again. Agents give apps ports from 20000 on, and
# browsers reject some up to 10080.
PORTS = range(11_000, 20_000)


class FreePorts:
    """Finds ports of 127.0.0.1 that nobody listens on; none twice before all others."""

    def __init__(self) -> None:
        self._candidates = cycle(SystemRandom().sample(PORTS, len(PORTS)))

    def __call__(self) -> int:
        """Return a port."""
        for port in self._candidates:
            with suppress(OSError), socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
                return port
        raise AssertionError("the candidates never end")
