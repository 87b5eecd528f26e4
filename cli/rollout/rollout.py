"""What a rollout is made of, and the file in which it is kept until each host is changed."""

import fcntl
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TextIO

import msgspec

from cli.errors import WrongUsage
from cli.files import make_folder_of, write_private
from runtime.durable import remove_abandoned

HostState = Literal["waiting", "changing", "checking", "done", "failed"]
# Why a rollout failed on a host.
Cause = Literal["app", "check"]
# The states of a container that does not run.
DOWN = ("created", "exited", "dead")
Action = Literal["rebuild", "update", "start", "stop", "restart", "rollback"]
# They may bring another revision of the app.
REVISING = ("rebuild", "update", "rollback")
WAIT_SECONDS = 0.2
TRY_SECONDS = 0.01


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


class HostFailed(Exception):
    """The change or the check of a host failed; the text says why.

    ``cause`` is what another attempt would have to change, if anybody knows.
    """

    def __init__(self, message: str, *, cause: Cause | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class NotBegun(HostFailed):
    """The change of a host failed before its agent was asked."""


class StateFile:
    """Keeps one rollout of each app name. A file is written as a whole, for its owner alone.

    The hosts of the last one that revised the app are kept after its end, too, for a rollback. Who
    only looks whether a rollout runs holds its lock for a moment; a new one waits so long.
    """

    def __init__(self, folder: Path, app: str, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self.path = folder / f"{app}.json"
        self._ended = folder / "ended" / f"{app}.json"
        self._wait_seconds = wait_seconds

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other rollouts of the app away; WrongUsage if one runs, or it cannot be locked."""
        path = self.path.with_suffix(".lock")
        with ExitStack() as closing:
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = closing.enter_context(path.open("w"))
                _lock(lock, within=self._wait_seconds)
            except BlockingIOError as error:
                raise WrongUsage(
                    f"another rollout of {path.stem} runs on this machine; wait for its end",
                    hint="rollcall rollouts",
                ) from error
            except OSError as error:
                raise WrongUsage(f"{path} cannot be written: {error.strerror}") from error
            yield

    def load(self) -> Rollout:
        """Return the rollout that is to be resumed; WrongUsage if there is none."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Rollout)
        except FileNotFoundError as error:
            raise WrongUsage(
                "there is no rollout of this app to resume in this context; one that began on"
                " another machine is kept there",
                hint="rollcall rollouts",
            ) from error
        except (OSError, msgspec.DecodeError) as error:
            raise WrongUsage(f"{self.path} cannot be used: {error}") from error

    def found(self) -> Rollout | None:
        """Return the rollout that is kept, None if there is none, or it cannot be read."""
        with suppress(WrongUsage):
            return self.load()
        return None

    def is_locked(self) -> bool:
        """Return whether a rollout of the app runs."""
        try:
            with self.path.with_suffix(".lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def summary(self) -> str:
        """Return what the rollout changes, and how far it is; of its fields only the names.

        Values, such as those of `env`, may be secrets.
        """
        rollout = self.found()
        if rollout is None:
            return "its file cannot be read"
        fields = "".join(f", {name}" for name in rollout.change.fields)
        done = sum(each.state == "done" for each in rollout.hosts)
        count = f"{done} of {len(rollout.hosts)} hosts are done"
        return f"{rollout.change.action} {rollout.change.app}{fields}; {count}"

    def last(self) -> Rollout | None:
        """Return the last rollout that revised the app, unfinished or not; None if unknown."""
        found = self.found()
        if found is not None and _has_revised(found):
            return found
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(self._ended.read_bytes(), type=Rollout)
        return None

    def end(self) -> None:
        """Keep no rollout to resume, but the hosts of the last one that revised the app.

        Raises WrongUsage: that cannot be written.
        """
        found = self.found()
        if found is not None:
            self._keep_ended(found)
        self.forget()

    def _keep_ended(self, rollout: Rollout) -> None:
        """Keep the hosts of a rollout that ends, without its fields, which may be secrets."""
        if _has_revised(rollout):
            change = msgspec.structs.replace(rollout.change, fields={})
            ended = msgspec.structs.replace(rollout, change=change)
            make_folder_of(self._ended)
            write_private(self._ended, msgspec.json.encode(ended))

    def forget(self) -> None:
        """Keep no rollout, nor what was left where a command was killed as it wrote."""
        self.path.unlink(missing_ok=True)
        remove_abandoned(self.path)

    def save(self, rollout: Rollout) -> None:
        """Keep a rollout; one that is done is removed. WrongUsage if it cannot be written."""
        if rollout.is_done:
            self._keep_ended(rollout)
            self.forget()
        else:
            write_private(self.path, msgspec.json.encode(rollout))


def _has_revised(rollout: Rollout) -> bool:
    is_begun = any(each.is_touched for each in rollout.hosts)
    return is_begun and rollout.change.action in REVISING


def _lock(file: TextIO, *, within: float) -> None:
    """Lock a file; BlockingIOError if it stays locked for so many seconds."""
    until = time.monotonic() + within
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(TRY_SECONDS)
        else:
            return


def kept_apps(folder: Path) -> list[str]:
    """Return the apps whose rollouts are kept in a folder, by name."""
    return sorted(path.name.removesuffix(".json") for path in folder.glob("*.json"))
