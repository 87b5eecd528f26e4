"""What the commands do with a bucket, beside registries that run and without any."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from registry.errors import StoreOpenError
from registry.store.nats.backend import NatsBackend, write_backup
from registry.store.nats.bucket import find_bucket
from registry.store.nats.delivery import Delivery
from registry.store.nats.format import HeardNodes, encode
from registry.store.nats.link import Link, connected
from registry.store.options import NatsLogin
from registry.store.protocol import Row
from tests.support.registry.fake_servers import tcp_server
from tests.support.registry.nats.buckets import backend_at, open_bucket, restored
from tests.support.registry.nats.servers import NatsCluster
from tests.support.registry.stores.sqlite_store import hostnames_of, ignore, row
from tests.support.servers import closing
from tests.support.waiting import async_until

pytestmark = pytest.mark.real
MANY = [f"h{number}" for number in range(1500)]
MANY_MESSAGES = 100_000


@pytest.fixture
def backend(server: NatsCluster, url: str) -> NatsBackend:
    return backend_at(url, server.options())


def fill(server: NatsCluster, url: str, *hostnames: str) -> None:
    async def put_all() -> None:
        async with open_bucket(url, server.options()) as (store, _):
            await asyncio.gather(*[store.put(row(name), ignore) for name in hostnames])

    asyncio.run(put_all())


async def hear(server: NatsCluster, url: str, hostname: str, *, uptime: float, now: float) -> None:
    """Report as another registry that a node was seen then, and the uptime of now."""
    prefix = f"$KV.{url.rpartition('/')[2]}.heard.other.0"
    reports = {uptime: [(hostname, 1_700_000_000, "192.0.2.1")], now: []}
    async with connected([f"nats://{server.servers[0].address}"], NatsLogin()) as link:
        for number, (time, heard) in enumerate(reports.items()):
            value = HeardNodes(by=f"other-{number}", uptime=time, heard=heard, seen=MANY_MESSAGES)
            await link.client.request(f"{prefix}.{number}", encode(value))


def rows_in(server: NatsCluster, url: str) -> list[Row]:
    async def load() -> list[Row]:
        async with open_bucket(url, server.options()) as (_, rows):
            return list(rows)

    return asyncio.run(load())


def test_a_bucket_that_does_not_exist_is_not_made_by_looking(
    backend: NatsBackend, tmp_path: Path
) -> None:
    assert backend.check() is None
    with pytest.raises(StoreOpenError, match="does not exist"):
        backend.backup(tmp_path / "backup")
    with pytest.raises(StoreOpenError, match="does not exist"):
        backend.delete(["a"])
    assert backend.check() is None


def test_nodes_are_counted_and_deleted(server: NatsCluster, url: str, backend: NatsBackend) -> None:
    fill(server, url, "a", "b", "c")

    assert backend.check() == 3
    assert backend.delete(["b", "x"]) == ["b"]
    assert backend.check() == 2
    assert hostnames_of(rows_in(server, url)) == ["a", "c"]


def test_a_command_leaves_the_ages_of_the_other_nodes(
    server: NatsCluster, url: str, backend: NatsBackend
) -> None:
    fill(server, url, "a", *MANY)  # to delete them takes longer than to begin to write ages
    asyncio.run(hear(server, url, "a", uptime=900.0, now=1000.0))

    assert backend.delete(MANY) == MANY

    [left] = rows_in(server, url)
    assert left.hostname == "a"
    assert left.age == pytest.approx(100, abs=60)


def test_a_registry_that_runs_sees_what_a_command_deletes(
    server: NatsCluster, url: str, backend: NatsBackend, tmp_path: Path
) -> None:
    async def run() -> None:
        async with open_bucket(url, server.options()) as (store, _):
            await store.put(row("a"), ignore)
            assert await asyncio.to_thread(backend.backup, tmp_path / "backup") == 1
            assert await asyncio.to_thread(backend.delete, ["a"]) == ["a"]
            with pytest.raises(StoreOpenError, match="in use"):
                await asyncio.to_thread(backend.restore, tmp_path / "backup")

    asyncio.run(run())


def test_a_backup_brings_back_what_was_there(server: NatsCluster, url: str, tmp_path: Path) -> None:
    backend = backend_at(url, server.options())
    fill(server, url, "a", "b")
    before = rows_in(server, url)
    assert backend.backup(tmp_path / "backup") == 2
    other = f"{url}-other"
    fill(server, other, "b", "c")

    done = restored(backend_at(other, server.options()), tmp_path / "backup")

    assert done.nodes == 2
    assert done.kept == str(tmp_path / "backup.before-restore")
    after = rows_in(server, other)
    assert [one._replace(age=0) for one in after] == [one._replace(age=0) for one in before]
    third = backend_at(f"{url}-third", server.options())
    assert restored(third, Path(done.kept)).nodes == 2
    assert hostnames_of(rows_in(server, f"{url}-third")) == ["b", "c"]


def test_a_node_of_a_backup_is_as_old_as_it_was(
    server: NatsCluster, url: str, backend: NatsBackend, tmp_path: Path
) -> None:
    write_backup([row("a")._replace(age=80_000.0), row("b")], tmp_path / "backup")

    restored(backend, tmp_path / "backup")

    assert [one.age for one in rows_in(server, url)] == pytest.approx([80_000, 0], abs=60)


@asynccontextmanager
async def before_first(
    server: NatsCluster, url: str, keys: str, react: Callable[[Link], Awaitable[None]]
) -> AsyncIterator[NatsBackend]:
    """Yield a bucket's backend; its first message of some keys waits until something is done."""
    address, _, bucket = url.rpartition("/")
    far = urlsplit(address)
    awaited = f"$KV.{bucket}.{keys}.".encode()
    reactions: list[asyncio.Future[None]] = []

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            async for line in reader:
                if not reactions and line.startswith((b"PUB " + awaited, b"HPUB " + awaited)):
                    reactions.append(asyncio.ensure_future(react(link)))
                    await asyncio.wait(reactions)
                writer.write(line)
                await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replies, requests = await asyncio.open_connection(far.hostname, far.port)
        async with closing(writer), closing(requests), asyncio.TaskGroup() as directions:
            directions.create_task(pass_on(reader, requests))
            directions.create_task(pass_on(replies, writer))

    async with connected([address], NatsLogin()) as link, tcp_server(relay) as relayed:
        yield backend_at(f"nats://127.0.0.1:{urlsplit(relayed).port}/{bucket}", server.options())
        [reaction] = reactions
        await reaction


