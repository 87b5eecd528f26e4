"""Which registry of a group gets the heartbeats, and under which names it knows this host."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from structlog.typing import FilteringBoundLogger

from agent.reporting.connections import RegistryGroup
from agent.reporting.heartbeat import BuildHeartbeat
from agent.reporting.status import HeartbeatRecorder
from agent.state.files import IdentityError
from agent.state.identity import Identity
from clients.errors import HostnameTaken, NotFound, NotPermitted, RegistryError, TooSlow
from clients.message import Heartbeat
from clients.registry import RegistryClient

MAX_RETRY_AFTER_SECONDS = 300.0
# The time that the last report reserves for sending; the rest is for asking a slow engine.
SEND_SECONDS = 0.5


class Failover:
    """Sends each heartbeat to the registry that the agent stays with, or to one in its place.

    It begins with the first of the group. When that one fails, the others are asked one after
    another, in the order of the group, each within the time limit of its client. The agent moves to
    the first that takes the heartbeat, and stays there, also when the former one is back. While all
    fail it moves nowhere. An answer that each of them would give (``RegistryError.final``) ends the
    attempt. A registry's Retry-After is honoured up to five minutes.

    The hostname is saved in the identity before it is first used, so that after a rename the agent
    knows which nodes are its own, and removes them: for all of the group, as they may share a
    store. A name that the registry does not permit at its first use was never a node, and is not
    kept. A problem with a name is logged once.
    """

    def __init__(
        self,
        *,
        group: RegistryGroup,
        hostname: str,
        identity: Identity,
        recorder: HeartbeatRecorder,
        log: FilteringBoundLogger,
    ) -> None:
        self._group = group
        self._hostname = hostname
        self._identity = identity
        self.recorder = recorder
        self._log = log
        self._warned: set[tuple[str, str]] = set()
        self._first_used_at: list[str] = []
        self._clients = group.clients
        self._current = self._clients[0]
        # From when on each may be asked again, after a Retry-After; by the event loop's clock.
        self._open_at = dict.fromkeys((each.url for each in self._clients), 0.0)

    @property
    def url(self) -> str:
        """The URL of the registry that the agent stays with."""
        return self._current.url

    async def report(
        self,
        heartbeat: BuildHeartbeat,
        *,
        is_deregistered: Callable[[], bool],
        within_seconds: float | None = None,
    ) -> float | None:
        """Send a heartbeat; return None if a registry took it, else the seconds to wait at least.

        ``heartbeat`` builds it, again for each registry that is asked. If that fails, the failures
        of the registries before are recorded. After a deregistration no further registry is asked,
        since `deregister` waits only so long for the end of an attempt.

        ``within_seconds`` is the time for the last report: each registry that is left to be asked
        gets an equal share of what remains. The heartbeat leaves SEND_SECONDS of it, or half of a
        share that is shorter than twice that: the engine may be frozen. Former names of the host
        are left to the next start.
        """
        clock, failures = asyncio.get_running_loop(), dict[str, RegistryError]()
        until = None if within_seconds is None else clock.time() + within_seconds
        candidates = self._candidates(clock.time())
        for number, client in enumerate(candidates):
            share = None if until is None else (until - clock.time()) / (len(candidates) - number)
            try:
                seconds = await self._attempt(client, heartbeat, share)
            except RegistryError as failure:
                failures[client.url] = failure
                if failure.final:
                    break
                self._open_at[client.url] = clock.time() + _pause(failure)
                if is_deregistered():
                    break
            except Exception:
                self.recorder.failed(failures)
                raise
            else:
                self._current = client
                self.recorder.taken(client.url, seconds, failures)
                await self._disconnect_others()
                if until is None:
                    await self._remove_former_names(client)
                return None
        self.recorder.failed(failures)
        await self._disconnect_others()
        last = next(reversed(failures.values()))
        return _pause(last) if last.final else self._seconds_closed(clock.time())

    def _candidates(self, now: float) -> list[RegistryClient]:
        """Return which registries to ask, in order: those that may be asked, or the first to be."""
        now = max(now, min(self._open_at.values()))
        others = (each for each in self._clients if each is not self._current)
        return [each for each in (self._current, *others) if self._open_at[each.url] <= now]

    def _seconds_closed(self, now: float) -> float:
        return max(0.0, min(self._open_at.values()) - now)

    async def _attempt(
        self,
        client: RegistryClient,
        heartbeat: BuildHeartbeat,
        share: float | None,
    ) -> float:
        """Send a heartbeat to a registry; return the seconds that its answer took."""
        if share is None:
            return await self._send(client, await heartbeat(None))
        try:
            async with asyncio.timeout(share):
                return await self._send(client, await heartbeat(_engine_seconds(share)))
        except TimeoutError as error:
            raise TooSlow(f"no answer within {share:.2g} s when the agent ended") from error

    async def _send(self, client: RegistryClient, heartbeat: Heartbeat) -> float:
        clock = asyncio.get_running_loop()
        self.claim()
        started = clock.time()
        await self._report(client, heartbeat)
        return clock.time() - started

    def claim(self) -> None:
        """Save the hostname and its key before a heartbeat; BadFile if the key cannot be read."""
        key = self._group.key()
        urls = self._group.urls
        self._first_used_at = [
            url for url in urls if not self._identity.has_name(url, self._hostname)
        ]
        for url in urls:
            try:
                self._identity.claim(url, self._hostname, key)
            except IdentityError as error:
                # The heartbeat matters more than the record that a later rename needs.
                self._warn_once(url, "", "hostname not saved", reason=str(error))

    async def _report(self, client: RegistryClient, heartbeat: Heartbeat) -> None:
        try:
            await client.report(self._hostname, heartbeat)
        except NotPermitted:
            with suppress(IdentityError):  # then it counts as a former name
                for url in self._first_used_at:
                    self._identity.release(url, self._hostname)
            raise

    async def _remove_former_names(self, client: RegistryClient) -> None:
        """Delete the nodes with this host's former names, except those that other hosts have now.

        What fails for a transient reason is tried again at the next call. What the registry rejects
        is logged, and tried again after the next start.
        """
        url = client.url
        for name in self._identity.other_names(url, self._hostname):
            if (url, name) in self._warned:
                continue
            try:
                await self._remove(client, name)
            except RegistryError as failure:
                if not failure.transient:
                    self._warn_once(
                        url, name, "former name not removed", node=name, reason=str(failure)
                    )
            except IdentityError as error:
                self._warn_once(url, name, "former name not released", node=name, reason=str(error))

    async def _remove(self, client: RegistryClient, name: str) -> None:
        url = client.url
        key = self._identity.node_key(url, name)
        with suppress(NotFound, HostnameTaken):
            await client.forget(name, agent_id=self._identity.id, key=key)
        self._identity.release(url, name)
        self._log.info("former name removed", registry=url, node=name)

    def _warn_once(self, url: str, name: str, event: str, **fields: str) -> None:
        if (url, name) not in self._warned:
            self._warned.add((url, name))
            self._log.warning(event, registry=url, **fields)

    async def _disconnect_others(self) -> None:
        """Keep no connection to a registry that the agent does not stay with."""
        for client in self._clients:
            if client is not self._current:
                await client.disconnect()


def _engine_seconds(share: float) -> float:
    return max(share - SEND_SECONDS, share / 2)


def _pause(failure: RegistryError) -> float:
    return min(failure.retry_after_seconds or 0.0, MAX_RETRY_AFTER_SECONDS)
