"""Shows when the certificates that a daemon uses expire."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Expiries = Mapping[Path, float]


class CertificateMetrics(Collector):
    """Shows when files of certificates expire; each source returns Unix times by file."""

    def __init__(self, sources: Sequence[Callable[[], Expiries]]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Yield the metric, with a series for each file."""
        family = GaugeMetricFamily(
            "rollcall_certificate_expiry_timestamp_seconds",
            "When a file of certificates that is in use expires.",
            labels=["file"],
        )
        expiries: dict[Path, float] = {}
        for source in self._sources:
            for file, at in source().items():
                # One source may still use what the file held before.
                expiries[file] = min(at, expiries.get(file, at))
        for file, at in expiries.items():
            family.add_metric([str(file)], at)
        yield family
