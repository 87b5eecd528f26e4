"""The wiring of the roll call: a line, a ledger and a reporter for each registry."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import SystemRandom

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from agent.backoff import Backoff
from agent.identity import Identity
from agent.presence import Presence
from agent.registries import Line
from agent.reporter import Reporter
from agent.roll_call import Words
from agent.standing import HeartbeatMetrics, Ledger
from agent.status import Status, StatusFile


class Reporting:
    """Makes what reports to each registry, and writes down how this host stands with them."""

    def __init__(
        self,
        *,
        words: Words,
        hostname: str,
        interval_seconds: float,
        identity: Identity,
        presence: Presence,
        status_file: StatusFile,
        metrics: CollectorRegistry,
        log: FilteringBoundLogger,
    ) -> None:
        self._words = words
        self._hostname = hostname
        self._interval = interval_seconds
        self._identity = identity
        self._presence = presence
        self._status_file = status_file
        self._metrics = HeartbeatMetrics(metrics)
        self._log = log
        self._started_at = time.time()
        self._ledgers: list[Ledger] = []

    @asynccontextmanager
    async def reporters(self, lines: Sequence[Line]) -> AsyncIterator[list[Reporter]]:
        """Open the lines, and give a reporter for each."""
        async with AsyncExitStack() as stack:
            for line in lines:
                await stack.enter_async_context(line.client)
            reporters = [self._reporter(line) for line in lines]
            self._write_down()
            yield reporters

    def _reporter(self, line: Line) -> Reporter:
        ledger = Ledger(
            url=line.url,
            metrics=self._metrics,
            clock=time.time,
            monotonic=time.monotonic,
            changed=self._write_down,
            log=self._log,
        )
        self._ledgers.append(ledger)
        return Reporter(
            url=line.url,
            registry=line.client,
            hostname=self._hostname,
            heartbeat=self._words.heartbeat,
            key=line.key,
            interval_seconds=self._interval,
            backoff=Backoff(longest_seconds=self._interval, random=SystemRandom()),
            identity=self._identity,
            presence=self._presence,
            ledger=ledger,
            monotonic=time.monotonic,
            log=self._log,
        )

    def _write_down(self) -> None:
        self._status_file.write(
            Status(
                agent_id=self._identity.id,
                started_at=self._started_at,
                hosting=self._words.last_hosting,
                registries=[ledger.standing for ledger in self._ledgers],
            )
        )
