import os
import signal
from pathlib import Path
from traceback import format_exception

import pytest

from tests.support.daemons import Daemons, FreePort

pytestmark = pytest.mark.real


def test_a_daemon_that_does_not_end_in_order_is_reported_and_none_is_left(
    tmp_path: Path, free_port: FreePort
) -> None:
    pids: list[int] = []

    def use_three() -> None:
        with Daemons(folder=tmp_path, free_port=free_port) as daemons:
            first, stuck, last = [daemons.registry() for _ in range(3)]
            pids.extend(daemon.pid for daemon in (first, stuck, last))
            stuck.stop_seconds = 0.2
            os.kill(stuck.pid, signal.SIGSTOP)

    with pytest.raises(AssertionError, match="SIGTERM did not end it"):
        use_three()

    assert [Path(f"/proc/{pid}").exists() for pid in pids] == [False] * 3


def test_what_a_test_failed_at_is_shown_beside_a_daemon_that_does_not_end(
    tmp_path: Path, free_port: FreePort
) -> None:
    own = ValueError("the test's own")

    def fail() -> None:
        with Daemons(folder=tmp_path, free_port=free_port) as daemons:
            stuck = daemons.registry()
            stuck.stop_seconds = 0.2
            stuck.freeze()
            raise own

    with pytest.raises(AssertionError, match="SIGTERM did not end it") as failed:
        fail()

    assert "ValueError: the test's own" in "".join(format_exception(failed.value))
