"""The file that is written: replaced as a whole, and only by other content."""

import os
import secrets
import stat
from pathlib import Path

from cli.render.errors import RenderError

PRIVATE_MODE = 0o600
DEFAULT_MODE = 0o666  # less the umask


class OutputFile:
    """A file that readers find either as it was or as it is to be.

    It keeps its mode, owner and group. A symbolic link stays, and the file that it names is
    replaced. A mark beside the file says that a command is still due after a change of it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._target = Path(os.path.realpath(path))
        self._mark = self._target.with_name(f".{self._target.name}.on-change-due")

    def __str__(self) -> str:
        return str(self._path)

    @property
    def is_command_due(self) -> bool:
        """Whether a command has not succeeded since the file was changed."""
        return self._mark.exists()

    def command_done(self) -> None:
        """Record that the command has succeeded."""
        self._mark.unlink(missing_ok=True)

    def replace(self, content: bytes, *, with_command: bool) -> bool:
        """Write the content unless it is there already; return whether it was written.

        With ``with_command``, a command is due from then on. Raises RenderError; the file is as it
        was then.
        """
        try:
            known = self._known()
            if known is not None and self._target.read_bytes() == content:
                return False
            self._write(content, known, with_command=with_command)
        except OSError as error:
            raise RenderError(f"{self._path} cannot be written: {error.strerror}") from error
        return True

    def _known(self) -> os.stat_result | None:
        try:
            known = self._target.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(known.st_mode):
            raise RenderError(f"{self._path} is no regular file")
        return known

    def _write(self, content: bytes, known: os.stat_result | None, *, with_command: bool) -> None:
        draft = self._target.with_name(f".{self._target.name}.{secrets.token_hex(6)}")
        mode = DEFAULT_MODE if known is None else PRIVATE_MODE
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                if known is not None:
                    _take_over(descriptor, known)
                file.flush()
                os.fsync(descriptor)
            if with_command:
                self._mark.touch()
            draft.replace(self._target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        _sync_folder(self._target.parent)


def _take_over(descriptor: int, known: os.stat_result) -> None:
    """Give a new file the owner, group and mode of the one that it replaces."""
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (known.st_uid, known.st_gid):
        os.fchown(descriptor, known.st_uid, known.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(known.st_mode))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
