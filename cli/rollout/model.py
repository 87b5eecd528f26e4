"""What a rollout is made of: the change, its bounds, and how far each host is."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

HostState = Literal["waiting", "changing", "checking", "done", "failed"]
# What was wrong: the app, or what it was changed to; or it was not as the check wants it in time.
Cause = Literal["app", "check"]
# The states of a container that does not run.
DOWN = ("created", "exited", "dead")
Action = Literal["rebuild", "update", "start", "stop", "restart", "rollback"]
# They may bring another revision of the app.
REVISING = ("rebuild", "update", "rollback")


class RolloutChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
        soak_seconds: how long it has to stay healthy then.
        rolls_back: whether an app that fails the check or the soak is rolled back.

    """

    batch: int = 1
    pause_seconds: float = 0
    max_failures: int = 0
    http_path: str | None = None
    check_seconds: float = 60
    soak_seconds: float = 0
    rolls_back: bool = False


class AppNow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an app was when it was looked at."""

    image: str
    revision: int | None
    state: str


def app_now(record: Mapping[str, Any]) -> AppNow:
    """Return what a record of an app says."""
    return AppNow(
        image=record.get("image", ""), revision=record.get("revision"), state=record["state"]
    )


class HostProgress(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How far a host is.

    Attributes:
        host: its name.
        revision: the one that a rollback goes to, chosen before the first batch: after a rollback
            the revision before is another one.
        before: the app before the first change of it.
        now: the app as it was seen last since its change began; None if it could not be seen.
        is_touched: whether a change of it has begun.
        state: how far it is.
        failed_at: what has failed.
        cause: what another attempt would have to change, if anybody knows.
        health: what the last look at the app has found.
        message: why the host failed.
        is_rolled_back: whether it was rolled back then.

    """

    host: str
    revision: int | None = None
    before: AppNow | None = None
    now: AppNow | None = None
    is_touched: bool = False
    state: HostState = "waiting"
    failed_at: Literal["change", "check"] | None = None
    cause: Cause | None = None
    health: str | None = None
    message: str | None = None
    is_rolled_back: bool = False

    @property
    def is_changed(self) -> bool | None:
        """Return whether the app has another revision than before, None if nobody knows."""
        if not self.is_touched or self.is_rolled_back:
            return False
        before = None if self.before is None else self.before.revision
        now = None if self.now is None else self.now.revision
        return None if before is None or now is None else before != now


class Rollout(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A rollout, as it is kept in a file for `--resume`."""

    change: RolloutChange
    bounds: Bounds
    hosts: list[HostProgress] = []

    @property
    def failures(self) -> int:
        """Return how many hosts have failed."""
        return sum(each.state == "failed" for each in self.hosts)

    @property
    def is_done(self) -> bool:
        """Return whether each host is changed."""
        return all(each.state == "done" for each in self.hosts)

    def resumed(self, given: Mapping[str, Any]) -> "Rollout":
        """Return the rollout of the hosts that are not done, which begin again.

        ``given`` are fields of the bounds that replace those that were kept.
        """
        hosts = [each if each.state == "done" else _again(each) for each in self.hosts]
        bounds = msgspec.structs.replace(self.bounds, **given)
        return Rollout(change=self.change, bounds=bounds, hosts=hosts)


def _again(host: HostProgress) -> HostProgress:
    return msgspec.structs.replace(
        host,
        state="waiting",
        failed_at=None,
        cause=None,
        health=None,
        message=None,
        is_rolled_back=False,
    )
