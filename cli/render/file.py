"""Keeps a file as the nodes are: replaced as a whole, with a command after a change of it."""

import asyncio
import os
import shlex
import signal
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cli.errors import CommandError
from clients.models import AddressedNode, NodeEvent
from runtime.durable import PRIVATE_MODE, replacing
from runtime.pauses import Backoff

COMMAND_SECONDS = 300.0
DEFAULT_MODE = 0o666  # less the umask
# Changes that come within this time are written together.
GATHER_SECONDS = 0.5
MAX_WARMING_PAUSE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateNode:
    """A node as templates see it.

    There is no ``last_update``: it changes at each heartbeat, and so would every file. ``address``
    is where its last heartbeat came from.
    """

    hostname: str
    address: str
    labels: Sequence[str]
    kv: dict[str, str]
    stale: bool

    def values(self, key: str) -> list[str]:
        """Return what follows ``key:`` in the labels that begin so."""
        start = f"{key}:"
        return [label.removeprefix(start) for label in self.labels if label.startswith(start)]


class NodeSet:
    """The nodes that a watch has reported since a `reset`."""

    def __init__(self) -> None:
        self._nodes = dict[str, AddressedNode]()
        self._stale: set[str] = set()

    def __iter__(self) -> Iterator[TemplateNode]:
        for hostname in sorted(self._nodes):
            node = self._nodes[hostname]
            yield TemplateNode(
                hostname=hostname,
                address=node.address or "",
                labels=node.labels,
                kv=node.kv,
                stale=hostname in self._stale,
            )

    def __len__(self) -> int:
        return len(self._nodes)

    def apply(self, event: NodeEvent) -> None:
        """Apply an event other than `reset` and `listed`."""
        hostname = event.hostname
        if event.kind == "node" and event.node is not None:
            self._nodes[hostname] = event.node
        elif event.kind == "gone":
            self._nodes.pop(hostname, None)
        if event.kind == "stale":
            self._stale.add(hostname)
        elif event.kind in ("fresh", "gone"):
            self._stale.discard(hostname)


class RenderError(CommandError):
    """The file stays as it was; the text says why."""


class CommandFailed(CommandError):
    """The file is written, and the command after it has failed; the text says how."""


def command_line(text: str, *, by_shell: bool) -> list[str]:
    """Return the words of a command: those of the text, or a shell that runs it.

    Raises ValueError if the text has no words, or a quotation that does not end.
    """
    words = ["/bin/sh", "-c", text] if by_shell else shlex.split(text)
    if not words or not text.strip():
        raise ValueError("the command is empty")
    return words


async def run_command(
    words: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    seconds: float = COMMAND_SECONDS,
) -> None:
    """Run a command to its end; what it writes goes to where this program writes.

    Its environment is this program's, unless one is given. One that takes too long is killed, with
    what it has started. Raises CommandFailed.
    """
    shown = shlex.join(words)
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, env=environment, start_new_session=True
        )
    except OSError as error:
        raise CommandFailed(f"{shown} cannot be run: {error.strerror}") from error
    try:
        async with asyncio.timeout(seconds):
            status = await process.wait()
    except TimeoutError as error:
        raise CommandFailed(f"{shown} did not end within {seconds:g} s and was killed") from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if status < 0:
        raise CommandFailed(f"{shown} was ended by {signal.Signals(-status).name}")
    if status:
        raise CommandFailed(f"{shown} ended with status {status}")


class RenderedFile:
    """A file that readers find either as it was or as it is to be, written where it differs.

    It keeps its mode, owner and group. A symbolic link stays, and the file that it names is
    replaced. Then ``command`` is due, if there is one, which a mark beside the file says.

    ``command`` may raise CommandFailed, and ``render``, which makes the text, RenderError.
    With fewer nodes than ``min_nodes`` it is not written. ``say`` prints each change.
    """

    def __init__(
        self,
        path: Path,
        *,
        render: Callable[[NodeSet], str],
        command: Callable[[], Awaitable[None]] | None,
        min_nodes: int,
        say: Callable[[str], None],
    ) -> None:
        self._path = path
        self._target = Path(os.path.realpath(path))
        self._mark = self._target.with_name(f".{self._target.name}.on-change-due")
        self._render = render
        self._command = command
        self._min_nodes = min_nodes
        self._say = say

    @property
    def is_command_due(self) -> bool:
        """Whether the command has not succeeded since the last change, in an earlier run too."""
        return self._command is not None and self._mark.exists()

    async def run_command(self) -> None:
        """Run the command. Raises CommandFailed."""
        if self._command is not None:
            await self._command()
            self._mark.unlink(missing_ok=True)

    def write(self, nodes: NodeSet) -> None:
        """Write the file if it differs. Raises RenderError; the file is as it was then."""
        if len(nodes) < self._min_nodes:
            raise RenderError(
                f"{len(nodes)} nodes pass the filters, and --min-nodes is {self._min_nodes}:"
                " the file stays as it is"
            )
        content = self._render(nodes).encode()
        try:
            known = self._known()
            if known is not None and self._target.read_bytes() == content:
                return
            self._replace(content, known)
        except OSError as error:
            raise RenderError(f"{self._path} cannot be written: {error.strerror}") from error
        self._say(f"{self._path} is written, of {len(nodes)} nodes")

    def _known(self) -> os.stat_result | None:
        try:
            known = self._target.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(known.st_mode):
            raise RenderError(f"{self._path} is no regular file")
        return known

    def _replace(self, content: bytes, known: os.stat_result | None) -> None:
        mode = DEFAULT_MODE if known is None else PRIVATE_MODE
        with replacing(self._target, mode=mode) as file:
            file.write(content)
            if known is not None:
                _take_over(file.fileno(), known)
            if self._command is not None:
                self._mark.touch()


