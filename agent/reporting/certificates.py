"""Warns about renewed certificate files that cannot be used, long before the old ones expire."""

from collections.abc import Iterable

from structlog.typing import FilteringBoundLogger

from agent.reporting.connections import RegistryConnection


class CertificateMonitor:
    """Checks the TLS files of each registry connection at each ``tick``.

    A fault is logged once, at the second tick that finds it: at the first one the renewal may be
    half written.
    """

    def __init__(
        self, connections: Iterable[RegistryConnection], *, log: FilteringBoundLogger
    ) -> None:
        self._files = [
            (connection.url, connection.client_tls)
            for connection in connections
            if connection.client_tls is not None
        ]
        self._log = log
        self._seen: dict[str, str] = {}
        self._logged: dict[str, str] = {}

    async def tick(self) -> None:
        """Load the files that changed, and log new faults and their ends."""
        for url, client_tls in self._files:
            fault = client_tls.renew()
            if fault is None:
                self._forget(url)
            elif self._seen.get(url) == fault != self._logged.get(url):
                self._logged[url] = fault
                self._log.warning(
                    "renewed certificate files cannot be used, the old ones stay in use",
                    registry=url,
                    reason=fault,
                )
            else:
                self._seen[url] = fault

    def _forget(self, url: str) -> None:
        self._seen.pop(url, None)
        if self._logged.pop(url, None) is not None:
            self._log.info("certificate files can be used again", registry=url)