async def test_a_restore_is_rejected_if_a_registry_begins_before_it_writes(
    server: NatsCluster, url: str, tmp_path: Path
) -> None:
    write_backup([row("b")], tmp_path / "backup")
    await asyncio.to_thread(fill, server, url, "a")
    bucket = url.rpartition("/")[2]

    async def begin(link: Link) -> None:
        await Delivery(link, bucket, lambda _message: None).begin(1)

    async with before_first(server, url, "heard", begin) as backend:
        with pytest.raises(StoreOpenError, match="in use by a registry"):
            await asyncio.to_thread(backend.restore, tmp_path / "backup")

    assert [one.hostname for one in await asyncio.to_thread(rows_in, server, url)] == ["a"]


async def test_a_restore_shows_of_a_registry_that_began_before_it_was_complete(
    server: NatsCluster, url: str, tmp_path: Path
) -> None:
    write_backup([row(name) for name in MANY], tmp_path / "backup")
    await asyncio.to_thread(fill, server, url, "a")
    bucket = url.rpartition("/")[2]

    async def report(link: Link) -> None:
        value = HeardNodes(by="other-1", uptime=0.0, heard=[], name="there")
        await link.client.request(f"$KV.{bucket}.heard.other.0.1", encode(value))

    async with before_first(server, url, "node", report) as backend:
        with pytest.raises(StoreOpenError, match="a registry has begun meanwhile, on there"):
            await asyncio.to_thread(backend.restore, tmp_path / "backup")


def test_a_backup_is_renamed_durably_and_not_left_as_a_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(draft: Path, _path: Path) -> None:
        assert len(draft.read_bytes().splitlines()) == 2
        raise OSError("the power is gone")

    monkeypatch.setattr("runtime.durable.rename_durably", cut_off)
    with pytest.raises(StoreOpenError, match="the power is gone"):
        write_backup([row("a")], tmp_path / "backup")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cut", [1, 40])
def test_a_backup_that_is_cut_off_is_rejected(
    cut: int, server: NatsCluster, url: str, backend: NatsBackend, tmp_path: Path
) -> None:
    fill(server, url, "a", "b")
    backend.backup(tmp_path / "backup")
    content = (tmp_path / "backup").read_bytes()
    (tmp_path / "cut").write_bytes(content[: -len(content.splitlines()[-1]) - cut])

    with pytest.raises(StoreOpenError, match=r"complete|no backup"):
        backend.restore(tmp_path / "cut")

    assert hostnames_of(rows_in(server, url)) == ["a", "b"]


def test_a_bucket_stays_as_it_is_if_what_it_holds_cannot_be_kept(
    server: NatsCluster, url: str, backend: NatsBackend, tmp_path: Path
) -> None:
    fill(server, url, "a")
    write_backup([row("b")], tmp_path / "backup")
    in_the_way = tmp_path / f".backup.before-restore.{os.getpid()}.new"
    in_the_way.mkdir()

    with pytest.raises(StoreOpenError, match=r"before-restore cannot be written"):
        restored(backend, tmp_path / "backup")

    assert hostnames_of(rows_in(server, url)) == ["a"]


def test_a_bucket_whose_last_message_has_expired_is_backed_up(
    server: NatsCluster, url: str, backend: NatsBackend, tmp_path: Path
) -> None:
    fill(server, url, "a")
    address, _, bucket = url.rpartition("/")

    async def write_and_expire() -> None:
        async with connected([address], NatsLogin()) as link:
            subject, expiring = f"$KV.{bucket}.later.a", {"Nats-TTL": "1s"}
            await link.client.request(subject, b"", timeout=5, headers=expiring)
            before = await find_bucket(link, bucket)

            async def is_gone() -> bool:
                state = await find_bucket(link, bucket)
                assert state is not None
                assert before is not None
                return state.subjects < before.subjects

            await async_until(is_gone)

    asyncio.run(write_and_expire())

    assert backend.backup(tmp_path / "backup") == 1