def _take_over(descriptor: int, known: os.stat_result) -> None:
    """Give a new file the owner, group and mode of the one that it replaces."""
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (known.st_uid, known.st_gid):
        os.fchown(descriptor, known.st_uid, known.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(known.st_mode))


class Follower:
    """Writes the file when all nodes are known, and again when they have changed.

    ``events`` are those of a watch, over lost connections. Nodes that are listed anew count once
    all of them are there. While the registry is away or warms up, the file stays as it is. ``say``
    shows the operator what hinders.
    """

    def __init__(
        self,
        events: AsyncIterator[NodeEvent],
        file: RenderedFile,
        *,
        backoff: Backoff,
        say: Callable[[str], None],
    ) -> None:
        self._events = events
        self._file = file
        self._backoff = backoff
        self._say = say
        self._nodes = NodeSet()
        self._warm_at = 0.0
        self._changed = asyncio.Event()

    async def once(self) -> None:
        """Write the file once. Raises RegistryError, RenderError, CommandFailed."""
        await self._beside_the_watch(self._write_once)

    async def forever(self) -> None:
        """Write the file whenever nodes have changed. Raises RegistryError if that is final."""
        await self._beside_the_watch(self._write_each_change)

    async def _beside_the_watch(self, write: Callable[[], Awaitable[None]]) -> None:
        watching = asyncio.create_task(self._watch())
        writing = asyncio.ensure_future(write())
        try:
            await asyncio.wait((watching, writing), return_when=asyncio.FIRST_COMPLETED)
            await (writing if writing.done() else watching)
        finally:
            for task in (watching, writing):
                task.cancel()
            await asyncio.gather(watching, writing, return_exceptions=True)

    async def _watch(self) -> None:
        coming = NodeSet()
        async for event in self._events:
            if event.kind == "reset":
                coming = NodeSet()
            elif event.kind == "listed":
                self._nodes = coming
                self._warm_at = asyncio.get_running_loop().time() + event.warming_seconds
            else:
                coming.apply(event)
            if coming is self._nodes:
                self._changed.set()

    async def _write_once(self) -> None:
        await self._changed.wait()
        warming = self._warming_seconds()
        if warming > 0:
            raise RenderError(_warming(warming))
        self._file.write(self._nodes)
        if self._file.is_command_due:
            await self._file.run_command()

    async def _write_each_change(self) -> None:
        pause: float | None = None
        while True:
            if await self._has_changed(within=pause):
                await asyncio.sleep(GATHER_SECONDS)
                while (warming := self._warming_seconds()) > 0:
                    self._say(_warming(warming))
                    await asyncio.sleep(min(warming, MAX_WARMING_PAUSE))
                self._changed.clear()
            pause = await self._try()

    def _warming_seconds(self) -> float:
        return self._warm_at - asyncio.get_running_loop().time()

    async def _has_changed(self, *, within: float | None) -> bool:
        try:
            async with asyncio.timeout(within):
                return await self._changed.wait()
        except TimeoutError:
            return False

    async def _try(self) -> float | None:
        """Write the file, and run the command if it is due.

        Returns the seconds until both are tried again, None if both are done.
        """
        is_done, pause = True, self._backoff.pause(at_least=1.0)
        try:
            self._file.write(self._nodes)
        except RenderError as error:
            is_done = False
            self._say(str(error))
        try:
            if self._file.is_command_due:
                await self._file.run_command()
        except CommandFailed as error:
            is_done = False
            self._say(f"{error}; it is tried again in {pause:.0f} s")
        if not is_done:
            return pause
        self._backoff.reset()
        return None


def _warming(seconds: float) -> str:
    return (
        "the registry warms up: it does not know all nodes yet, so the file stays as it is;"
        f" {seconds:.0f} s are left"
    )
