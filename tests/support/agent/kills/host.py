"""Faults of an agent at its calls to the engine, and checks of each operation's outcome."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Self, TypeVar

import docker
import requests

from dev.waiting import until
from tests.support.agent.kills.engine_proxy import Call, EngineProxy, Fault, Watch
from tests.support.agent.kills.operation import Operation
from tests.support.agent.kills.snapshot import Snapshot
from tests.support.agent.kills.subject import ATTEMPTS, AppImages, Subject, engine_was_slow
from tests.support.daemons import Daemon

T = TypeVar("T")
STRIKE_SECONDS = 120.0
SWEEP_SECONDS = 120.0


@dataclass(frozen=True)
class Attempt:
    """An operation that was run: the app before, the changing calls, and the answer if it came."""

    before: Snapshot
    watch: Watch
    answer: requests.Response | None


def repeated(attempt: Callable[[], Attempt], settle: Callable[[], None]) -> Attempt:
    """Return the first attempt whose fault struck, or at which the engine was not slow.

    ``settle`` is called before each further attempt. The last of ATTEMPTS is returned in any case.
    """
    made, attempts = attempt(), 1
    while engine_was_slow(made.answer) and not made.watch.struck.is_set() and attempts < ATTEMPTS:
        settle()
        made, attempts = attempt(), attempts + 1
    return made


class KilledHost:
    """An agent with a proxy of its own before the engine, and the app that it changes."""

    def __init__(
        self, agent: Daemon, proxy: EngineProxy, client: docker.APIClient, images: AppImages
    ) -> None:
        self._agent, self._proxy = agent, proxy
        self._client, self._images = client, images
        self._subjects = [self._new_subject()]

    def _new_subject(self) -> Subject:
        return Subject(self._agent, self._client, self._images, self._proxy)

    def run_whole(self, operation: Operation) -> list[Call]:
        """Run an operation without a fault; return its changing calls."""
        subject = self._subjects[-1]
        attempt = self._repeated(subject, operation)
        before, answer = attempt.before, attempt.answer
        assert answer is not None
        assert answer.ok == operation.succeeds, answer.text
        operation.settle(subject)
        _until_nothing_reads(subject)
        after, expected = subject.snapshot(), operation.expected(subject, before)
        assert after == expected, after.differences(expected)
        self._proxy.watch()
        return attempt.watch.calls

    def _repeated(
        self, subject: Subject, operation: Operation, fault: Fault | None = None
    ) -> Attempt:
        """Run an operation, again where the engine was slow before the fault."""

        def attempt() -> Attempt:
            operation.prepare(subject)
            before = subject.snapshot()
            watch = self._proxy.watch(fault, self._agent.kill)
            return Attempt(before, watch, operation.request(subject, before))

        def settle() -> None:
            self._without_fault()
            subject.app.swept()

        return repeated(attempt, settle)

    def _without_fault(self) -> None:
        self._proxy.watch()
        if not self._agent.is_running:
            self._agent.start()

    def run_with_fault(self, operation: Operation, fault: Fault) -> str:
        """Run an operation with a fault, restart an agent that was killed, and check the app.

        Returns:
            ``done`` or ``as before``: the state of the app.

        """
        subject = self._subjects[-1]
        before, answer = self._until_fault(subject, operation, fault)
        if not self._agent.is_running:
            self._agent.start()
        operation.settle(subject)
        until(lambda: len(subject.app.containers()) < 2, "the sweep", within=SWEEP_SECONDS)
        _until_nothing_reads(subject)
        after, expected = subject.snapshot(), operation.expected(subject, before)
        is_before = after in operation.undone(before)
        undone = is_before and not _promised(answer)
        assert undone or after == expected, after.differences(expected)
        subject.check_changeable()
        return "as before" if is_before else "done"

    def _until_fault(
        self, subject: Subject, operation: Operation, fault: Fault
    ) -> tuple[Snapshot, requests.Response | None]:
        """Run an operation up to the fault; return the app before, and the answer if it came."""
        attempt = self._repeated(subject, operation, fault)
        watch = attempt.watch
        assert watch.struck.wait(STRIKE_SECONDS), f"the call was not made, only {watch.calls}"
        self._proxy.watch()
        return attempt.before, attempt.answer

    def renew(self) -> None:
        """Continue with another app."""
        self._without_fault()
        self._subjects.append(self._new_subject())

    def clean(self) -> None:
        """Delete all apps."""
        for subject in self._subjects:
            subject.delete()


class KilledHosts:
    """A pool of hosts: each runs one piece of work at a time, in the order of submission."""

    def __init__(self, hosts: Sequence[KilledHost]) -> None:
        self._free = SimpleQueue[KilledHost]()
        self._pool = ThreadPoolExecutor(len(hosts))
        for host in hosts:
            self._free.put(host)

    def submit(self, work: Callable[[KilledHost], T]) -> Future[T]:
        """Run ``work`` on a free host; if it fails, the host continues with another app."""
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
        """Cancel what has not begun, and wait for the rest."""
        self._pool.shutdown(cancel_futures=True)


def _until_nothing_reads(subject: Subject) -> None:
    """Wait until the containers by which data was read are removed."""
    until(lambda: subject.app.readers() == [], "the end of what reads", within=SWEEP_SECONDS)


def _promised(answer: requests.Response | None) -> bool:
    """Return whether the agent answered that the change is made, or will be."""
    return answer is not None and answer.ok
