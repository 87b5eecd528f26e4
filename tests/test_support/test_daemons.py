import os
import signal
from pathlib import Path

import pytest

from tests.support.daemons import Daemons, FreePort

pytestmark = pytest.mark.real


def test_a_daemon_that_does_not_end_in_order_is_told_of_and_none_is_left(
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
