"""Runs of operations with a fault at each of their calls that change something at the engine.

Each operation is run without a fault, then once for each fault: one of the four faults at each
call, in turns, and a kill after the last call. Of an operation whose calls are mostly those of
another one, only the calls that differ get a fault. ``ROLLCALL_FAULTS=all`` takes all four at each
call instead. A sample is one fault of some operations, without a run that has none.
``ROLLCALL_OPERATION=rebuild`` takes only the operation of that name, or if there is none, those
with that in their names; if no test has any, each of them fails.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import Literal

from tests.support.agent.kills.engine_proxy import ANSWERS, KILLS, PULL, Call, Fault, Moment
from tests.support.agent.kills.host import KilledHost, KilledHosts
from tests.support.agent.kills.operation import Operation
from tests.support.agent.kills.operations import EVERY_OPERATION

LOG = logging.getLogger(__name__)
Check = Callable[[Sequence[Operation]], None]
Choice = Literal["in turns", "all"]
CHOICE: Choice = "all" if os.environ.get("ROLLCALL_FAULTS") == "all" else "in turns"
ONLY = os.environ.get("ROLLCALL_OPERATION", "")
TURNS: tuple[Moment, ...] = ("lost", "before", "late", "after")
# They have limits of their own, and may take long.
PATIENT = (PULL, "PUT /containers/ID/archive")
TABLE_HEAD = (
    "| operation | changing calls | kills | answers lost or late | done | as before |",
    "| --- " * 6 + "|",
)


@dataclass(frozen=True)
class OperationRuns:
    """The runs of one operation: the calls of those without a fault, and a run for each fault."""

    name: str
    calls: list[Call]
    faulty: dict[Fault, Future[str]]

    def failures(self) -> list[str]:
        """Return a description of each run that failed."""
        return [
            f"{self.name}, {fault.moment} {fault.call}: {error!r}"
            for fault, run in self.faulty.items()
            if (error := run.exception()) is not None
        ]

    def row(self) -> str:
        """Return the operation's row of the table."""
        outcomes = Counter(run.result() for run in self.faulty.values() if run.exception() is None)
        kills = sum(fault.moment in KILLS for fault in self.faulty)
        cells = (
            self.name,
            len(self.calls),
            kills,
            len(self.faulty) - kills,
            outcomes["done"],
            outcomes["as before"],
        )
        return f"| {' | '.join(map(str, cells))} |"


def failures_of_sample(hosts: KilledHosts, sample: Sequence[tuple[Operation, Fault]]) -> list[str]:
    """Run each operation with its fault, and describe each run that failed."""
    wanted = named([operation for operation, _ in sample], ONLY)
    runs = [
        OperationRuns(operation.name, [fault.call], {fault: _faulty(hosts, operation, fault)})
        for operation, fault in sample
        if operation in wanted
    ]
    return [failure for each in runs for failure in each.failures()]


def _faulty(hosts: KilledHosts, operation: Operation, fault: Fault) -> Future[str]:
    return hosts.submit(partial(KilledHost.run_with_fault, operation=operation, fault=fault))


def failures_of(hosts: KilledHosts, operations: Sequence[Operation]) -> list[str]:
    """Run the operations with their faults, log the table, and describe each run that failed."""
    wanted = named(operations, ONLY)
    whole = [
        [hosts.submit(partial(KilledHost.run_whole, operation=each)) for _ in range(2)]
        for each in wanted
    ]
    runs = [
        OperationRuns(
            operation.name,
            # The engine's answers decide on a few calls, such as a command in an app that crashes.
            calls := [call for call in first.result() if call in second.result()],
            {
                fault: _faulty(hosts, operation, fault)
                for fault in faults_at(calls, CHOICE, only=operation.only)
            },
        )
        for operation, (first, second) in zip(wanted, whole, strict=True)
    ]
    failures = [failure for each in runs for failure in each.failures()]
    LOG.warning("\n%s", "\n".join([*TABLE_HEAD, *(each.row() for each in runs)]))
    return failures


def named(operations: Sequence[Operation], part: str) -> list[Operation]:
    """Return the operation of this name, else those with it in theirs; ValueError without any."""
    names = [each.name for each in EVERY_OPERATION]
    wanted = {name for name in names if name == part} or {name for name in names if part in name}
    if not wanted:
        shown = ", ".join(names)
        raise ValueError(f"ROLLCALL_OPERATION={part} is in the name of no operation: {shown}")
    return [each for each in operations if each.name in wanted]


def faults_at(calls: list[Call], choice: Choice = "in turns", *, only: str = "") -> list[Fault]:
    """Return the faults of one operation.

    Of the calls, only those that have the name ``only`` are taken, if that is given; "all" takes
    each.
    """
    if choice == "all":
        possible = [Fault(call, moment) for call in calls for moment in (*KILLS, *ANSWERS)]
        return [each for each in possible if not _is_patient(each)]
    calls = [call for call in calls if only in ("", call.name)]
    # From the last call on, so that an operation of one call loses its answer.
    turns = zip(reversed(calls), cycle(TURNS), strict=False)
    taken = [Fault(call, moment) for call, moment in turns]
    taken = [replace(each, moment="lost") if _is_patient(each) else each for each in taken]
    return [*(Fault(call, "after") for call in calls[-1:]), *taken]


def _is_patient(fault: Fault) -> bool:
    return fault.moment == "late" and fault.call.name in PATIENT
