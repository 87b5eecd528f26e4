"""Loads the credentials of a unit again while it runs.

``python -m httpd.systemd.credentials UNIT`` is run as root, by the unit's ``ExecReload=``: systemd
itself copies them when the unit starts, and before version 259 at no other time.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CREDENTIALS = Path("/run/credentials")
SYSTEMD = "org.freedesktop.systemd1"
MANAGER = "/org/freedesktop/systemd1"
BUSCTL = "/usr/bin/busctl"


class NotRefreshed(Exception):
    """The credentials stay as they were; the text says why."""


def main(arguments: Sequence[str]) -> int:
    """Load the credentials of the unit that is named; return the exit status."""
    (unit,) = arguments
    try:
        refresh(CREDENTIALS / unit, sources(unit))
    except NotRefreshed as error:
        sys.stderr.write(f"rollcall: credentials of {unit}: {error}\n")
        return 1
    return 0


def sources(unit: str, *, busctl: str = BUSCTL) -> dict[str, Path]:
    """Return the files from which the unit loads credentials, by the names of the credentials.

    Raises:
        NotRefreshed: systemd does not answer.

    """
    ask_manager = ("call", SYSTEMD, MANAGER, f"{SYSTEMD}.Manager")
    with _failures():
        (path,) = _answer(busctl, *ask_manager, "GetUnit", "s", unit)
        ask_unit = ("get-property", SYSTEMD, path, f"{SYSTEMD}.Service")
        found = _answer(busctl, *ask_unit, "LoadCredential")
    return {name: Path(source) for name, source in found if source.startswith("/")}


def refresh(folder: Path, files: dict[str, Path]) -> None:
    """Replace the credentials in a folder by what the files hold now, and add new ones.

    Those of a folder instead of a file come with the unit's next start.

    Raises:
        NotRefreshed: a file cannot be read, or the folder has no credentials; then nothing has
            changed. Or the folder cannot be written; then some credentials may be replaced.

    """
    with _failures():
        texts = {name: file.read_bytes() for name, file in files.items() if not file.is_dir()}
        models = {name: _model(folder, name) for name in texts}
        with _writable(folder):
            for name, text in texts.items():
                _write(folder / name, text, model=models[name])


@contextmanager
def _failures() -> Iterator[None]:
    """Raise NotRefreshed instead of the errors of files and commands."""
    try:
        yield
    except OSError as error:
        raise NotRefreshed(f"{error.filename}: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        raise NotRefreshed(f"{' '.join(error.cmd)} failed") from error


def _model(folder: Path, name: str) -> Path:
    """Return the file whose owner and permissions a credential gets: its own, or any other's."""
    if (folder / name).exists():
        return folder / name
    held = sorted(folder.glob("[!.]*"))
    if not held:
        raise NotRefreshed(f"it has none: `systemctl restart` loads {name}")
    return held[0]


def _write(credential: Path, text: bytes, *, model: Path) -> None:
    new = credential.with_name(f".{credential.name}.new")
    new.unlink(missing_ok=True)
    new.touch(0o600, exist_ok=False)
    new.write_bytes(text)
    owner = model.stat()
    os.chown(new, owner.st_uid, owner.st_gid)
    # Some versions of systemd let the unit's user read by an access control list.
    shutil.copystat(model, new)
    new.rename(credential)


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Let root write: systemd mounts the folder read-only. The unit's own view of it stays so."""
    if not folder.is_mount():
        yield
        return
    subprocess.run(["/bin/mount", "-o", "remount,bind,rw", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["/bin/mount", "-o", "remount,bind,ro", str(folder)], check=True)


def _answer(busctl: str, *arguments: str) -> list[Any]:
    command = [busctl, "--json=short", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    answer: list[Any] = json.loads(done.stdout)["data"]
    return answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
