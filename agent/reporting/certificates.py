"""Renewed certificate files that are no good, told long before the old ones expire."""

from collections.abc import Mapping

from structlog.typing import FilteringBoundLogger

from registry.client.client import ClientTls


class CertificateMonitor:
    """Looks at the files of each registry, by its URL, whenever it is called.

    A fault that is there at two looks is told, once: at the first the files may be half written.
    """

    def __init__(self, trusts: Mapping[str, ClientTls], *, log: FilteringBoundLogger) -> None:
        self._trusts = trusts
        self._log = log
        self._seen: dict[str, str] = {}
        self._logged: dict[str, str] = {}

    async def tick(self) -> None:
        """Look."""
        for url, client_tls in self._trusts.items():
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
