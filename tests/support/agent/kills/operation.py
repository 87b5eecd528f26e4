"""What the tests of kills know of an operation: its precondition, its request, its outcome."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import requests

from tests.support.agent.kills.snapshot import Snapshot
from tests.support.agent.kills.subject import Subject


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation.

    Attributes:
        name: its name in the table.
        prepare: brings the app into the state that the operation needs.
        request: sends the request; None if the agent ended before it answered.
        expected: returns the app after the operation from the app before it; an operation that
            fails is undone.
        succeeds: whether the answer is a success.
        settle: waits until the agent has done all that it will.
        undone: returns the app as it may be once the operation was undone.
        only: in a test run, only calls of this name get a fault, since the others are those of
            another operation; "" for all.

    """

    name: str
    prepare: Callable[[Subject], None]
    request: Callable[[Subject, Snapshot], requests.Response | None]
    expected: Callable[[Subject, Snapshot], Snapshot]
    succeeds: bool = True
    settle: Callable[[Subject], object] = Subject.settled
    undone: Callable[[Snapshot], Sequence[Snapshot]] = lambda before: (before,)
    only: str = ""
