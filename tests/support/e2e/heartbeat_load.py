"""A thousand heartbeats a second, sent on a host, which shows what became of them.

It runs by itself, with nothing but Python: ``heartbeat_load.py HOST PORT KEY FOLDER``. When FOLDER
has a file ``stop``, it sends what is due until then, and writes ``result.json`` there: for how many
seconds heartbeats were due, how many were sent, and how often each outcome was seen. While there is
a file ``pause``, it sends none, and removes the file once each that was sent is answered.
"""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TypeAlias

PER_SECOND = 1000
HOSTS = 1000
TICK_SECONDS = 0.01
# A busy machine may take long for a restart. More would not find room in the backlog of the socket.
MAX_WAITING = 3000
# Of ten heartbeats, so many have a connection of their own; the others share kept ones.
FRESH_OF_TEN = 2
Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class CutBeforeAnswerError(Exception):
    """The connection ended before the first byte of an answer."""


class Load:
    """Sends heartbeats, and counts their outcomes: a status, or why there is none."""

    def __init__(self, *, address: tuple[str, int], key: str) -> None:
        self._address = address
        self._key = key
        self._idle: list[Connection] = []
        self.outcomes: Counter[str] = Counter()
        self.sent = 0

    async def beat(self) -> None:
        """Send a heartbeat; repeat it once if it was cut before the first byte of an answer."""
        number, self.sent = self.sent, self.sent + 1
        fresh = number % 10 < FRESH_OF_TEN
        try:
            try:
                outcome = await self._ask(number, fresh=fresh)
            except CutBeforeAnswerError:
                self.outcomes["repeated"] += 1
                outcome = await self._ask(number, fresh=True)
        except (OSError, CutBeforeAnswerError, asyncio.IncompleteReadError) as error:
            outcome = type(error).__name__
        self.outcomes[outcome] += 1

    async def _ask(self, number: int, *, fresh: bool) -> str:
        connection = self._idle.pop() if self._idle and not fresh else await self._connect()
        reader, writer = connection
        body = json.dumps({"labels": ["service:load"], "kv": {"n": str(number // HOSTS)}})
        writer.write(
            f"POST /nodes/load-{number % HOSTS} HTTP/1.1\r\nHost: load\r\n"
            f"Authorization: Bearer {self._key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        try:
            first = await reader.read(1)
        except ConnectionError:
            first = b""
        if not first:
            writer.close()
            raise CutBeforeAnswerError
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        if fresh or b"connection: close" in head.lower():
            writer.close()
        else:
            self._idle.append(connection)
        return head.split()[1].decode()

    async def _connect(self) -> Connection:
        return await asyncio.open_connection(*self._address)

    def close(self) -> None:
        """Close the kept connections."""
        for _, writer in self._idle:
            writer.close()


async def send_until_stopped(load: Load, folder: Path) -> float:
    """Send heartbeats at the rate, whatever becomes of them, and wait for the last answer.

    What a busy machine could not send in time is sent later. Return the seconds until the stop.
    """
    loop = asyncio.get_running_loop()
    began, tasks = loop.time(), set[asyncio.Task[None]]()
    seconds, stopped = 0.0, False
    while not stopped or load.sent < int(seconds * PER_SECOND):
        if not stopped:
            stopped, seconds = (folder / "stop").exists(), loop.time() - began
        due = int(seconds * PER_SECOND) - load.sent
        pause = folder / "pause"
        for _ in range(0 if pause.exists() else min(due, MAX_WAITING - len(tasks))):
            task = asyncio.create_task(load.beat())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            await asyncio.sleep(0)
        if not tasks:
            pause.unlink(missing_ok=True)
        (folder / "begun").touch()
        await asyncio.sleep(TICK_SECONDS)
    if tasks:
        await asyncio.wait(tasks)
    load.close()
    return seconds


def main(host: str, port: str, key: str, folder: str) -> None:
    """Send, and write the result."""
    load = Load(address=(host, int(port)), key=key)
    seconds = asyncio.run(send_until_stopped(load, Path(folder)))
    result = {"seconds": seconds, "sent": load.sent, "outcomes": load.outcomes}
    Path(folder, "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
