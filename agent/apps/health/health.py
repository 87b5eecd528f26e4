"""What is known of how apps run."""

from dataclasses import dataclass

from agent.apps.health.checker import HealthChecker
from agent.apps.health.crashes import Crashes
from agent.apps.health.findings import Findings
from agent.apps.health.runs import Runs


@dataclass(frozen=True, kw_only=True)
class Health:
    """The checks of apps and what they found, the crashes and the runs of apps."""

    checker: HealthChecker
    findings: Findings
    crashes: Crashes
    runs: Runs
