import asyncio
import os
import signal
import socket
from pathlib import Path

import structlog

from httpd.process import SignalHandler, SystemdNotifier


class Journal:
    """Stands where systemd listens."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(10)

    def next(self) -> str:
        """Return the next state."""
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
