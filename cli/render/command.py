"""The command that is run after a file was changed."""

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

from cli.render.errors import CommandFailed

COMMAND_SECONDS = 300.0


def command_line(text: str, *, by_shell: bool) -> list[str]:
    """Return the words of a command: those of the text, or a shell that runs it.

    Raises ValueError if the text has no words, or a quotation that does not end.
    """
    words = ["/bin/sh", "-c", text] if by_shell else shlex.split(text)
    if not words or not text.strip():
        raise ValueError("the command is empty")
    return words


async def run_command(
    words: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    seconds: float = COMMAND_SECONDS,
) -> None:
    """Run a command to its end; what it writes goes to where this program writes.

    Its environment is this program's, unless one is given. One that takes too long is killed, with
    what it has started. Raises CommandFailed.
    """
    shown = shlex.join(words)
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, env=environment, start_new_session=True
        )
    except OSError as error:
        raise CommandFailed(f"{shown} cannot be run: {error.strerror}") from error
    try:
        async with asyncio.timeout(seconds):
            status = await process.wait()
    except TimeoutError as error:
        raise CommandFailed(f"{shown} did not end within {seconds:g} s and was killed") from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if status < 0:
        raise CommandFailed(f"{shown} was ended by {signal.Signals(-status).name}")
    if status:
        raise CommandFailed(f"{shown} ended with status {status}")
