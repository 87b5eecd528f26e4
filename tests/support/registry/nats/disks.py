"""NATS servers each of which stores on a disk of its own, whose power fails."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.machine.disks import Disk, memory_disk, new_disk
from tests.support.registry.nats.servers import NatsCluster


class Power:
    """The power of all servers and their disks."""

    def __init__(self, servers: NatsCluster, disks: list[Disk]) -> None:
        self._servers = servers
        self._disks = disks

    def cut(self) -> None:
        """End all servers at once; their disks keep what was synced, and nothing else."""
        for server in self._servers.servers:
            server.kill()
        for disk in self._disks:
            disk.cut_power()

    def restore(self) -> None:
        """Start the servers again, with what was synced."""
        for disk in self._disks:
            disk.restore_power()
        self._servers.mend()


@contextmanager
def powered(servers: NatsCluster, folder: Path) -> Iterator[Power]:
    """Start servers, each of which stores on a disk of its own; they end with the context.

    The disks are files in memory, in a new folder: how busy the machine's own disk is does not
    matter then.
    """
    with memory_disk(folder, size="256m"), _on_disks(servers, folder) as disks:
        yield Power(servers, disks)


@contextmanager
def on_a_shared_disk(servers: NatsCluster, folder: Path) -> Iterator[Disk]:
    """Start servers, whose disks are files on the disk that is yielded.

    While that one hangs, they write to their disks, as far as the cache of the system takes it, but
    sync nothing.
    """
    with memory_disk(folder, size="256m"):
        shared = new_disk(folder, mebibytes=224)
        with shared.mounted() as files, _on_disks(servers, files):
            yield shared


@contextmanager
def _on_disks(servers: NatsCluster, folder: Path) -> Iterator[list[Disk]]:
    with ExitStack() as stack:
        disks = []
        for server in servers.servers:
            (folder / server.name).mkdir()
            disk = new_disk(folder / server.name, mount_point=server.store)
            stack.enter_context(disk.mounted())
            disks.append(disk)
        stack.enter_context(servers)
        yield disks
