"""Certificate files for registries: when they expire, and whether renewed ones can be used."""

from collections.abc import Iterable
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from agent.reporting.connections import RegistryGroup
from runtime.certificates import expiries


class CertificateMonitor:
    """Checks the TLS files of each group of registries at each ``tick``.

    A fault is logged once, at the second tick that finds it: at the first one the renewal may be
    half written.
    """

    def __init__(self, groups: Iterable[RegistryGroup], *, log: FilteringBoundLogger) -> None:
        self._files = [
            (", ".join(group.urls), group.client_tls)
            for group in groups
            if group.client_tls is not None
        ]
        self._log = log
        self._seen: dict[str, str] = {}
        self._logged: dict[str, str] = {}

    def expiries(self) -> dict[Path, float]:
        """Return when the files that are in use expire, as Unix times."""
        found: dict[Path, float] = {}
        for _, client_tls in self._files:
            found |= expiries(client_tls.validities)
        return found

    async def tick(self) -> None:
        """Load the files that changed, and log new faults and their ends."""
        for urls, client_tls in self._files:
            fault = client_tls.renew()
            if fault is None:
                self._forget(urls)
            elif self._seen.get(urls) == fault != self._logged.get(urls):
                self._logged[urls] = fault
                self._log.warning(
                    "renewed certificate files cannot be used, the old ones stay in use",
                    registry=urls,
                    reason=fault,
                )
            else:
                self._seen[urls] = fault

    def _forget(self, urls: str) -> None:
        self._seen.pop(urls, None)
        if self._logged.pop(urls, None) is not None:
            self._log.info("certificate files can be used again", registry=urls)
