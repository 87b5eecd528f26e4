"""What can be asked for of an app: requests are data, on which the operations act."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from agent.journal import OperationKind
from agent.model import AppChanges, NewApp


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How an operation is named and shown while it runs.

    Attributes:
        participle: What is being done with the app.
        state: The state of the app meanwhile, None: that of its container.
        cancels: It ends an operation of the app that pulls an image or is overdue.
        in_background: It goes on in the background if the client prefers that.

    """

    participle: str
    state: str | None = None
    cancels: bool = False
    in_background: bool = True


KINDS: Mapping[OperationKind, Kind] = {
    "create": Kind(participle="created", state="creating"),
    "update": Kind(participle="updated", state="updating"),
    "rebuild": Kind(participle="rebuilt", state="rebuilding"),
    "rollback": Kind(participle="rolled back", state="updating"),
    "start": Kind(participle="started"),
    "stop": Kind(participle="stopped", cancels=True),
    "restart": Kind(participle="restarted"),
    "delete": Kind(participle="deleted", state="deleting", cancels=True),
    "keys": Kind(participle="given a password"),
    "label": Kind(participle="labelled", in_background=False),
    "export": Kind(participle="exported", in_background=False),
    "restore": Kind(participle="restored", in_background=False),
}


class Request(msgspec.Struct, frozen=True):
    """A change of the app of this name. ``operation`` is its kind."""

    operation: ClassVar[OperationKind]

    app: str

    def __repr__(self) -> str:
        """Show what it is about, and nothing that may be secret."""
        return f"{type(self).__name__}({self.app!r})"


class Create(Request, frozen=True):
    """Create an app, and wait until it runs."""

    operation = "create"

    wanted: NewApp


class Update(Request, frozen=True):
    """Change fields of an app."""

    operation = "update"

    changes: AppChanges


class Rebuild(Request, frozen=True):
    """Pull an app's image and replace its container."""

    operation = "rebuild"


class Rollback(Request, frozen=True):
    """Bring an app back to a revision, None for the one before the present."""

    operation = "rollback"

    number: int | None


class Start(Request, frozen=True):
    """Start an app, or start it again; one whose container is gone gets another."""

    operation = "start"


class Stop(Request, frozen=True):
    """Stop an app; an operation that pulls its image is undone."""

    operation = "stop"


class Restart(Request, frozen=True):
    """Stop an app and start it again, in its container; one that is down is only started."""

    operation = "restart"


class Delete(Request, frozen=True):
    """Remove an app and, unless it is to be kept, its data.

    An operation that pulls its image is undone.
    """

    operation = "delete"

    keep_data: bool = False


class SetPassword(Request, frozen=True):
    """Set the password of the app's user."""

    operation = "keys"

    password: str


class AddLabel(Request, frozen=True):
    """Add a label to an app."""

    operation = "label"

    label: str


class RemoveLabel(Request, frozen=True):
    """Remove a label from an app."""

    operation = "label"

    label: str


class Restore(Request, frozen=True):
    """Replace the data of a stopped app by that of a tar, whole or not at all."""

    operation = "restore"

    tar: AsyncIterator[bytes]


# The agent itself asks for these.


class StartDown(Request, frozen=True):
    """Start an app that is down, and leave it to the engine whether it stays up."""

    operation = "start"


class FoundUp(Request, frozen=True):
    """Forget why an app was down."""

    operation = "start"


class LeaveDown(Request, frozen=True):
    """Record that somebody stopped an app in this run of the engine."""

    operation = "start"

    engine_run: str


class RestartUnhealthy(Request, frozen=True):
    """Stop a running app, which is unhealthy for this reason, and start it again."""

    operation = "restart"

    reason: str


class LetStart(Request, frozen=True):
    """Let the engine start an app by itself, since it should run.

    The log has the first of ``repeated`` failures.
    """

    operation = "start"

    repeated: bool


class LeaveStopped(Request, frozen=True):
    """Keep the engine from starting an app by itself, since it was stopped."""

    operation = "stop"

    repeated: bool


class ApplyPassword(Request, frozen=True):
    """Set a password that waits for its app to run."""

    operation = "keys"
