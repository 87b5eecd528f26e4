"""What the rules ask of a container engine."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from typing import Protocol

from agent.engine.models import (
    Container,
    ContainerEvent,
    ContainerSpec,
    DiskUsage,
    EngineInfo,
    EngineRun,
    ExecResult,
    Image,
    ImageEvent,
    InspectedContainer,
    ListedImage,
    Network,
    Process,
    PullProgress,
    Sample,
)


class Engine(Protocol):
    """A container engine on this host.

    Every method may raise EngineUnavailable. Then the engine may still do what it was asked to, so
    the caller looks again before it reports a failure. Those that name a container raise
    ObjectNotFound when it is gone.
    All containers and volumes carry labels; nothing is listed or changed by anything but their id.

    What a method returns is never older than the call: callers may share an answer, but not one
    that the engine may have given before the call.
    """

    async def info(self) -> EngineInfo:
        """Return the engine's version, its data directory, and the limits of the host."""

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        """List the containers in any state, those with the label (``KEY`` or ``KEY=VALUE``).

        An engine whose disk is full may list a container in an earlier state, until it is inspected
        or changes again.
        """

    async def inspect(self, container_id: str) -> InspectedContainer:
        """Inspect a container."""

    async def create(self, spec: ContainerSpec) -> str:
        """Make a container, which binds no port yet; return its id.

        Raises:
            ImageUnavailable: its image is not on this host.
            NameInUse: another container has its name.

        """

    async def start(self, container_id: str) -> None:
        """Start it.

        Raises:
            HostPortInUse: somebody else holds one of its ports.
            EngineRefused: its program cannot be run; the text says why.

        """

    async def stop(self, container_id: str, seconds: int) -> None:
        """Stop it, paused or not, and kill it after ``seconds``; no error if it does not run."""

    async def pause(self, container_id: str) -> None:
        """Pause a container; EngineConflict when it is not running."""

    async def unpause(self, container_id: str) -> None:
        """Unpause a container."""

    async def remove(self, container_id: str) -> None:
        """Remove it, but no volume; wait until it is gone."""

    async def rename(self, container_id: str, name: str) -> None:
        """Rename it; NameInUse."""

    async def set_autostart(self, container_id: str, *, enabled: bool) -> None:
        """Set whether the engine starts it again when it ends, and at the engine's own start.

        Raises:
            DiskFull: there is no room for the change; it is as it was.

        """

    async def limit(self, container_id: str, *, cpu: int, memory: int) -> None:
        """Set other limits, in the running container too: percent of a core, and MiB."""

    async def image(self, reference: str) -> Image | None:
        """Return an image of this host, None if it is not there; ImageTooLarge."""

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        """Pull an image, and call ``progress`` with the progress.

        Raises:
            ImageNotFound: there is none, or it may not be read.
            ImageServerUnavailable: its server cannot be reached, or fails.
            PullTimeout: the pull took too long; the engine may just have carried it out.
            ImageUnavailable: it cannot be had for another reason.
            DiskFull: there is no room for it.

        """

    async def find_manifest(self, reference: str) -> None:
        """Ask the server of an image whether it has it, without a pull; errors as of a pull."""

    async def images(self) -> list[ListedImage]:
        """List the images of this host; AnswerTooLong."""

    async def image_events(self, reference: str, *, since: float) -> list[ImageEvent]:
        """Return what happened since a Unix time to a reference, or to the image that it names now.

        The oldest is first. The engine remembers a few hundred events, and none of a run before.
        """

    async def remove_image(self, reference: str) -> None:
        """Remove a tag, and the image with its last one; or an image with one tag, by its id.

        Raises:
            ImageUnavailable: there is none.
            EngineConflict: a container uses it, or it has other tags.

        """

    async def volume_labels(self, name: str) -> Mapping[str, str] | None:
        """Return a volume's labels, None if there is no such volume."""

    async def volumes(self, *, label: str | None = None) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of volumes by name; with the label (``KEY`` or ``KEY=VALUE``)."""

    async def volume_users(self, name: str) -> list[Container]:
        """List the containers, running or not, that a volume is mounted in."""

    async def create_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a volume; an existing one of that name stays as it is."""

    async def remove_volume(self, name: str) -> None:
        """Remove a volume and its content; no error if there is none."""

    async def network(self, name: str) -> Network | None:
        """Return a network, None if there is none of that name."""

    async def create_network(self, wanted: Network) -> None:
        """Create a bridge network; EngineConflict if there is one of that name."""

    async def connect(self, container_id: str, network: str) -> None:
        """Connect a container to a network, running or not; NetworkNotFound."""

    async def processes(self, container_id: str) -> list[Process]:
        """List its processes; EngineConflict when it is not running."""

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        """Measure it; return None when it is not running.

        With ``priority``, as for a change, it does not wait for other measurements.
        """

    async def disk_usage(self, *, seconds: float) -> DiskUsage:
        """Measure all volumes and containers, which may take minutes, but no longer than this."""

    def logs(
        self,
        container_id: str,
        *,
        tail: int | None,
        since: float | None,
        follow: bool,
        until: float | None = None,
        timestamps: bool = False,
    ) -> AsyncGenerator[bytes]:
        """Return its output, and with ``follow`` also further output; close the generator to end.

        ``tail`` is a number of lines, ``since`` and ``until`` are Unix times; None means all. With
        ``timestamps`` each line begins with its time, in RFC 3339, and a blank.
        """

    async def execute(
        self,
        container_id: str,
        command: list[str],
        *,
        stdin: bytes = b"",
        as_root: bool = True,
        seconds: float | None = None,
    ) -> ExecResult:
        """Run a command in it, as root or as its own user; wait at most ``seconds`` for its end.

        The engine publishes the command in its events, but not stdin. A command that does not end
        goes on.

        Raises:
            CommandTimeout: it takes longer, by default than half of the engine's own time limit.

        """

    async def read_file(self, container_id: str, path: str) -> bytes:
        """Return the content of a small regular file of it, running or not.

        Raises:
            ObjectNotFound: there is no such file.
            EngineConflict: it is no regular file.
            EngineError: it is larger than 1 MiB.

        """

    async def give(self, container_id: str, paths: Collection[str], user: str) -> bool:
        """Give directories of a container that root owns to a user, as its image names it.

        Return whether the user is known in the container; else nothing is changed.
        """

    def archive(self, container_id: str, path: str) -> AsyncGenerator[bytes]:
        """Return a directory of a container, running or not, as a tar; close it to end.

        The names in it begin at the directory. While it is read, the engine does nothing else with
        the container.
        """

    async def unpack(self, container_id: str, tar: AsyncIterator[bytes]) -> None:
        """Unpack a tar in the root directory of a container, running or not.

        Raises:
            DiskFull: there is no room for it.
            EngineRefused: it cannot be unpacked.
            Exception: what ``tar`` raises. What came before may be unpacked in any case.

        """

    def events(self, label: str, *, since: float) -> AsyncGenerator[ContainerEvent]:
        """Return the events of containers with the label, until the engine goes away.

        Those from the Unix time ``since`` on come first.
        """

    async def stopped_at(self, container_id: str) -> float | None:
        """Return the Unix time at which a container was stopped by request.

        None if that is not the last of its starts and stops in this run of the engine, which
        remembers a few hundred events.
        """

    async def current_run(self) -> EngineRun | None:
        """Return the present run of the engine, None if it cannot be told from another."""

    async def close(self) -> None:
        """Close all streams and reads; later calls fail."""
