"""Logs and backups: what agents send in pieces."""

import asyncio
import fcntl
import stat
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, FakeAgent
from tests.support.cli.process import CommandLine
from tests.support.cli.terminal import at_terminal
from tests.support.requirements import NEEDS_ROOT

pytestmark = pytest.mark.slow
SHOP = "/v1/apps/shop"


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def test_a_backup_that_is_interrupted_leaves_no_file(
    rollcall: Rollcall, agent: FakeAgent, tmp_path: Path
) -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"half of it")
        assert request.transport is not None
        request.transport.abort()
        return response

    agent.answers["GET", f"{SHOP}/data"] = break_off

    ran = await rollcall("app", "backup", "web-1/shop", str(tmp_path / "shop.tar"))

    assert ran.status == 3, ran
    assert not {"shop.tar", "shop.tar.part"} & files(tmp_path)


async def send_data(_: web.Request) -> web.StreamResponse:
    return web.Response(body=b"the tar")


async def test_a_backup_that_was_killed_is_no_obstacle_to_the_next(
    rollcall: Rollcall, agent: FakeAgent, tmp_path: Path
) -> None:
    agent.answers["GET", f"{SHOP}/data"] = send_data
    (tmp_path / "shop.tar.part").write_bytes(b"more than the whole tar")

    ran = await rollcall("app", "backup", "web-1/shop", str(tmp_path / "shop.tar"))

    assert ran.status == 0, ran
    tar = tmp_path / "shop.tar"
    assert (tar.read_bytes(), stat.S_IMODE(tar.stat().st_mode)) == (b"the tar", 0o600)
    assert "shop.tar.part" not in files(tmp_path)


async def test_a_backup_beside_another_one_to_the_same_file_is_rejected(
    rollcall: Rollcall, agent: FakeAgent, tmp_path: Path
) -> None:
    agent.answers["GET", f"{SHOP}/data"] = send_data
    part, link = tmp_path / "shop.tar.part", tmp_path / "other.tar.part"
    link.symlink_to(part)
    with part.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        beside = await rollcall("app", "backup", "web-1/shop", str(tmp_path / "shop.tar"))
    linked = await rollcall("app", "backup", "web-1/shop", str(tmp_path / "other.tar"))

    assert (beside.status, linked.status) == (2, 2)
    assert "another backup writes" in beside.err
    assert "cannot be made" in linked.err
    assert {part.name, link.name} < files(tmp_path)


async def test_a_tar_that_cannot_be_read_is_not_sent(
    rollcall: Rollcall, agent: FakeAgent, tmp_path: Path
) -> None:
    agent.answers["PUT", f"{SHOP}/data"] = APP_RECORD

    for path in (tmp_path, tmp_path / "missing.tar"):
        ran = await rollcall("app", "restore", "web-1/shop", str(path))
        assert (ran.status, f"{path} cannot be read" in ran.err) == (2, True)
    assert agent.asked == []

    tar = tmp_path / "shop.tar"
    tar.write_bytes(b"x" * 3_000_000)
    assert (await rollcall("app", "restore", "web-1/shop", str(tar))).status == 0
    assert agent.asked[0].body == tar.read_bytes()


