"""Telling one registry what this host is, as long as the agent runs."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from agent.reporting.backoff import Backoff
from agent.reporting.registry_status import RegistryStatusRecorder
from agent.state.deregistration import Deregistration
from agent.state.identity import Identity, IdentityError
from registry.client.client import CloneRefused, Node, NotFound, RegistryError
from registry.message import Heartbeat

# A burst of changes ends with so much quiet, or is cut off, so that a change is told in a second.
DEBOUNCE_SECONDS = 0.15
MAX_DEBOUNCE_SECONDS = 0.6
GRACE_SECONDS = 1.0


class RegistryApi(Protocol):
    """The registry, as the reporter needs it; each method raises RegistryError."""

    async def report(self, hostname: str, heartbeat: Heartbeat) -> Node:
        """Say what a host is."""
        ...

    async def forget(
        self, hostname: str, *, agent_id: str | None = None, key: str | None = None
    ) -> None:
        """Take a host out; with ``agent_id`` only where no other identity holds the name."""
        ...


class Reporter:
    """Reports to one registry, whatever becomes of the others.

    ``request_report`` asks for a report, and any number of calls in a burst make one. Without a
    call it reports every ``interval_seconds`` by the monotonic clock, since the schedule that calls
    it goes by a wall clock that may be set back. While the registry is away, attempts follow the
    back-off alone, and nothing is queued: what is sent is what is true at that moment.
    """

    def __init__(
        self,
        *,
        url: str,
        registry: RegistryApi,
        hostname: str,
        heartbeat: Callable[[], Awaitable[Heartbeat]],
        key: Callable[[], str],
        interval_seconds: float,
        backoff: Backoff,
        identity: Identity,
        deregistration: Deregistration,
        recorder: RegistryStatusRecorder,
        monotonic: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._url = url
        self._registry = registry
        self._hostname = hostname
        self._heartbeat = heartbeat
        self._key = key
        self._interval = interval_seconds
        self._backoff = backoff
        self._identity = identity
        self._deregistration = deregistration
        self._recorder = recorder
        self._monotonic = monotonic
        self._log = log.bind(registry=url)
        self._report_requested = asyncio.Event()
        self._warned: set[str] = set()
        self._deregistered_logged = False

    def request_report(self) -> None:
        """Ask for a report, since something has changed."""
        self._report_requested.set()

    async def tick(self) -> None:
        """Ask for a report, since the time has come."""
        self._report_requested.set()

    async def run(self) -> None:
        """Report at once and from then on, until cancelled."""
        while True:
            try:
                pause = await self._report()
            except Exception as error:  # whatever it is, the next heartbeat may work
                pause = self._backoff.pause()
                with suppress(Exception):  # nor does a log that cannot be written end this
                    self._recorder.broken(error)
            if pause is None:
                await self._next_request()
            else:
                await asyncio.sleep(pause)

    async def _next_request(self) -> None:
        await self._wait_for_request(self._interval + GRACE_SECONDS)
        end = self._monotonic() + MAX_DEBOUNCE_SECONDS
        while self._report_requested.is_set() and self._monotonic() < end:
            self._report_requested.clear()
            await self._wait_for_request(DEBOUNCE_SECONDS)

    async def _wait_for_request(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._report_requested.wait()

    async def _report(self) -> float | None:
        """Report once; give the seconds until the next attempt where this one failed."""
        self._report_requested.clear()
        with self._deregistration.permit() as may_report:
            if not may_report:
                self._log_deregistered()
                return None
            try:
                await self._send_heartbeat()
            except RegistryError as failure:
                self._recorder.failed(failure)
                return self._backoff.pause(failure.retry_after_seconds)
            self._backoff.reset()
            await self._remove_other_names()
        return None

    async def _send_heartbeat(self) -> None:
        heartbeat = await self._heartbeat()
        self._claim()
        started = self._monotonic()
        await self._registry.report(self._hostname, heartbeat)
        self._recorder.taken(self._monotonic() - started)

    def _claim(self) -> None:
        try:
            self._identity.claim(self._url, self._hostname, self._key())
        except IdentityError as error:
            # What the registry is told matters more than what a later rename will know.
            self._warn_once("claim", "the name cannot be written down", reason=str(error))

    async def _remove_other_names(self) -> None:
        """Take out what this host was called before; a name that others hold by now stays."""
        for name in self._identity.other_names(self._url, self._hostname):
            if name in self._warned:
                continue
            try:
                await self._remove_name(name)
            except RegistryError as failure:
                if not failure.transient:
                    self._warn_once(name, "old name not taken out", node=name, reason=str(failure))
            except IdentityError as error:
                self._warn_once(name, "old name not struck off", node=name, reason=str(error))

    async def _remove_name(self, name: str) -> None:
        key = self._identity.node_key(self._url, name)
        with suppress(NotFound, CloneRefused):
            await self._registry.forget(name, agent_id=self._identity.id, key=key)
        self._identity.release(self._url, name)
        self._log.info("old name taken out", node=name)

    def _warn_once(self, topic: str, event: str, **more: str) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            self._log.warning(event, **more)

    def _log_deregistered(self) -> None:
        if not self._deregistered_logged:
            self._deregistered_logged = True
            self._log.warning("taken out by `rollcall-agent deregister`: silent until restarted")
