import asyncio
import os
import signal
import socket
from pathlib import Path

import aiohttp
import pytest
import structlog

from httpd.process import SystemdNotifier
from httpd.server.listener import ListenError, SignalHandler
from tests.support.httpd.sample_server import WRITER, sample_server


class Journal:
    """Stands where systemd listens."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(10)

    def next(self) -> str:
        """Give the next state."""
        return self.socket.recv(4096).decode()


async def test_systemd_hears_of_the_start_a_reload_and_the_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "notify")
    notifier = SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    signals = SignalHandler(notifier=notifier, log=structlog.get_logger())
    reloads: list[str] = []
    running = asyncio.create_task(signals.run_until_stopped(lambda: reloads.append("again")))

    async def state() -> str:
        return (await asyncio.to_thread(journal.next)).partition("\n")[0]

    assert await state() == "READY=1"
    os.kill(os.getpid(), signal.SIGHUP)
    assert await state() == "RELOADING=1"
    assert await state() == "READY=1"
    assert reloads == ["again"]
    os.kill(os.getpid(), signal.SIGTERM)
    assert await state() == "STOPPING=1"
    await running
    journal.socket.close()


async def test_a_failed_reload_ends_nothing() -> None:
    signals = SignalHandler(notifier=SystemdNotifier({}), log=structlog.get_logger())
    failed = asyncio.Event()

    def reload() -> None:
        failed.set()
        raise OSError("keys cannot be read")

    running = asyncio.create_task(signals.run_until_stopped(reload))
    os.kill(os.getpid(), signal.SIGHUP)
    await failed.wait()
    assert not running.done()
    os.kill(os.getpid(), signal.SIGINT)
    await running


async def test_the_watchdog_is_fed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "notify")
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000"}
    signals = SignalHandler(notifier=SystemdNotifier(environ), log=structlog.get_logger())
    running = asyncio.create_task(signals.run_until_stopped(lambda: None))
    states = [await asyncio.to_thread(journal.next) for _ in range(4)]
    assert states[1:] == ["WATCHDOG=1"] * 3
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    journal.socket.close()


async def test_an_address_in_use_stops_the_start_with_its_name() -> None:
    async with sample_server() as (host, port):
        with pytest.raises(ListenError, match=f"cannot listen on {host}:{port}: Address already"):
            async with sample_server(port=port):
                pass


async def test_a_request_under_way_is_answered_before_the_end() -> None:
    async with sample_server() as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"GET /slow HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n\r\n".encode())
        assert await slow_requests(host, port) == 1
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_body_that_comes_after_the_end_began_is_still_taken() -> None:
    async with sample_server() as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        head = f"POST /slow HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n"
        writer.write(head.encode() + b"Content-Length: 4\r\n\r\nab")
        assert await slow_requests(host, port) == 1
        rest = asyncio.create_task(_when_refused(host, port, writer, b"cd"))
    await rest
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n4")
    writer.close()


async def _when_refused(host: str, port: int, writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write the data as soon as the daemon takes no connection any more."""
    while True:
        try:
            _, probe = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            break
        probe.close()
    writer.write(data)


async def slow_requests(host: str, port: int) -> int:
    """Wait until the slow request has begun."""
    async with aiohttp.ClientSession(headers={"Authorization": WRITER}) as session:
        while True:
            async with session.get(f"http://{host}:{port}/slow/begun") as response:
                begun: int = await response.json()
            if begun:
                return begun
