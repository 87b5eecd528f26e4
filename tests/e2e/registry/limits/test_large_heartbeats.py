"""A host that sends large heartbeats one after another: beyond its limit they cost little."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.support.daemons import Daemon, Daemons
from tests.support.run.release import some_of

pytestmark = pytest.mark.real

CHANGES_PER_MINUTE = 10
REJECTED = 80
# To receive a body and to compare it with the last one is what is left.
MAX_SHARE = 0.5
LABELS = [f"prometheus:s{number}:l{number}:{'v' * 170}" for number in range(4000)]


@pytest.fixture
def registry(daemons: Daemons) -> Daemon:
    """Return a registry in which each node may change a few times a minute."""
    return daemons.registry(nodes={"changes_per_minute": CHANGES_PER_MINUTE})


def changed_body(number: int) -> bytes:
    """Return a heartbeat that differs from those with other numbers."""
    return msgspec.json.encode({"labels": LABELS, "kv": {"number": f"{number:06}"}})


def rejected_body(number: int) -> bytes:
    """Return a body that is decoded to its end before a mistake is found: a key stands twice."""
    return changed_body(number).replace(b'"kv":{', b'"kv":{"number":"",')


def cpu_seconds(daemon: Daemon) -> float:
    """Return the processor time that a daemon has taken."""
    fields = Path(f"/proc/{daemon.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def send(registry: Daemon, bodies: list[bytes]) -> tuple[list[int], float]:
    """Send heartbeats of one host; return the statuses, and the mean processor time."""
    before = cpu_seconds(registry)
    statuses = [registry.ask("POST", "/nodes/large", data=body).status_code for body in bodies]
    return statuses, (cpu_seconds(registry) - before) / len(bodies)


@pytest.mark.console_script
@pytest.mark.parametrize(
    ("body", "status"),
    some_of(
        [(changed_body, 200), (rejected_body, 400)],
        (changed_body, 200),
        reason="the same limit for bodies with a mistake",
    ),
)
def test_large_heartbeats_beyond_the_limit_cost_little(
    registry: Daemon, body: Callable[[int], bytes], status: int
) -> None:
    statuses, decoded = send(registry, [body(number) for number in range(CHANGES_PER_MINUTE)])
    assert statuses == [status] * CHANGES_PER_MINUTE

    send(registry, [body(number) for number in range(100, 120)])  # of which some fit
    statuses, rejected = send(registry, [body(number) for number in range(200, 200 + REJECTED)])

    assert statuses.count(429) > REJECTED * 0.8
    assert rejected < decoded * MAX_SHARE
