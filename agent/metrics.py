"""What the metrics of the running agent measure: disks, the engine, certificates."""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge
from structlog.typing import FilteringBoundLogger

from agent.apps.metrics.sampler import AppSampler
from agent.reporting.connections import CertificateMonitor
from agent.settings import AgentConfiguration
from httpd.disks import measuring_disks
from httpd.metrics import CertificateMetrics


def measuring_agent_disks(
    metrics: CollectorRegistry,
    configuration: AgentConfiguration,
    sampler: AppSampler,
    log: FilteringBoundLogger,
) -> AbstractAsyncContextManager[None]:
    """Return the context in which the disks are measured that apps and agent fill."""

    def folders() -> Iterable[Path]:
        host = sampler.figures.host  # None until the engine has reported it
        return [configuration.state_directory, *([Path(host.data_root)] if host else [])]

    return measuring_disks(metrics, folders, log)


def show_engine(metrics: CollectorRegistry, problem: Callable[[], str | None]) -> None:
    """Show whether the engine answers: it does while there is no problem."""
    engine_up = Gauge(
        "rollcall_agent_engine_up", "Whether the container engine answers.", registry=metrics
    )
    engine_up.set_function(lambda: float(problem() is None))


def show_labels_left_out(metrics: CollectorRegistry, number: Callable[[], int]) -> None:
    """Show how many labels the last heartbeat left out."""
    left_out = Gauge(
        "rollcall_agent_labels_left_out",
        "Labels that the last heartbeat left out, as they are invalid or do not fit.",
        registry=metrics,
    )
    left_out.set_function(number)


def show_certificates(
    metrics: CollectorRegistry, configuration: AgentConfiguration, monitor: CertificateMonitor
) -> None:
    """Show when the certificates for the registries and those of the API expire."""
    tls = configuration.tls
    metrics.register(CertificateMetrics([monitor.expiries, *([tls.expiries] if tls else [])]))
