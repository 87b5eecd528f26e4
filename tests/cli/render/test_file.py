"""The file that is written, the command after a change of it, and the nodes in templates."""

import asyncio
import os
import resource
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cli.render.file import (
    CommandFailed,
    NodeSet,
    RenderedFile,
    RenderError,
    command_line,
    run_command,
)
from clients.models import AddressedNode, NodeEvent
from tests.support.requirements import NEEDS_ROOT
from tests.support.waiting import async_until

OTHER_USER = 65_534


async def due() -> None:
    raise AssertionError("it is not run here")


def write(path: Path, text: str, command: Callable[[], Awaitable[None]] | None = None) -> None:
    """Write a file."""
    file = RenderedFile(
        path, render=lambda _nodes: text, command=command, min_nodes=0, say=lambda _text: None
    )
    file.write(NodeSet())


def mode(path: Path) -> int:
    """Return the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    file = tmp_path / "out.conf"
    before = os.umask(0o027)
    try:
        write(file, "new")
    finally:
        os.umask(before)

    assert (file.read_bytes(), mode(file)) == (b"new", 0o640)
    assert [path.name for path in tmp_path.iterdir()] == ["out.conf"]


def test_a_file_that_differs_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "out.conf"
    file.write_bytes(b"old")
    file.chmod(0o604)
    with file.open("rb") as reader:
        write(file, "new")
        assert reader.read() == b"old"  # who reads it at present gets all of the old one

    assert (file.read_bytes(), mode(file)) == (b"new", 0o604)


@NEEDS_ROOT
def test_a_file_keeps_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "out.conf"
    file.write_bytes(b"old")
    os.chown(file, OTHER_USER, OTHER_USER)
    file.chmod(0o4750)

    write(file, "new")

    assert (file.stat().st_uid, file.stat().st_gid, mode(file)) == (OTHER_USER, OTHER_USER, 0o4750)


def test_a_link_stays_and_the_file_that_it_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "out.conf"
    link.symlink_to("real/out.conf")

    write(link, "new")

    assert link.is_symlink()
    assert (tmp_path / "real" / "out.conf").read_bytes() == b"new"


def test_what_cannot_be_written_is_reported_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="none/out cannot be written: No such file or directory"):
        write(tmp_path / "none" / "out", "", due)
    with pytest.raises(RenderError, match="is no regular file"):
        write(tmp_path, "", due)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RenderError, match="is no regular file"):
        write(tmp_path / "pipe", "", due)
    full = Path("/dev/full")
    with pytest.raises(RenderError, match="is no regular file"):
        write(full, "", due)

    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_file_that_there_is_no_room_for_stays_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "out.conf"
    file.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(RenderError, match=r"out\.conf cannot be written: File too large"):
            write(file, "x" * 100_000, due)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.conf"]


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
def test_a_command_that_is_none_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"empty|quotation"):
        command_line(text, by_shell=False)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("exit 3", "'exit 3' ended with status 3"),
        ("kill -TERM $$", "was ended by SIGTERM"),
    ],
)
async def test_how_a_command_failed_is_reported(text: str, reported: str) -> None:
    with pytest.raises(CommandFailed, match=reported):
        await run_command(command_line(text, by_shell=True))


async def test_a_program_that_is_not_there_is_reported() -> None:
    with pytest.raises(CommandFailed, match="no-such-program cannot be run: No such file"):
        await run_command(["no-such-program"])


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


def reported(nodes: NodeSet, *events: str) -> NodeSet:
    """Apply events, such as `node h1`."""
    for event in events:
        kind, _, hostname = event.partition(" ")
        match kind:
            case "node":
                node = AddressedNode(
                    hostname=hostname, labels=["a:1", "a:2", "b:3"], kv={}, last_update=1
                )
                nodes.apply(NodeEvent(kind="node", hostname=hostname, node=node))
            case "gone":
                nodes.apply(NodeEvent(kind="gone", hostname=hostname))
            case "stale":
                nodes.apply(NodeEvent(kind="stale", hostname=hostname))
            case _:
                nodes.apply(NodeEvent(kind="fresh", hostname=hostname))
    return nodes


def test_templates_see_which_nodes_are_stale_and_the_values_of_their_labels() -> None:
    nodes = reported(NodeSet(), "node h2", "node h1", "stale h1", "stale h2", "fresh h2")
    reported(nodes, "node h3", "stale h3", "gone h3", "node h3")

    assert [(node.hostname, node.stale) for node in nodes] == [
        ("h1", True),
        ("h2", False),
        ("h3", False),
    ]
    first = next(iter(nodes))
    assert (first.values("a"), first.values("b"), first.values("c")) == (["1", "2"], ["3"], [])
