import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import structlog

from httpd.process import SignalHandler, extending_start, run_to_end
from httpd.systemd.service import SystemdNotifier
from tests.support.httpd.notify_socket import NotifySocket

THREAD_THAT_WAITS = """
import sys
from threading import Event, Thread
from httpd.process import exit_without_threads
Thread(target=Event().wait).start()
print("all is written")
exit_without_threads(3)
"""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Yield what closes the sockets of a test."""
    with ExitStack() as stack:
        yield stack


async def test_systemd_hears_of_the_start_a_reload_and_the_end(
    stack: ExitStack, tmp_path: Path
) -> None:
    systemd = stack.enter_context(NotifySocket(tmp_path / "notify"))
    signals = SignalHandler(notifier=SystemdNotifier(systemd.environ), log=structlog.get_logger())
    reloads: list[str] = []

    async def reload() -> None:
        reloads.append("again")

    running = asyncio.create_task(signals.run_until_stopped(reload))

    async def state() -> str:
        return (await asyncio.to_thread(systemd.next)).partition("\n")[0]

    assert await state() == "READY=1"
    os.kill(os.getpid(), signal.SIGHUP)
    assert await state() == "RELOADING=1"
    assert await state() == "READY=1"
    assert reloads == ["again"]
    os.kill(os.getpid(), signal.SIGTERM)
    assert await state() == "STOPPING=1"
    await running


async def test_a_failed_reload_ends_nothing() -> None:
    signals = SignalHandler(notifier=SystemdNotifier({}), log=structlog.get_logger())
    failed = asyncio.Event()

    async def reload() -> None:
        failed.set()
        raise OSError("keys cannot be read")

    running = asyncio.create_task(signals.run_until_stopped(reload))
    os.kill(os.getpid(), signal.SIGHUP)
    await failed.wait()
    assert not running.done()
    os.kill(os.getpid(), signal.SIGINT)
    await running


async def test_the_watchdog_is_fed(stack: ExitStack, tmp_path: Path) -> None:
    systemd = stack.enter_context(NotifySocket(tmp_path / "notify"))
    environ = {**systemd.environ, "WATCHDOG_USEC": "30000"}
    signals = SignalHandler(notifier=SystemdNotifier(environ), log=structlog.get_logger())
    running = asyncio.create_task(signals.run_until_stopped(lambda: asyncio.sleep(0)))
    states = [await asyncio.to_thread(systemd.next) for _ in range(4)]
    assert states[1:] == ["WATCHDOG=1"] * 3
    os.kill(os.getpid(), signal.SIGTERM)
    await running


async def test_systemd_is_reported_again_and_again_to_wait_for_a_start(
    stack: ExitStack, tmp_path: Path
) -> None:
    systemd = stack.enter_context(NotifySocket(tmp_path / "notify"))
    notifier = SystemdNotifier(systemd.environ)

    async with extending_start(notifier, structlog.get_logger(), seconds=0.03):
        states = [await asyncio.to_thread(systemd.next) for _ in range(3)]

    assert states == ["EXTEND_TIMEOUT_USEC=30000"] * 3


def test_the_end_of_a_daemon_waits_for_no_thread() -> None:
    released, ended = threading.Event(), threading.Event()

    def look_up_a_name() -> None:
        released.wait(10)
        ended.set()

    async def daemon() -> None:
        _ = asyncio.get_running_loop().run_in_executor(None, look_up_a_name)

    run_to_end(daemon())

    assert not ended.is_set()
    released.set()
    assert ended.wait(10)


def test_names_that_nobody_resolves_delay_no_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    released, was_asked, asked = threading.Event(), threading.Event(), list[str]()

    def silent(host: str, *_: object, **__: object) -> None:
        asked.append(host)
        was_asked.set()
        released.wait(10)
        raise socket.gaierror("no answer")

    async def daemon() -> None:
        getaddrinfo = asyncio.get_running_loop().getaddrinfo
        names = [f"r{number}.example" for number in range(40)]
        lookups = [asyncio.create_task(getaddrinfo(name, 80)) for name in names * 3]
        abandoned = asyncio.create_task(getaddrinfo("r0.example", 80))
        try:
            async with asyncio.timeout(5):
                assert await asyncio.to_thread(was_asked.wait, 5)
                abandoned.cancel()
                assert await asyncio.to_thread(len, "work") == 4
        finally:
            released.set()
        failures = await asyncio.gather(*lookups, return_exceptions=True)
        assert {type(failure) for failure in failures} == {socket.gaierror}
        assert sorted(asked) == sorted(names)

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    run_to_end(daemon())


def test_a_daemon_finds_names_and_addresses() -> None:
    async def daemon() -> None:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
        assert ("127.0.0.1", 80) in [address for *_, address in found]
        numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
        assert await loop.getnameinfo(("127.0.0.1", 80), numeric) == ("127.0.0.1", "80")

    run_to_end(daemon())


@pytest.mark.slow
def test_a_process_ends_though_a_thread_of_it_waits() -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREAD_THAT_WAITS], stdout=subprocess.PIPE, timeout=60, check=False
    )

    assert (done.returncode, done.stdout) == (3, b"all is written\n")
