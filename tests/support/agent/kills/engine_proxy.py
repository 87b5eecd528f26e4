"""A proxy before the engine's socket that counts changing calls with a fault at one of them."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

from tests.support.servers import close_server

Moment: TypeAlias = Literal["before", "after", "lost", "late"]

KILLS: tuple[Moment, ...] = ("before", "after")
ANSWERS: tuple[Moment, ...] = ("lost", "late")
CHUNK = 65_536
MAX_HEAD = 65_536
END_OF_HEAD = b"\r\n\r\n"
START_SECONDS = 30.0
PAUSE_SECONDS = 0.1
VERSION = re.compile(r"^/v[0-9.]+(?=/)")
OBJECT = re.compile(r"^/(containers|exec|images|networks|volumes)/(?!create$|prune$|load$)[^/]+")
CONNECTION = re.compile(rb"\r\nConnection:[^\r]*", re.IGNORECASE)
UPGRADE = re.compile(rb"\r\nUpgrade:", re.IGNORECASE)
LENGTH = re.compile(rb"\r\nContent-Length: *([0-9]+)", re.IGNORECASE)
SWITCHING_PROTOCOLS = b"101"
READS = {"GET", "HEAD", "OPTIONS"}
PULL = "POST /images/create"
# Requests that are sent with POST and change nothing.
POSTED_READS = {
    "POST /auth",
    "POST /containers/ID/attach",
    "POST /containers/ID/resize",
    "POST /containers/ID/wait",
    "POST /exec/ID/resize",
}


@dataclass(frozen=True)
class Call:
    """A changing call.

    Attributes:
        name: Its method and path pattern, such as ``POST /containers/ID/start``.
        number: 1 for the operation's first call of this name.

    """

    name: str
    number: int


@dataclass(frozen=True)
class Fault:
    """A fault at a changing call of the agent.

    ``before``: the agent is killed, and the call does not reach the engine. The engine has answered
    completely at the three others, and the agent gets nothing of the answer (of a hijacked
    connection: not its end). ``after``: the agent is killed. ``lost``: the connection is cut.
    ``late``: the connection stays open until the agent closes it.
    """

    call: Call
    moment: Moment


@dataclass
class Watch:
    """The changing calls since ``EngineProxy.watch``, and the fault that is planned.

    A call that is repeated until it succeeds counts once: the number of attempts depends on timing.
    So does a removal of the same object, whatever came in between. With ``held_pull``, which is set
    at the first pull, pulls do not begin, and end when the agent closes the connection.
    """

    fault: Fault | None = None
    strike: Callable[[], None] = lambda: None
    calls: list[Call] = field(default_factory=list)
    struck: threading.Event = field(default_factory=threading.Event)
    held_pull: threading.Event | None = None
    _last: bytes = b""
    _removals: set[bytes] = field(default_factory=set)

    def count(self, name: str, request_line: bytes) -> Moment | None:
        """Record a call; return the moment of the fault if the fault is at this call."""
        if request_line == self._last or request_line in self._removals:
            return None
        self._last = request_line
        if request_line.startswith(b"DELETE "):
            self._removals.add(request_line)
        call = Call(name, 1 + sum(each.name == name for each in self.calls))
        self.calls.append(call)
        return self.fault.moment if self.fault is not None and self.fault.call == call else None


def changing_call(head: bytes) -> str | None:
    """Return a request's method and path pattern, such as ``POST /containers/ID/start``.

    None for a request that changes nothing.
    """
    method, target, _ = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    path = VERSION.sub("", target.partition("?")[0])
    pattern = OBJECT.sub(r"/\1/ID", path)
    call = f"{method} {pattern}"
    return None if method in READS or call in POSTED_READS else call


def with_close(head: bytes) -> bytes:
    """Return the head of a request or answer with ``Connection: close``."""
    bare = CONNECTION.sub(b"", head.removesuffix(END_OF_HEAD))
    return bare + b"\r\nConnection: close" + END_OF_HEAD


class EngineProxy:
    """A proxy on a Unix socket, in a thread of its own while the context is open.

    Each connection carries one request, so that an answer ends where the engine closes. An upgraded
    connection is passed on in both directions.
    """

    def __init__(self, *, path: Path, engine_url: str) -> None:
        self.url = f"unix://{path}"
        self._path = path
        self._engine = engine_url.removeprefix("unix://")
        self._watch = Watch()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def watch(self, fault: Fault | None = None, strike: Callable[[], None] = lambda: None) -> Watch:
        """Count changing calls from now on; call ``strike`` once at a ``fault`` that kills."""
        self._watch = Watch(fault, strike)
        return self._watch

    def hold_pulls(self) -> threading.Event:
        """Let no pull begin before the next call of ``watch``; return what is set at the first."""
        self._watch.held_pull = threading.Event()
        return self._watch.held_pull

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_unix_server(self._accept, self._path, limit=MAX_HEAD)
        self._started.set()
        await self._stop.wait()
        await close_server(server)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for writer in list(self._connections):
                writer.transport.abort()
            await asyncio.wait(others, timeout=PAUSE_SECONDS)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = asyncio.create_task(self._relay(reader, writer))
        self._connections[writer].add_done_callback(lambda _: self._connections.pop(writer))

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            async with _closing(writer):
                await self._answer(reader, writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(END_OF_HEAD)
        watch, call = self._watch, changing_call(head)
        moment = watch.count(call, head.partition(b"\r\n")[0]) if call is not None else None
        if call == PULL and moment is None and watch.held_pull is not None:
            watch.held_pull.set()
            await reader.read()
        elif moment != "before":
            await self._forward(head, reader, writer, moment=moment)
        if moment in KILLS:
            watch.strike()
        if moment is not None:
            watch.struck.set()

    async def _forward(
        self,
        head: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        moment: Moment | None,
    ) -> None:
        from_engine, to_engine = await asyncio.open_unix_connection(self._engine, limit=MAX_HEAD)
        upgrade = UPGRADE.search(head) is not None
        async with _closing(to_engine):
            to_engine.write(head if upgrade else with_close(head))
            upload = asyncio.create_task(_upload(reader, to_engine, half_close=upgrade))
            try:
                if upgrade:
                    await _pass_on_upgrade(from_engine, writer, hold_back=moment is not None)
                else:
                    await _copy(from_engine, None if moment is not None else writer)
                if moment == "late":
                    await asyncio.wait({upload})  # until the agent closes the connection
            finally:
                upload.cancel()
                await asyncio.wait({upload})

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        assert self._started.wait(START_SECONDS), "the proxy does not listen"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections and stop."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._path.unlink(missing_ok=True)


@asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close a connection at the end, and wait until it is."""
    try:
        yield
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _upload(
    reader: asyncio.StreamReader, to_engine: asyncio.StreamWriter, *, half_close: bool
) -> None:
    with suppress(OSError):
        await _copy(reader, to_engine)
        if half_close:
            to_engine.write_eof()
        else:  # the caller has gone
            to_engine.close()


async def _pass_on_upgrade(
    from_engine: asyncio.StreamReader, writer: asyncio.StreamWriter, *, hold_back: bool
) -> None:
    head = await from_engine.readuntil(END_OF_HEAD)
    if head.split(b" ", 2)[1] == SWITCHING_PROTOCOLS:
        writer.write(head)
        await _copy(from_engine, writer)
        return
    length = LENGTH.search(head)
    body = await from_engine.readexactly(int(length[1]) if length is not None else 0)
    if not hold_back:
        writer.write(with_close(head) + body)
        await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None) -> None:
    """Copy to the end; without ``writer`` the content is dropped."""
    while chunk := await reader.read(CHUNK):
        if writer is not None:
            writer.write(chunk)
            await writer.drain()
