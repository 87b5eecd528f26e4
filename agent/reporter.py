"""Telling one registry what this host is, as long as the agent runs."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from agent.backoff import Backoff
from agent.identity import Identity, IdentityError
from agent.presence import Presence
from agent.standing import Ledger
from registry.client import CloneRefused, Node, NotFound, RegistryFailure
from registry.heartbeat import Heartbeat

# A burst of changes ends with so much quiet, or is cut off, so that a change is told in a second.
QUIET_SECONDS = 0.15
LONGEST_BURST_SECONDS = 0.6
GRACE_SECONDS = 1.0


class Registry(Protocol):
    """The registry, as the reporter needs it; each method raises RegistryFailure."""

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

    ``call`` asks for a report, and any number of calls in a burst make one. Without a call it
    reports every ``interval_seconds`` by the monotonic clock, since the schedule that calls it goes
    by a wall clock that may be set back. While the registry is away, attempts follow the back-off
    alone, and nothing is queued: what is sent is what is true at that moment.
    """

    def __init__(
        self,
        *,
        url: str,
        registry: Registry,
        hostname: str,
        heartbeat: Callable[[], Awaitable[Heartbeat]],
        key: Callable[[], str],
        interval_seconds: float,
        backoff: Backoff,
        identity: Identity,
        presence: Presence,
        ledger: Ledger,
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
        self._presence = presence
        self._ledger = ledger
        self._monotonic = monotonic
        self._log = log.bind(registry=url)
        self._called = asyncio.Event()
        self._given_up: set[str] = set()
        self._silent = False

    def call(self) -> None:
        """Ask for a report, since something has changed."""
        self._called.set()

    async def tick(self) -> None:
        """Ask for a report, since the time has come."""
        self._called.set()

    async def run(self) -> None:
        """Report at once and from then on, until cancelled."""
        while True:
            try:
                pause = await self._report()
            except Exception as error:  # whatever it is, the next heartbeat may work
                pause = self._backoff.pause()
                with suppress(Exception):  # nor does a log that cannot be written end this
                    self._ledger.broken(error)
            if pause is None:
                await self._next_call()
            else:
                await asyncio.sleep(pause)

    async def _next_call(self) -> None:
        await self._wait_for_call(self._interval + GRACE_SECONDS)
        end = self._monotonic() + LONGEST_BURST_SECONDS
        while self._called.is_set() and self._monotonic() < end:
            self._called.clear()
            await self._wait_for_call(QUIET_SECONDS)

    async def _wait_for_call(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._called.wait()

    async def _report(self) -> float | None:
        """Report once; give the seconds until the next attempt where this one failed."""
        self._called.clear()
        with self._presence.speaking() as may_speak:
            if not may_speak:
                self._tell_silence()
                return None
            try:
                await self._say()
            except RegistryFailure as failure:
                self._ledger.failed(failure)
                return self._backoff.pause(failure.retry_after_seconds)
            self._backoff.reset()
            await self._drop_other_names()
        return None

    async def _say(self) -> None:
        heartbeat = await self._heartbeat()
        self._claim()
        started = self._monotonic()
        await self._registry.report(self._hostname, heartbeat)
        self._ledger.taken(self._monotonic() - started)

    def _claim(self) -> None:
        try:
            self._identity.claim(self._url, self._hostname, self._key())
        except IdentityError as error:
            # What the registry is told matters more than what a later rename will know.
            self._warn_once("claim", "the name cannot be written down", reason=str(error))

    async def _drop_other_names(self) -> None:
        """Take out what this host was called before; a name that others hold by now stays."""
        for name in self._identity.other_names(self._url, self._hostname):
            if name in self._given_up:
                continue
            try:
                await self._drop(name)
            except RegistryFailure as failure:
                if not failure.passing:
                    self._warn_once(name, "old name not taken out", node=name, reason=str(failure))
            except IdentityError as error:
                self._warn_once(name, "old name not struck off", node=name, reason=str(error))

    async def _drop(self, name: str) -> None:
        key = self._identity.key_of(self._url, name)
        with suppress(NotFound, CloneRefused):
            await self._registry.forget(name, agent_id=self._identity.id, key=key)
        self._identity.release(self._url, name)
        self._log.info("old name taken out", node=name)

    def _warn_once(self, topic: str, event: str, **more: str) -> None:
        if topic not in self._given_up:
            self._given_up.add(topic)
            self._log.warning(event, **more)

    def _tell_silence(self) -> None:
        if not self._silent:
            self._silent = True
            self._log.warning("taken out by `rollcall-agent deregister`: silent until restarted")
