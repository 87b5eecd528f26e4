"""What a rollout is made of: the change, its bounds, and how far each host is."""

from typing import Any, Literal

import msgspec

HostState = Literal["waiting", "changing", "checking", "done", "failed"]
Action = Literal["rebuild", "update", "start", "stop", "restart", "rollback"]


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The change of an app, the same on each host; ``fields`` are those of an update."""

    action: Action
    app: str
    fields: dict[str, Any] = msgspec.field(default_factory=dict)


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a rollout goes on.

    Attributes:
        batch: how many hosts are changed at the same time.
        pause_seconds: how long to wait between batches.
        max_failures: no batch begins after more hosts than these have failed.
        http_path: a path that the app has to answer below 400 after the change, if given.
        check_seconds: how long an app may take to become healthy after the change.

    """

    batch: int = 1
    pause_seconds: float = 0
    max_failures: int = 0
    http_path: str | None = None
    check_seconds: float = 60


class HostProgress(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How far a host is.

    ``revision`` is the one that a rollback goes to, chosen before the first batch: after a rollback
    the revision before is another one. ``health`` is what the last look
    at the app has found, and ``message`` says why the host failed.
    """

    host: str
    revision: int | None = None
    state: HostState = "waiting"
    health: str | None = None
    message: str | None = None


class Rollout(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A rollout, as it is kept in a file for `--resume`."""

    change: Change
    bounds: Bounds
    hosts: list[HostProgress]

    @property
    def failures(self) -> int:
        """Return how many hosts have failed."""
        return sum(each.state == "failed" for each in self.hosts)

    @property
    def is_done(self) -> bool:
        """Return whether each host is changed."""
        return all(each.state == "done" for each in self.hosts)

    def resumed(self) -> "Rollout":
        """Return the rollout of the hosts that are not done, which begin again."""
        hosts = [
            each if each.state == "done" else HostProgress(host=each.host, revision=each.revision)
            for each in self.hosts
        ]
        return Rollout(change=self.change, bounds=self.bounds, hosts=hosts)
