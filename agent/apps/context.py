"""What the parts of the apps share."""

from collections.abc import Callable
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from agent.apps.counters import AppCounters
from agent.apps.defaults import AppDefaults
from agent.apps.health import AppHealth
from agent.apps.ownership.ownership import Ownership
from agent.apps.repository.repository import AppRepository
from agent.engine.engine import Engine


@dataclass(frozen=True, kw_only=True)
class AgentContext:
    """What the parts of the apps share: made once for the agent, and anew for each dry run.

    ``clock`` returns Unix time. ``on_change`` is called after each change of the apps, their labels
    or their states, those made by others included, and when the engine goes or comes.
    """

    engine: Engine
    repository: AppRepository
    ownership: Ownership
    defaults: AppDefaults
    health: AppHealth
    counters: AppCounters
    log: FilteringBoundLogger
    clock: Callable[[], float]
    on_change: Callable[[], None]
