"""Lines for systemd's journal, over a real socket."""

import json
import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.journal import JournalHandler, goes_to_journal

ANY_TEXT = st.text(st.characters())  # with surrogates


class Journal:
    """Stands where systemd's journal listens."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(10)

    def close(self) -> None:
        """Close."""
        self._socket.close()

    def next(self) -> dict[str, str]:
        """Return the fields of the next line."""
        data, descriptors, *_ = socket.recv_fds(self._socket, 1 << 20, 1)
        for descriptor in descriptors:
            with os.fdopen(descriptor, "rb") as memory:
                memory.seek(0)
                data = memory.read()
        fields = {}
        while data:
            name, _, rest = data.partition(b"\n")
            size = int.from_bytes(rest[:8], "little")
            fields[name.decode()] = rest[8 : 8 + size].decode()
            assert rest[8 + size : 9 + size] == b"\n"
            data = rest[9 + size :]
        return fields


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Yield what closes the parts of a test."""
    with ExitStack() as stack:
        yield stack


def journal_at(path: Path, stack: ExitStack) -> Journal:
    journal = Journal(path)
    stack.callback(journal.close)
    return journal


def log(line: str, path: Path, *arguments: object, stream: StringIO) -> None:
    handler = JournalHandler(stream, journal=path)
    try:
        handler.handle(logging.LogRecord("a", logging.INFO, "a.py", 1, line, arguments, None))
    finally:
        handler.close()


def test_each_field_of_a_line_is_a_field_of_the_journal(tmp_path: Path, stack: ExitStack) -> None:
    journal = journal_at(tmp_path / "socket", stack)
    line = json.dumps(
        {"event": "node added", "level": "warning", "node": "web-1", "nodes": 3, "a.b": [1, None]}
    )

    log(line, tmp_path / "socket", stream=StringIO())

    fields = journal.next()
    assert fields.pop("SYSLOG_IDENTIFIER")
    assert fields == {
        "MESSAGE": line,
        "PRIORITY": "4",
        "ROLLCALL_EVENT": "node added",
        "ROLLCALL_LEVEL": "warning",
        "ROLLCALL_NODE": "web-1",
        "ROLLCALL_NODES": "3",
        "ROLLCALL_A_B": "[1, null]",
    }


def test_a_line_that_is_too_large_for_a_datagram_arrives_whole(
    tmp_path: Path, stack: ExitStack
) -> None:
    journal = journal_at(tmp_path / "socket", stack)
    line = json.dumps({"event": "nodes changed", "nodes": ["n" * 250] * 4000})

    log(line, tmp_path / "socket", stream=StringIO())

    assert journal.next()["MESSAGE"] == line


def test_a_line_that_the_journal_does_not_take_goes_to_the_stream(tmp_path: Path) -> None:
    stream = StringIO()

    log('{"event": "x"}', tmp_path / "nobody", stream=stream)

    assert stream.getvalue() == '{"event": "x"}\n'


def test_a_line_that_cannot_be_formatted_does_not_fail_whoever_logs_it(
    tmp_path: Path, stack: ExitStack, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = journal_at(tmp_path / "socket", stack)

    log("%d bytes", tmp_path / "socket", "x", stream=StringIO())

    assert "Message: '%d bytes'" in capsys.readouterr().err
    log("{}", tmp_path / "socket", stream=StringIO())
    assert journal.next()["MESSAGE"] == "{}"


@given(st.dictionaries(ANY_TEXT, ANY_TEXT))
def test_whatever_a_line_holds_its_message_is_the_line(given_fields: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder, "socket")
        journal = journal_at(path, stack)
        line = json.dumps(given_fields)

        log(line, path, stream=StringIO())

        fields = journal.next()
        assert fields["MESSAGE"] == line
        assert all(len(name) <= 64 and name.isascii() for name in fields)


def test_a_stream_is_the_journal_if_systemd_says_so_of_it(tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w") as stream, (tmp_path / "other").open("w") as other:
        found = os.fstat(stream.fileno())
        environ = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}

        assert goes_to_journal(stream, environ)
        assert not goes_to_journal(other, environ)
        assert not goes_to_journal(stream, {})
        assert not goes_to_journal(StringIO(), environ)
