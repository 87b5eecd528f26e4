"""Errors of commands, and the exit statuses that tell of them."""

DONE = 0
FAILED = 1
WRONG_USAGE = 2
NOT_REACHED = 3
INTERRUPTED = 130


class CommandError(Exception):
    """A command failed; the text says why.

    ``hint`` is what to do next, and ``status`` the exit status: FAILED where something was tried
    and failed, WRONG_USAGE for arguments, files and settings, NOT_REACHED where a daemon was not
    reached or did not permit it.
    """

    def __init__(self, message: str, *, hint: str | None = None, status: int = FAILED) -> None:
        super().__init__(message)
        self.hint = hint
        self.status = status


class WrongUsage(CommandError):
    """Arguments, a file or a context cannot be used."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, status=WRONG_USAGE)


class NotReached(CommandError):
    """A daemon was not reached, or did not permit what was asked."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, status=NOT_REACHED)
