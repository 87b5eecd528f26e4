"""The file in which a rollout is kept until each of its hosts is changed."""

import fcntl
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TextIO

import msgspec

from cli.errors import WrongUsage
from cli.files import make_folder_of, write_private
from cli.rollout.model import REVISING, Rollout

WAIT_SECONDS = 0.2
TRY_SECONDS = 0.01


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
        name = re.compile(rf"{re.escape(self.path.name)}\.[0-9]+")
        for part in self.path.parent.glob(f"{self.path.name}.*"):
            if name.fullmatch(part.name):
                part.unlink(missing_ok=True)

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


class Kept(NamedTuple):
    """A rollout that is not done.

    ``changed_at`` is when a host was changed last, in Unix seconds; ``error`` says why the file
    cannot be used.
    """

    app: str
    rollout: Rollout | None
    changed_at: float
    is_running: bool
    error: str | None


def kept_rollouts(folder: Path) -> list[Kept]:
    """Return the rollouts that are kept in a folder, by the names of their apps."""
    found = (kept_rollout(StateFile(folder, app)) for app in kept_apps(folder))
    return [each for each in found if each is not None]


def kept_rollout(file: StateFile) -> Kept | None:
    """Return the rollout of a file, None if it ends meanwhile."""
    rollout, error = None, None
    try:
        changed_at = file.path.stat().st_mtime
    except OSError:
        return None
    try:
        rollout = file.load()
    except WrongUsage as wrong:
        if not file.path.exists():
            return None
        error = str(wrong)
    return Kept(file.path.stem, rollout, changed_at, file.is_locked(), error)


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
