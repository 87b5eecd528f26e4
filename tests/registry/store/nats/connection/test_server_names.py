"""Names of NATS servers that are looked up, by a DNS server that may be silent."""

import asyncio
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from registry.store.nats.link import Names, NoConnection, connected, look_up
from registry.store.options import NatsLogin
from tests.support.registry.nats.servers import NatsCluster


class SilentDns:
    """Looks up names for as long as it is silent. `asked` are the names it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.speak = threading.Event()

    def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        self.speak.wait()
        return [f"address of {host}"]


async def test_a_name_is_looked_up_once_however_often_it_is_asked_for_meanwhile() -> None:
    dns = SilentDns()
    names = Names(look_up=dns)
    asking = [asyncio.create_task(names.addresses(host)) for host in ("a", "a", "b", "a")]
    try:
        await asyncio.sleep(0)
        asking[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking[0]
        asking.append(asyncio.create_task(names.addresses("a")))
        await asyncio.sleep(0)
    finally:
        dns.speak.set()

    assert await asyncio.gather(*asking[1:]) == [[f"address of {one}"] for one in "abaa"]
    assert sorted(dns.asked) == ["a", "b"]
    assert await names.addresses("a") == ["address of a"]
    assert sorted(dns.asked) == ["a", "a", "b"]


LOOK_UP_WITHOUT_END = """
import asyncio
import threading
from registry.store.nats.link import Names

async def look_up():
    names = Names(look_up=lambda host: threading.Event().wait())
    looking = asyncio.ensure_future(names.addresses("a"))
    await asyncio.sleep(0)
    looking.cancel()

asyncio.run(look_up())
print("done")
"""


@pytest.mark.slow
def test_a_process_ends_though_a_name_is_still_being_looked_up() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK_UP_WITHOUT_END], stdout=subprocess.PIPE, timeout=60, check=False
    )

    assert (done.returncode, done.stdout) == (0, b"done\n")


async def test_what_a_look_up_raises_is_raised_to_each_who_waits() -> None:
    def fail(host: str) -> list[str]:
        raise OSError(f"{host} is unknown")

    names = Names(look_up=fail)
    for error in await asyncio.gather(
        names.addresses("a"), names.addresses("a"), return_exceptions=True
    ):
        assert isinstance(error, OSError)
        assert str(error) == "a is unknown"


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b", "a" * 64])
async def test_what_is_no_name_of_a_server_is_said(host: str) -> None:
    with pytest.raises(NoConnection, match=re.escape(f"nats://{host}:4222: ")) as raised:
        async with connected([f"nats://{host}:4222"], NatsLogin()):
            pass
    assert "no NATS server" not in str(raised.value)


def test_the_addresses_of_a_host_are_named_once_each() -> None:
    assert look_up("127.0.0.1") == ["127.0.0.1"]


@pytest.mark.real
async def test_a_server_is_connected_to_while_all_threads_of_the_loop_wait(
    server: NatsCluster,
) -> None:
    loop, release = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
    waiting = loop.run_in_executor(None, release.wait)
    try:
        url = f"nats://localhost:{server.servers[0].port}"
        async with connected([url], NatsLogin()) as link:
            assert not link.lost.is_set()
    finally:
        release.set()
        await waiting
