"""Builds the parts of health checks, which several other parts share."""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from agent.apps.counters import AppCounters
from agent.apps.health.checker import HealthChecker
from agent.apps.health.findings import Findings
from agent.engine.protocol import Engine
from agent.probe import HttpProbe


@dataclass(frozen=True, kw_only=True)
class HealthParts:
    """The checker, its findings and the counters."""

    probe: HttpProbe
    checker: HealthChecker
    findings: Findings
    counters: AppCounters


def build_health(*, engine: Engine, metrics: CollectorRegistry) -> HealthParts:
    """Return these parts; the counters are among the ``metrics``."""
    probe = HttpProbe()
    return HealthParts(
        probe=probe,
        checker=HealthChecker(engine=engine, http=probe),
        findings=Findings(),
        counters=AppCounters(metrics),
    )
