"""A run of random faults that lacks some of them has failed."""

from collections.abc import Collection
from pathlib import Path
from random import Random

from tests.chaos.__main__ import Run
from tests.support.daemons import FreePort
from tests.support.registry.load.load import Load
from tests.support.registry.nats.faults import LOSSES, Parts
from tests.support.registry.nats.servers import NatsCluster


def left_out(folder: Path, free_port: FreePort, only: Collection[str] | None) -> list[str]:
    """Return what a run that has not begun lacks, without disks and clocks."""
    parts = Parts(NatsCluster(folder=folder / "nats", free_port=free_port), [], [])
    return Run(parts, Load([], hosts=1, seed=1), Random(1), only=only).left_out()


def test_faults_that_had_to_happen_are_named(tmp_path: Path, free_port: FreePort) -> None:
    names = sorted(fault.__name__ for fault in LOSSES)

    assert left_out(tmp_path, free_port, None) == [f"{name} never happened" for name in names]


def test_so_are_those_that_were_asked_for(tmp_path: Path, free_port: FreePort) -> None:
    found = left_out(tmp_path, free_port, ["kill_leader", "fill_disk", "misspelt"])

    assert found == [f"{name} never happened" for name in ("fill_disk", "kill_leader", "misspelt")]
