"""Passwords are hashed one at a time, so that they leave time for everything else."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agent.apps.containers.passwords import Passwords
from tests.support.agent.apps.hosts import opened_host
from tests.support.agent.engines.fake_engine import FakeEngine


class CountingExecutor(ThreadPoolExecutor):
    """Threads, and how many of them worked at the same time at most."""

    def __init__(self) -> None:
        super().__init__(8)
        self.most = self._working = 0

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        self._working += 1
        self.most = max(self.most, self._working)
        submitted = super().submit(work, *arguments, **options)
        submitted.add_done_callback(self._ended)
        return submitted

    def _ended(self, _: Future[Any]) -> None:
        self._working -= 1


async def test_the_first_password_does_not_wait_for_the_last_one(tmp_path: Path) -> None:
    threads = CountingExecutor()
    async with opened_host(FakeEngine(), tmp_path) as host:
        asyncio.get_running_loop().set_default_executor(threads)
        passwords = Passwords(host.context)

        hashes = await asyncio.gather(*(passwords.hash("correct horse battery") for _ in range(4)))

    assert len(set(hashes)) == len(hashes)
    assert threads.most == 1
