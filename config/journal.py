"""Log lines for systemd's journal, with the fields of each as fields of the journal."""

import errno
import fcntl
import json
import logging
import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

JOURNAL = Path("/run/systemd/journal/socket")
PREFIX = "ROLLCALL_"
MAX_NAME_CHARS = 64
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def goes_to_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether systemd has connected the stream to its journal."""
    expected = environ.get("JOURNAL_STREAM")
    if not expected:
        return False
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return expected == f"{found.st_dev}:{found.st_ino}"


class JournalHandler(logging.StreamHandler[TextIO]):
    """Sends each line to the journal's own socket; if that fails, writes it to the stream.

    The formatter makes an object in JSON of each record. It is the message, and each field of it is
    a field of the journal, too: ``node`` is ROLLCALL_NODE.
    """

    def __init__(self, stream: TextIO, *, journal: Path = JOURNAL) -> None:
        super().__init__(stream)
        self._socket = _new_socket()
        self._journal = str(journal)
        self._identifier = Path(sys.argv[0]).name

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record; report one that cannot be formatted to standard error."""
        try:
            self._send(_datagram(self._fields(self.format(record))))
        except OSError:
            super().emit(record)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()

    def _fields(self, line: str) -> dict[str, str]:
        given: dict[str, object] = json.loads(line)
        priority = PRIORITIES.get(str(given.get("level")), PRIORITIES["info"])
        own = {
            "MESSAGE": line,
            "PRIORITY": str(priority),
            "SYSLOG_IDENTIFIER": self._identifier,
        }
        return {_field_name(name): _text(value) for name, value in given.items()} | own

    def _send(self, datagram: bytes) -> None:
        try:
            self._socket.sendto(datagram, self._journal)
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                raise
            self._send_in_memory(datagram)

    def _send_in_memory(self, datagram: bytes) -> None:
        """Send what is too large for a datagram, in memory that nobody can change any more."""
        descriptor = os.memfd_create("journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with os.fdopen(descriptor, "wb") as memory, _new_socket() as sender:
            memory.write(datagram)
            memory.flush()
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
            sender.connect(self._journal)
            socket.send_fds(sender, [b""], [descriptor])


def _new_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def _field_name(name: str) -> str:
    return f"{PREFIX}{re.sub('[^A-Z0-9]', '_', name.upper())}"[:MAX_NAME_CHARS]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _datagram(fields: Mapping[str, str]) -> bytes:
    """Return the fields as the journal reads them, each with the length of its value in bytes."""
    parts = []
    for name, text in fields.items():
        data = text.encode("utf-8", "backslashreplace")
        parts.append(name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n")
    return b"".join(parts)
