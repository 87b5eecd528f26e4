"""The command after a change: words or a shell, its failures, its end."""

import asyncio
from pathlib import Path

import pytest

from cli.render.command import command_line, run_command
from cli.render.errors import CommandFailed
from tests.support.waiting import async_until


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("systemctl reload nginx", ["systemctl", "reload", "nginx"]),
        ("cp 'a b' $HOME; rm *", ["cp", "a b", "$HOME;", "rm", "*"]),
    ],
)
def test_a_command_is_words_that_no_shell_expands(text: str, words: list[str]) -> None:
    assert command_line(text, by_shell=False) == words
    assert command_line(text, by_shell=True) == ["/bin/sh", "-c", text]


@pytest.mark.parametrize("text", ["", "  ", "echo 'open"])
def test_a_command_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"empty|quotation"):
        command_line(text, by_shell=False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("exit 3", "'exit 3' ended with status 3"),
        ("kill -TERM $$", "was ended by SIGTERM"),
    ],
)
async def test_how_a_command_failed_is_told(text: str, told: str) -> None:
    with pytest.raises(CommandFailed, match=told):
        await run_command(command_line(text, by_shell=True))


async def test_a_program_that_is_not_there_is_told() -> None:
    with pytest.raises(CommandFailed, match="no-such-program cannot be run: No such file"):
        await run_command(["no-such-program"])


async def test_a_command_gets_the_environment_that_is_given(tmp_path: Path) -> None:
    words = command_line(f"env > {tmp_path}/seen", by_shell=True)

    await run_command(words, environment={"NAME": "value"})

    seen = (tmp_path / "seen").read_text()
    assert "NAME=value" in seen
    assert "HOME=" not in seen


@pytest.mark.slow
async def test_a_command_that_does_not_end_is_killed_with_what_it_has_started(
    tmp_path: Path,
) -> None:
    child = tmp_path / "child"
    script = f"sleep 1000 & echo $! > {child}; wait"

    with pytest.raises(CommandFailed, match=r"did not end within 3 s and was killed"):
        await run_command(command_line(script, by_shell=True), seconds=3)

    assert await _is_gone(int(child.read_text()))


async def test_a_command_is_killed_when_the_program_ends(tmp_path: Path) -> None:
    child = tmp_path / "child"
    task = asyncio.create_task(
        run_command(
            command_line(
                f"echo $$ > {child}.new; mv {child}.new {child}; sleep 1000", by_shell=True
            )
        )
    )

    async def has_started() -> bool:
        return child.exists()

    await async_until(has_started)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await _is_gone(int(child.read_text()))


async def _is_gone(pid: int) -> bool:
    async def gone() -> bool:
        return not is_alive(pid)

    await async_until(gone)
    return True


def is_alive(pid: int) -> bool:
    """Return whether a process runs, and has not just ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
