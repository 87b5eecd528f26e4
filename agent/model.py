"""What the store keeps: apps as they were asked for, and what is being done about them."""

from typing import Literal

import msgspec

DesiredState = Literal["running", "stopped"]
OperationKind = Literal["create", "update", "rebuild", "start", "stop", "delete", "keys", "label"]


class App(msgspec.Struct, frozen=True, kw_only=True):
    """An app as it was asked for, and which container it has.

    ``password`` is a crypt hash; ``failed`` marks an app whose creation in the background failed.
    """

    name: str
    image: str
    ssh_port: int
    http_port: int
    cpu: int
    memory: int
    created_at: str
    env: dict[str, str] = msgspec.field(default_factory=dict)
    labels: tuple[str, ...] = ()
    desired: DesiredState = "running"
    container_id: str | None = None
    password: str | None = None
    password_pending: bool = False
    failed: bool = False
    message: str | None = None

    def __repr__(self) -> str:
        """Show the name alone: the rest holds secrets."""
        return f"App({self.name!r})"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the journal: what is being done, written down before it is done.

    Attributes:
        id: Marks the container that this change makes.
        app: The app's name.
        operation: What was asked for.
        by: The name of the key of whoever asked.
        since: When, in Unix seconds.
        before: The app as it was, None for a new one.
        target: The app as it shall be, None for one that shall go.
        promised: The asker was told that it is under way and does not wait for the outcome.
        was_running: The container ran before.
        new_volume: The change made the volume.
        keep_data: The volume stays when the app goes.
        swapped: The new container has taken over; only the old one is left to be removed.

    """

    id: str
    app: str
    operation: OperationKind
    by: str
    since: float
    before: App | None = None
    target: App | None = None
    promised: bool = False
    was_running: bool = False
    new_volume: bool = False
    keep_data: bool = False
    swapped: bool = False

    def __repr__(self) -> str:
        """Show what it is about and nothing that may be secret."""
        return f"Change({self.operation!r}, {self.app!r})"
