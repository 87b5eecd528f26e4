"""The size of a database's log is shown, and one that stays long is logged."""

import sqlite3
from contextlib import closing
from pathlib import Path

from prometheus_client import CollectorRegistry
from structlog import wrap_logger
from structlog.testing import CapturingLogger

from httpd.write_ahead_log import LONG_LOG_BYTES, MIB, LogWatch, WriteAheadLog


def test_a_log_that_stays_long_is_logged_once_and_when_it_is_short_again(tmp_path: Path) -> None:
    lines = CapturingLogger()
    metrics = CollectorRegistry()
    watch = LogWatch(metrics, tmp_path / "a.db", wrap_logger(lines, processors=[]))
    log = tmp_path / "a.db-wal"
    watch.look()
    for size in (100, 100, 100, 1, 100, 1):
        with log.open("wb") as file:
            file.truncate(size * MIB)
        watch.look()

    reported = [(call.method_name, call.kwargs["event"]) for call in lines.calls]
    assert reported == [
        ("warning", "database log cannot be written back"),
        ("info", "database log short again"),
    ]
    assert lines.calls[0].kwargs["mebibytes"] == 100
    assert metrics.get_sample_value("rollcall_database_log_bytes") == MIB
    assert metrics.get_sample_value("rollcall_database_log_long_bytes") == LONG_LOG_BYTES


def test_a_disk_that_cannot_be_measured_fails_no_transaction(tmp_path: Path) -> None:
    log = WriteAheadLog(tmp_path / "gone" / "a.db")
    with closing(sqlite3.connect(":memory:")) as connection:
        assert not log.shorten(connection)
        log.is_blocked = True
        log.require_room(connection, MIB)
