"""A machine beside the host of an engine: a network namespace with a page on a port."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dev.images import find_static_busybox
from tests.support.agent.engines.dockerd import Dockerd

HOST, NEIGHBOUR, PORT = "198.51.100.1", "198.51.100.2", 8080
HOST_IPV6, NEIGHBOUR_IPV6 = "2001:db8:5e::1", "2001:db8:5e::2"
COMMAND_SECONDS = 30
# The kernel accepts a connection at once; on a busy machine, the answer may take longer.
FETCH = ["curl", "--silent", "--globoff", "--noproxy", "*", "--connect-timeout", "2"]
FETCH += ["--max-time", "22"]


class Neighbour:
    """Knows the ``host`` by its address; its own page is at ``page``. Both have IPv6, too."""

    host = HOST
    host_ipv6 = f"[{HOST_IPV6}]"
    page = f"{NEIGHBOUR}:{PORT}"
    page_ipv6 = f"[{NEIGHBOUR_IPV6}]:{PORT}"

    def __init__(self, pid: int) -> None:
        self._inside = ["nsenter", f"--net=/proc/{pid}/ns/net"]

    def command(self, *words: str) -> list[str]:
        """Return the words that run a command there."""
        return [*self._inside, *words]


def fetch(prefix: Sequence[str], where: str) -> str:
    """Return the page that is at HOST:PORT for a command behind ``prefix``, "" if there is none."""
    done = subprocess.run(
        [*prefix, *FETCH, f"http://{where}/"],
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_SECONDS,
    )
    return done.stdout


@contextmanager
def neighbour(engine: Dockerd, folder: Path) -> Iterator[Neighbour]:
    """Put a machine on the wire of the engine's host; its page says "outside"."""
    (folder / "index.html").write_text("outside")
    up = "ip link set lo up && echo up && exec sleep infinity"
    namespace = subprocess.Popen(["unshare", "--net", "sh", "-c", up], stdout=subprocess.PIPE)
    server: subprocess.Popen[bytes] | None = None
    try:
        assert namespace.stdout is not None
        namespace.stdout.readline()
        there = Neighbour(namespace.pid)
        _run(engine.inside(), f"ip link add wire type veth peer name wire netns {namespace.pid}")
        for prefix, address, ipv6 in (
            (engine.inside(), HOST, HOST_IPV6),
            (there.command(), NEIGHBOUR, NEIGHBOUR_IPV6),
        ):
            _run(prefix, f"ip address add {address}/24 dev wire")
            _run(prefix, f"ip -6 address add {ipv6}/64 dev wire nodad")
            _run(prefix, "ip link set wire up")
        busybox = str(find_static_busybox())
        server = subprocess.Popen(
            there.command(busybox, "httpd", "-f", "-p", str(PORT), "-h", str(folder))
        )
        yield there
    finally:
        for process in filter(None, (server, namespace)):
            process.kill()
            process.communicate()


def _run(prefix: Sequence[str], command: str) -> None:
    subprocess.run([*prefix, *command.split()], check=True, timeout=COMMAND_SECONDS)
