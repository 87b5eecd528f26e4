"""The file that `render` writes: replaced as a whole, with the command after a change of it."""

import asyncio
import os
import shlex
import signal
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cli.errors import CommandError
from clients.models import AddressedNode, NodeEvent
from runtime.durable import PRIVATE_MODE, replacing

COMMAND_SECONDS = 300.0
DEFAULT_MODE = 0o666  # less the umask


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


class OutputFile:
    """A file that readers find either as it was or as it is to be.

    It keeps its mode, owner and group. A symbolic link stays, and the file that it names is
    replaced. A mark beside the file says that a command is still due after a change of it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._target = Path(os.path.realpath(path))
        self._mark = self._target.with_name(f".{self._target.name}.on-change-due")

    def __str__(self) -> str:
        return str(self._path)

    @property
    def is_command_due(self) -> bool:
        """Whether a command has not succeeded since the file was changed."""
        return self._mark.exists()

    def command_done(self) -> None:
        """Record that the command has succeeded."""
        self._mark.unlink(missing_ok=True)

    def replace(self, content: bytes, *, with_command: bool) -> bool:
        """Write the content unless it is there already; return whether it was written.

        With ``with_command``, a command is due from then on. Raises RenderError; the file is as it
        was then.
        """
        try:
            known = self._known()
            if known is not None and self._target.read_bytes() == content:
                return False
            self._write(content, known, with_command=with_command)
        except OSError as error:
            raise RenderError(f"{self._path} cannot be written: {error.strerror}") from error
        return True

    def _known(self) -> os.stat_result | None:
        try:
            known = self._target.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(known.st_mode):
            raise RenderError(f"{self._path} is no regular file")
        return known

    def _write(self, content: bytes, known: os.stat_result | None, *, with_command: bool) -> None:
        mode = DEFAULT_MODE if known is None else PRIVATE_MODE
        with replacing(self._target, mode=mode) as file:
            file.write(content)
            if known is not None:
                _take_over(file.fileno(), known)
            if with_command:
                self._mark.touch()


def _take_over(descriptor: int, known: os.stat_result) -> None:
    """Give a new file the owner, group and mode of the one that it replaces."""
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (known.st_uid, known.st_gid):
        os.fchown(descriptor, known.st_uid, known.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(known.st_mode))


class RenderedFile:
    """Written when its content differs; then ``command`` is due, if there is one.

    ``command`` may raise CommandFailed, and ``render``, which makes the text, RenderError.
    With fewer nodes than ``min_nodes`` it is not written. ``say`` tells of each change.
    """

    def __init__(
        self,
        render: Callable[[NodeSet], str],
        output: OutputFile,
        *,
        command: Callable[[], Awaitable[None]] | None,
        min_nodes: int,
        say: Callable[[str], None],
    ) -> None:
        self._render = render
        self._output = output
        self._command = command
        self._min_nodes = min_nodes
        self._say = say

    @property
    def is_command_due(self) -> bool:
        """Whether the command has not succeeded since the last change, in an earlier run too."""
        return self._command is not None and self._output.is_command_due

    def write(self, nodes: NodeSet) -> None:
        """Write the file if it differs. Raises RenderError."""
        if len(nodes) < self._min_nodes:
            raise RenderError(
                f"{len(nodes)} nodes pass the filters, and --min-nodes is {self._min_nodes}:"
                " the file stays as it is"
            )
        content = self._render(nodes).encode()
        if self._output.replace(content, with_command=self._command is not None):
            self._say(f"{self._output} is written, of {len(nodes)} nodes")

    async def run_command(self) -> None:
        """Run the command. Raises CommandFailed."""
        if self._command is not None:
            await self._command()
            self._output.command_done()
