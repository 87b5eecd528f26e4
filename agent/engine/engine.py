"""The Docker Engine: docker-py for commands; reads and streams are in ``reads``."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

from agent.engine import archives, decode
from agent.engine.commands import (
    Client,
    CommandKind,
    Commands,
    host_options,
    network_options,
    restart_policy,
)
from agent.engine.errors import (
    EndpointLeft,
    EngineConflict,
    EngineUnavailable,
    ObjectNotFound,
)
from agent.engine.exec import execute
from agent.engine.http import EngineClient, escaped
from agent.engine.images import PullRules, find_manifest, pull_image
from agent.engine.logins import ImageRegistryLogin
from agent.engine.models import (
    MIB,
    ContainerSpec,
    ExecResult,
    InspectedContainer,
    Network,
    PullProgress,
)
from agent.engine.reads import EngineReads

PULL_SECONDS = 3600.0
PULL_IDLE_SECONDS = 120.0
POLL_SECONDS = 0.1
# The response must be sent within the time limit that the operator set.
SHARE = 0.9


class Engine(EngineReads):
    """The Docker Engine at a local socket.

    Every method may raise EngineUnavailable. Then the engine may still do what it was asked to, so
    the caller looks again before it reports a failure. Those that name a container raise
    ObjectNotFound when it is gone.
    All containers and volumes carry labels; nothing is listed or changed by anything but their id.

    The time limit of a command or read begins when the engine is asked, not when the caller begins
    to wait for its turn.
    """

    def __init__(
        self,
        *,
        url: str,
        timeout_seconds: float,
        logins: Sequence[ImageRegistryLogin] = (),
        pull_seconds: float = PULL_SECONDS,
        pull_idle_seconds: float = PULL_IDLE_SECONDS,
    ) -> None:
        path = url.removeprefix("unix://")
        super().__init__(EngineClient(socket_path=path, timeout_seconds=timeout_seconds * SHARE))
        self._commands = Commands(self._client)
        self._pulls = PullRules(tuple(logins), pull_seconds, pull_idle_seconds)

    def use_logins(self, logins: Sequence[ImageRegistryLogin]) -> None:
        """Use other logins at registries of images, from the next pull on."""
        self._pulls = self._pulls._replace(logins=tuple(logins))

    async def create(self, spec: ContainerSpec) -> str:
        """Make a container from the spec alone, which binds no port yet; return its id.

        Raises:
            ImageUnavailable: its image is not on this host.
            NameInUse: another container has its name.

        """

        def work(client: Client) -> str:
            created = client.create_container(
                image=spec.image,
                command=list(spec.command) or None,
                entrypoint=spec.entrypoint or None,
                name=spec.name,
                labels=dict(spec.labels),
                environment=dict(spec.env),
                ports=sorted({inside for inside, _ in spec.ports}),
                stop_timeout=spec.stop_seconds,
                use_config_proxy=False,  # the settings of the agent's user may hold a password
                host_config=client.create_host_config(**host_options(spec)),
            )
            return str(created["Id"])

        return await self._commands.call(work)

    async def start(self, container_id: str) -> None:
        """Start it, after removing what an earlier run has left of it in its network.

        Raises:
            HostPortInUse: somebody else holds one of its ports.
            EngineRejected: its program cannot be run; the text says why.

        """
        try:
            await self._act(container_id, lambda client: client.start(container_id))
        except EndpointLeft:
            await self._remove_endpoint(await self.inspect(container_id))
            await self._act(container_id, lambda client: client.start(container_id))

    async def _act(self, container_id: str, work: Callable[[Client], object]) -> None:
        await self._commands.call(work)
        self._states.changed(container_id)

    async def _remove_endpoint(self, container: InspectedContainer) -> None:
        """Remove what a container that does not run has left in its network.

        The engine fails to remove it while its disk is full. It removes it by a name that is no
        container's, so the container has another one meanwhile; what renames containers of apps
        knows it as that of a replacement.
        """
        name, meanwhile = container.name, f"{container.name}.NEXT-{secrets.token_hex(4)}"

        def work(client: Client) -> None:
            client.rename(container.id, meanwhile)
            try:
                client.disconnect_container_from_network(name, container.own_network, force=True)
            finally:
                client.rename(container.id, name)

        await self._commands.call(work)

    async def stop(self, container_id: str, seconds: int) -> None:
        """Stop it, paused or not, and kill it after ``seconds``; no error if it does not run.

        The engine is pinged meanwhile.
        """
        stopping = asyncio.ensure_future(
            self._commands.call(
                lambda client: client.stop(container_id, timeout=seconds),
                kind=CommandKind.PROGRAM,
                seconds=seconds + self._client.timeout_seconds,
            )
        )
        try:
            await self._client.while_it_answers(stopping)
        finally:
            stopping.cancel()
        self._states.changed(container_id)

    async def pause(self, container_id: str) -> None:
        """Pause a container; EngineConflict when it is not running."""
        await self._act(container_id, lambda client: client.pause(container_id))

    async def unpause(self, container_id: str) -> None:
        """Unpause a container."""
        await self._act(container_id, lambda client: client.unpause(container_id))

    async def remove(self, container_id: str) -> None:
        """Remove it, but no volume; wait until it is gone."""
        deadline = time.monotonic() + self._client.timeout_seconds
        try:
            while time.monotonic() < deadline:
                try:
                    await self._commands.call(
                        lambda client: client.remove_container(container_id, v=False, force=True)
                    )
                except EngineConflict:  # it is being removed already
                    await asyncio.sleep(POLL_SECONDS)
        except ObjectNotFound:
            self._states.gone(container_id)
            return
        raise EngineUnavailable("the container engine does not finish the removal of the container")

    async def set_autostart(self, container_id: str, *, enabled: bool) -> None:
        """Set whether the engine starts it again when it ends, and at the engine's own start.

        Raises:
            DiskFull: there is no room for the change; it is as it was.

        """
        policy = {"Name": restart_policy(enabled=enabled)}
        await self._commands.call(
            lambda client: client.update_container(container_id, restart_policy=policy)
        )

    async def rename(self, container_id: str, name: str) -> None:
        """Rename it; NameInUse."""
        await self._commands.call(lambda client: client.rename(container_id, name))

    async def limit(self, container_id: str, *, cpu: int, memory: int) -> None:
        """Set other limits, in the running container too: percent of a core, and MiB."""
        await self._commands.call(
            lambda client: client.update_container(
                container_id,
                cpu_period=decode.CPU_PERIOD,
                cpu_quota=cpu * decode.CPU_PERIOD // 100,
                mem_limit=memory * MIB,
                memswap_limit=memory * MIB,  # without it, the engine rejects that of memory
            )
        )

    async def remove_image(self, reference: str) -> None:
        """Remove a tag, and the image with its last one; or an image with one tag, by its id.

        Raises:
            ImageUnavailable: there is none.
            EngineConflict: a container uses it, or it has other tags.

        """
        await self._commands.call(
            lambda client: client.remove_image(reference, force=False, noprune=True)
        )

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        """Pull an image, and call ``progress`` with the progress.

        Raises:
            ImageNotFound: there is none, or it may not be read.
            ImageServerUnavailable: its server cannot be reached, or fails.
            PullTimeout: the pull took too long; the engine may just have carried it out.
            ImageUnavailable: it cannot be had for another reason.
            DiskFull: there is no room for it.

        """
        await pull_image(self._client, self._pulls, reference, progress)

    async def find_manifest(self, reference: str) -> None:
        """Ask the server of an image whether it has it, without a pull; errors as of a pull."""
        await find_manifest(self._client, self._pulls, reference)

    async def create_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a volume; an existing one of that name stays as it is."""
        await self._commands.call(lambda client: client.create_volume(name, labels=dict(labels)))

    async def remove_volume(self, name: str) -> None:
        """Remove a volume and its content; no error if there is none.

        docker-py escapes no slash, so a name that needs an escape would be another path.
        """
        try:
            if escaped(name) == name:
                await self._commands.call(lambda client: client.remove_volume(name))
        except ObjectNotFound:
            return

    async def create_network(self, wanted: Network) -> None:
        """Create a bridge network; EngineConflict if there is one of that name."""
        await self._commands.call(
            lambda client: client.create_network(wanted.name, **network_options(wanted))
        )

    async def connect(self, container_id: str, network: str) -> None:
        """Connect a container to a network, running or not; NetworkNotFound.

        The ports of one that runs are published again.
        """
        await self._commands.call(
            lambda client: client.connect_container_to_network(container_id, network)
        )

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

        Its standard input ends after ``stdin``. The engine publishes the command in its events, but
        not stdin. A command that does not end goes on.

        Raises:
            CommandTimeout: it takes longer, by default than half of the engine's own time limit.

        """
        own = self._client.timeout_seconds / 2  # what the engine may need for itself
        limit = own if seconds is None else seconds
        user = "0" if as_root else ""
        return await self._commands.call(
            lambda client: execute(client, container_id, command, stdin, limit, user=user),
            kind=CommandKind.PROGRAM,
            seconds=limit + own,
        )

    async def give(self, container_id: str, paths: Collection[str], user: str) -> bool:
        """Give directories of a container that root owns to a user, as its image names it.

        Return whether the user is known in the container; else nothing is changed.
        """
        return await archives.give_to(self._client, container_id, paths, user)

    async def unpack(self, container_id: str, tar: AsyncIterator[bytes]) -> None:
        """Unpack a tar in the root directory of a container, running or not.

        Raises:
            DiskFull: there is no room for it.
            EngineRejected: it cannot be unpacked.
            Exception: what ``tar`` raises. What came before may be unpacked in any case.

        """
        await archives.unpack(self._client, container_id, tar)

    async def close(self) -> None:
        """Close all streams and reads; later calls fail."""
        self._commands.close()
        await self._client.close()
