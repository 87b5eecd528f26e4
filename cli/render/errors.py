"""Why a file could not be written, or the command after it failed."""

from cli.errors import CommandError


class RenderError(CommandError):
    """The file stays as it was; the text says why."""


class CommandFailed(CommandError):
    """The file is written, and the command after it has failed; the text says how."""
