"""Builds the parts of health checks, which several other parts share."""

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from agent.apps.counters import AppCounters
from agent.apps.health.checker import HealthChecker
from agent.apps.health.crashes import Crashes
from agent.apps.health.findings import Findings
from agent.apps.health.runs import Runs
from agent.engine.protocol import Engine
from agent.probe import HttpProbe


@dataclass(frozen=True, kw_only=True)
class HealthParts:
    """The checker, its findings, the crashes and runs of apps, and the counters."""

    probe: HttpProbe
    checker: HealthChecker
    findings: Findings
    crashes: Crashes
    runs: Runs
    counters: AppCounters


def build_health(
    *,
    engine: Engine,
    metrics: CollectorRegistry,
    on_change: Callable[[], None],
    clock: Callable[[], float],
    holders: Callable[[str], str],
) -> HealthParts:
    """Return these parts; the counters are among the ``metrics``.

    ``on_change`` is called when an app begins to crash in a loop. ``clock`` returns Unix time,
    ``holders`` the keys that an app belongs to.
    """
    probe = HttpProbe()
    return HealthParts(
        probe=probe,
        checker=HealthChecker(engine=engine, http=probe, holders=holders),
        findings=Findings(),
        crashes=Crashes(on_loop=on_change, clock=clock),
        runs=Runs(),
        counters=AppCounters(metrics),
    )
