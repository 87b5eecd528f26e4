"""The socket at which systemd listens for notifications."""

import os
import select
import socket
from pathlib import Path
from types import TracebackType
from typing import Self


class NotifySocket:
    """Stands where systemd listens; ``environ`` is what a daemon finds in its environment."""

    def __init__(self, path: Path) -> None:
        self.environ = {"NOTIFY_SOCKET": str(path)}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(10)

    def __enter__(self) -> Self:
        """Listen."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self._socket.close()

    def next(self) -> str:
        """Return the next message, which has no descriptors."""
        message, descriptors = self.next_with_descriptors()
        for each in descriptors:
            os.close(each)
        assert not descriptors
        return message

    def next_with_descriptors(self) -> tuple[str, list[int]]:
        """Return the next message, and the descriptors in it, which are the caller's to close."""
        data, descriptors, *_ = socket.recv_fds(self._socket, 4096, 16)
        return data.decode(), list(descriptors)

    def is_silent(self) -> bool:
        """Return whether no message waits."""
        return not select.select([self._socket], [], [], 0)[0]
