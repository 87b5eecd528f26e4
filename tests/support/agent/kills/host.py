"""An agent that is killed at its calls to the engine, and what is left of each operation."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from types import TracebackType
from typing import Self, TypeVar

import docker

from dev.waiting import until
from tests.support.agent.kills.engine_proxy import EngineProxy, Kill
from tests.support.agent.kills.operations import Operation
from tests.support.agent.kills.snapshot import Snapshot
from tests.support.agent.kills.subject import AppImages, Subject
from tests.support.daemons import Daemon

T = TypeVar("T")
STRIKE_SECONDS = 120.0
SWEEP_SECONDS = 120.0
ATTEMPTS = 3
ACCEPTED = 202


class CallNotMade(Exception):
    """The operation ended without the call at which the agent was to be killed."""


class KilledHost:
    """An agent with a way of its own to the engine, and the app that operations are tried on."""

    def __init__(
        self, agent: Daemon, proxy: EngineProxy, client: docker.APIClient, images: AppImages
    ) -> None:
        self._agent, self._proxy = agent, proxy
        self._client, self._images = client, images
        self._subjects = [Subject(agent, client, images)]

    def run_whole(self, operation: Operation) -> list[str]:
        """Run an operation that nobody disturbs; return its changing calls."""
        subject = self._subjects[-1]
        operation.prepare(subject)
        before = subject.snapshot()
        watch = self._proxy.watch()
        answer = operation.request(subject, before)
        assert answer is not None
        assert answer.ok == operation.succeeds, answer.text
        subject.app.settled()
        after, expected = subject.snapshot(), operation.expected(subject, before)
        assert after == expected, after.differences(expected)
        self._proxy.watch()
        return watch.calls

    def run_killed(self, operation: Operation, kill: Kill) -> str:
        """Run an operation with a kill, and what must follow; return what came of it."""
        subject = self._subjects[-1]
        before, promised = self._until_killed(subject, operation, kill)
        self._agent.start()
        subject.app.settled()
        until(lambda: len(subject.app.containers()) < 2, "the sweep", within=SWEEP_SECONDS)
        after, expected = subject.snapshot(), operation.expected(subject, before)
        undone = after == before and not promised
        assert undone or after == expected, after.differences(expected)
        subject.check_changeable()
        return "as before" if after == before else "done"

    def _until_killed(
        self, subject: Subject, operation: Operation, kill: Kill
    ) -> tuple[Snapshot, bool]:
        """Run an operation up to the kill; return the app before, and whether it was promised.

        An app that crashes sooner or later may spare a call, so that the number is not reached.
        """
        calls: list[list[str]] = []
        while len(calls) < ATTEMPTS:
            operation.prepare(subject)
            before = subject.snapshot()
            watch = self._proxy.watch(kill, self._agent.kill)
            answer = operation.request(subject, before)
            promised = answer is not None and answer.status_code == ACCEPTED
            if answer is None or promised:
                assert watch.struck.wait(STRIKE_SECONDS), f"only {watch.calls}"
                self._proxy.watch()
                return before, promised
            self._proxy.watch()
            calls.append(watch.calls)
        raise CallNotMade(f"call {kill.number} was not made: {calls}")

    def renew(self) -> None:
        """Go on with another app."""
        self._proxy.watch()
        if not self._agent.is_running:
            self._agent.start()
        self._subjects.append(Subject(self._agent, self._client, self._images))

    def clean(self) -> None:
        """Take away all apps."""
        for subject in self._subjects:
            subject.delete()


class KilledHosts:
    """Hosts of which any that is free runs what is submitted, in threads, in order."""

    def __init__(self, hosts: Sequence[KilledHost]) -> None:
        self._free = SimpleQueue[KilledHost]()
        self._pool = ThreadPoolExecutor(len(hosts))
        for host in hosts:
            self._free.put(host)

    def submit(self, work: Callable[[KilledHost], T]) -> Future[T]:
        """Run something on a host; where it fails, the host goes on with another app."""
        return self._pool.submit(self._run, work)

    def _run(self, work: Callable[[KilledHost], T]) -> T:
        host = self._free.get()
        try:
            return work(host)
        except BaseException:
            host.renew()
            raise
        finally:
            self._free.put(host)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drop what has not begun, and wait for the rest."""
        self._pool.shutdown(cancel_futures=True)