async def test_a_log_without_an_end_of_line_is_printed_in_bounded_memory(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    async def send(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(30):
            await response.write(b"x" * 100_000)
        return response

    agent.answers["GET", f"{SHOP}/logs"] = send

    ran = await rollcall("app", "logs", "web-1/shop", "--tail", "all")

    assert ran.status == 0, ran.err
    lines = ran.out.splitlines()
    assert "".join(lines) == "x" * 3_000_000
    assert len(lines) > 1
    assert agent.asked[0].path == f"{SHOP}/logs?tail=all&follow=false"


def sends(*pieces: bytes) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return an answer that comes in these pieces."""

    async def send(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    return send


async def test_a_log_has_its_tabs_and_no_carriage_returns_at_the_ends_of_lines(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    agent.answers["GET", f"{SHOP}/logs"] = sends(b"a\tb\r", b"\n1%\r2%\n\x1b[2J\r\r\nend\t\r")

    ran = await rollcall("app", "logs", "web-1/shop")

    assert ran.out.split("\n") == ["a\tb", "1%\\r2%", "\\x1b[2J\\r", "end\t", ""]


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ((), "the container of web-1/shop has written nothing yet\n"),
        (("--follow",), "the container of web-1/shop has written nothing yet\n"),
        (("--since", "17"), "the container of web-1/shop has written nothing since 17\n"),
        (("--tail", "0"), ""),
    ],
)
async def test_an_empty_log_is_reported_so(
    rollcall: Rollcall, agent: FakeAgent, options: tuple[str, ...], reported: str
) -> None:
    agent.answers["GET", f"{SHOP}/logs"] = sends()

    assert await rollcall("app", "logs", "web-1/shop", *options) == (0, "", reported)

    agent.answers["GET", f"{SHOP}/logs"] = sends(b"x")
    assert await rollcall("app", "logs", "web-1/shop", *options) == (0, "x\n", "")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder on a filesystem of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.real("mount")
@NEEDS_ROOT
async def test_a_backup_onto_a_full_disk_says_so_and_leaves_no_file(
    rollcall: Rollcall, agent: FakeAgent, small_disk: Path
) -> None:
    agent.answers["GET", f"{SHOP}/data"] = sends(*[b"x" * 100_000] * 30)
    file = small_disk / "shop.tar"

    ran = await rollcall("app", "backup", "web-1/shop", str(file))

    assert (ran.status, ran.err) == (
        1,
        f"rollcall: {file} cannot be written: No space left on device\n",
    )
    assert files(small_disk) == set()


async def test_a_backup_that_grows_too_large_says_so_and_leaves_no_file(
    rollcall: Rollcall, agent: FakeAgent, tmp_path: Path
) -> None:
    agent.answers["GET", f"{SHOP}/data"] = sends(*[b"x" * 100_000] * 30)
    file = tmp_path / "shop.tar"
    command = CommandLine(rollcall.contexts.parent)

    process = await asyncio.create_subprocess_exec(
        *("prlimit", "--fsize=1000000", command.program, "app", "backup", "web-1/shop", file),
        env=command.environment,
        stderr=asyncio.subprocess.PIPE,
    )
    _, reported = await process.communicate()

    assert process.returncode == 1, reported
    assert f"{file} cannot be written: File too large" in reported.decode()
    assert not {"shop.tar", "shop.tar.part"} & files(tmp_path)


async def test_a_backup_replaces_no_file_that_comes_meanwhile(
    rollcall: Rollcall, agent: FakeAgent, tmp_path: Path
) -> None:
    file = tmp_path / "shop.tar"

    async def send(request: web.Request) -> web.StreamResponse:
        file.write_text("of somebody else")
        return await sends(b"data")(request)

    agent.answers["GET", f"{SHOP}/data"] = send

    ran = await rollcall("app", "backup", "web-1/shop", str(file))

    assert (ran.status, ran.err) == (
        2,
        f"rollcall: {file} exists already, and is left as it is\n",
    )
    assert file.read_text() == "of somebody else"
    assert "shop.tar.part" not in files(tmp_path)
    file.unlink()
    agent.answers["GET", f"{SHOP}/data"] = sends(b"data")
    assert (await rollcall("app", "backup", "web-1/shop", str(file))).status == 0
    assert file.read_bytes() == b"data"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_backup_and_a_restore_go_through_pipes(
    rollcall: Rollcall, agent: FakeAgent, tmp_path: Path
) -> None:
    data = bytes(range(256)) * 3_000
    agent.answers["GET", f"{SHOP}/data"] = sends(data[:100_000], data[100_000:])
    agent.answers["GET", "/healthz"] = {"status": "ok"}
    agent.answers["PUT", f"{SHOP}/data"] = APP_RECORD
    command = CommandLine(rollcall.contexts.parent)
    line = f'"{command.program}" app backup web-1/shop - | tee copy.tar'
    line += f' | "{command.program}" app restore web-1/shop -'

    process = await asyncio.create_subprocess_shell(
        line, cwd=tmp_path, env=command.environment, stderr=asyncio.subprocess.PIPE
    )
    _, reported = await process.communicate()

    assert process.returncode == 0, reported
    assert (tmp_path / "copy.tar").read_bytes() == data
    assert agent.changes()[0].body == data
    assert b"web-1/shop: 750.0 KiB in the pipe\n" in reported
    assert b"web-1/shop: restored; start the app\n" in reported
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize("given", ["backup", "restore"])
async def test_a_tar_is_neither_shown_nor_typed(
    rollcall: Rollcall, agent: FakeAgent, given: str
) -> None:
    status, shown = await asyncio.to_thread(at_terminal, rollcall, "app", given, "web-1/shop", "-")

    assert status == 2
    assert "name a file, or pipe it" in shown
    assert agent.asked == []
