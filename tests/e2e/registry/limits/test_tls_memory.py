import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.daemons import Daemon, Daemons, TlsOptions

pytestmark = pytest.mark.real
HOSTS = 300
MIB = 1024


def memory_kib(daemon: Daemon) -> int:
    """Return the memory that a daemon has now."""
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


@pytest.mark.release("memory of many clients")
@pytest.mark.console_script
@pytest.mark.parametrize("kind", ["registry", "agent"])
def test_a_connected_client_costs_little_memory_over_tls_too(
    daemons: Daemons, tmp_path: Path, kind: str
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("127.0.0.1")
    files = {"certificate": str(pair.certificate), "key": str(pair.key)}
    trust: TlsOptions = (str(authority.ca), None)
    start = daemons.registry if kind == "registry" else daemons.agent
    daemon = start(tls=files, trust=trust)
    address = ("127.0.0.1", int(daemon.base_url.rpartition(":")[2]))
    context = ssl.create_default_context(cafile=authority.ca)
    before = memory_kib(daemon)

    with ExitStack() as stack:
        for _ in range(HOSTS):
            plain = stack.enter_context(socket.create_connection(address, 10))
            host = stack.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1"))
            host.sendall(b"GET /healthz HTTP/1.1\r\nHost: daemon\r\n\r\n")
            assert host.recv(1024).startswith(b"HTTP/1.1 ")
        grown = memory_kib(daemon) - before

    # The sum for MemoryMax of the units counts half of that: Python gives back memory late.
    assert grown < HOSTS * MIB / 10
