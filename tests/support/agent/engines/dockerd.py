"""A Docker Engine that a test may stop, kill and freeze."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import docker

from dev import engine
from dev.images import import_busybox
from dev.processes import end
from dev.waiting import until
from tests.support.machine.process_tree import processes, still_running, with_descendants
from tests.support.requirements import need_root

START_SECONDS = 120.0
STOP_SECONDS = 60.0
IMAGE = "rollcall-test-busybox"
HOLD = "import socket; s = socket.create_server(('127.0.0.1', {})); print(flush=True); input()"


class Dockerd:
    """A ``dockerd`` in a network namespace of its own, with its files in a folder of its own.

    Attributes:
        data_root: Where it keeps images, containers and volumes.

    """

    def __init__(self) -> None:
        # Not pytest's: the paths of the sockets below it would be too long.
        self._folder = Path(tempfile.mkdtemp(prefix="rollcall-"))
        folder = self._folder
        self._process: subprocess.Popen[bytes] | None = None
        self._network: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{folder / 'docker.sock'}"
        self.data_root = folder / "data"

    def start(
        self,
        *,
        programs: Path | None = None,
        live_restore: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        """Start it, or start it again, and wait until it answers; skip the test without root.

        What is in the folder ``programs`` takes the place of the host's programs; with
        ``live_restore`` its containers outlive it. ``options`` are further ones of dockerd.
        """
        need_root()
        place = self._folder
        self._clear_leftovers()
        dockerd = ["dockerd", f"--host={self.url}", f"--data-root={self.data_root}"]
        dockerd += [f"--exec-root={place / 'exec'}", f"--pidfile={place / 'pid'}"]
        dockerd += ["--live-restore"] if live_restore else []
        dockerd += options
        with (place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self.inside(), *dockerd],
                env={**os.environ, "PATH": f"{programs or place}:{os.environ['PATH']}"},
                stdout=log,
                stderr=log,
            )
        until(lambda: engine.responds(self.url), "the test's own engine", within=START_SECONDS)

    def inside(self) -> list[str]:
        """Return the words that let a command run in its network."""
        if self._network is None:
            up = "ip link set lo up && echo up && exec sleep infinity"
            self._network = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", up], stdout=subprocess.PIPE
            )
            assert self._network.stdout is not None
            self._network.stdout.readline()
        return ["nsenter", f"--net=/proc/{self._network.pid}/ns/net"]

    def _clear_leftovers(self) -> None:
        """Take away what one that was killed has left; its containerd would be waited for."""
        containerd = self._folder / "exec/containerd/containerd.pid"
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(int(containerd.read_text()), signal.SIGKILL)
        containerd.unlink(missing_ok=True)
        (self._folder / "pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """End it in order."""
        end(self._running(), within=STOP_SECONDS)
        self._process = None

    def kill(self) -> None:
        """Kill the engine."""
        self._running().kill()
        self._running().wait()
        self._process = None

    def crash_host(self) -> None:
        """Kill all that runs on its host: the engine, containerd, its shims and all containers.

        What the kernel keeps for them is gone, too: the network, mounts and all in `/run`.
        """
        killed: set[int] = set()
        until(lambda: self._kill_all(killed), "the end of all containers", within=STOP_SECONDS)
        self._running().wait()
        self._process = None
        if self._network is not None:
            self._network.kill()
            self._network.communicate()
            self._network = None
        self._unmount()
        shutil.rmtree(self._folder / "exec")

    def _kill_all(self, killed: set[int]) -> bool:
        """Kill what runs of it, and note it; return whether all that was killed has ended.

        What is killed may have started another program a moment before.
        """
        own = [each.pid for each in processes() if str(self._folder) in each.command]
        killed |= with_descendants([*own, self._running().pid])
        running = still_running(killed)
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not running

    def freeze(self) -> None:
        """Suspend the engine: it accepts connections and never answers."""
        self._running().send_signal(signal.SIGSTOP)
        # On a busy machine its other threads go on for a while.
        until(self._stands_still, "the engine's standing still", within=START_SECONDS)

    def _stands_still(self) -> bool:
        threads = Path(f"/proc/{self._running().pid}/task").glob("*/stat")
        states = {thread.read_text().rpartition(") ")[2][0] for thread in threads}
        return states == {"T"}

    def thaw(self) -> None:
        """Resume the engine."""
        self._running().send_signal(signal.SIGCONT)

    def client(self) -> docker.APIClient:
        """Return docker-py's low-level client for it."""
        return docker.APIClient(base_url=self.url, version="auto", timeout=60)

    def build(self) -> None:
        """Make the image that its apps are made of."""
        client = self.client()
        import_busybox(client, IMAGE, page="Hello")
        client.close()

    @contextmanager
    def port_taken(self, port: int) -> Iterator[None]:
        """Listen on a port in its network, as another program."""
        command = [*self.inside(), sys.executable, "-c", HOLD.format(port)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            try:
                yield
            finally:
                holder.communicate(b"\n")

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the engine does not run"
        return self._process

    def __enter__(self) -> Self:
        """Return itself; it is not started yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it and what it left."""
        if self._process is not None:
            self.thaw()
            self.stop()
        if self._network is not None:
            self._network.kill()
            self._network.communicate()
        self._clear_leftovers()
        self._unmount()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _unmount(self) -> None:
        """Take away the mounts that an engine leaves, also where it ended in order."""
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for place in reversed(mounts):
            if place.startswith(f"{self._folder}/"):
                subprocess.run(["umount", "--lazy", place], check=False)
