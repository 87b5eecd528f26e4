"""Logins and permissions: what the servers accept, and what a registry needs."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import nkeys
import pytest

from clients.tls import client_context
from registry.errors import StoreOpenError
from registry.store.nats.backend import NatsBackend
from registry.store.nats.bucket import ask_jetstream
from registry.store.nats.link import Link, NoConnection, connected
from registry.store.options import NatsLogin, NatsOptions
from tests.support.certificates import Authority
from tests.support.daemons import Daemons, FreePort
from tests.support.registry.nats.accounts import Operator, credentials
from tests.support.registry.nats.buckets import backend_at, once_unused, open_bucket, restored
from tests.support.registry.nats.permissions import LEAST, PERMISSIONS, SYSTEM
from tests.support.registry.nats.servers import NatsCluster
from tests.support.registry.stores.conformance import CHECKS, Check
from tests.support.registry.stores.shared_conformance import SHARED_CHECKS
from tests.support.registry.stores.sqlite_store import Batches, hostnames_of, ignore, row
from tests.support.waiting import async_until

pytestmark = pytest.mark.real
SOON_SECONDS = 60.0
PASSWORD = "password-of-registries"
LOGIN = NatsLogin(user="rollcall", password=PASSWORD)
USERS = f"""
authorization {{ users: [
  {{user: rollcall, password: {PASSWORD}, permissions: {PERMISSIONS}}}
] }}
"""
ACCOUNTS = f"""
accounts {{
  A {{ jetstream: enabled, users: [
    {{user: rollcall, password: {PASSWORD}, permissions: {PERMISSIONS}}}
    {{user: neighbour, password: {PASSWORD}}}
  ] }}
  B {{ jetstream: enabled, users: [{{user: stranger, password: {PASSWORD}}}] }}
}}
"""
CONSUMER_FOR_OTHERS = (
    "CONSUMER.CREATE.KV_rollcall.c",
    {
        "stream_name": "KV_rollcall",
        "config": {
            "name": "c",
            "deliver_subject": "orders",
            "deliver_policy": "all",
            "ack_policy": "none",
        },
    },
)
ELSEWHERE = (
    "$JS.API.INFO",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.PURGE.KV_rollcall",
    "$JS.API.STREAM.DELETE.KV_rollcall",
    "$JS.API.STREAM.UPDATE.KV_rollcall",
    "$JS.API.STREAM.SNAPSHOT.KV_rollcall",
    "$JS.API.STREAM.RESTORE.KV_rollcall",
    "$JS.API.STREAM.MSG.DELETE.KV_rollcall",
    "$JS.API.STREAM.MSG.GET.KV_rollcall",
    "$JS.API.DIRECT.GET.KV_rollcall",
    "$JS.API.CONSUMER.NAMES.KV_rollcall",
    "$JS.API.STREAM.INFO.KV_other",
    "$JS.API.STREAM.CREATE.KV_other",
    "$JS.API.CONSUMER.CREATE.KV_other.c.x",
    "$JS.API.CONSUMER.DELETE.KV_other.c",
    "$KV.other.node.a",
    "$SYS.REQ.SERVER.PING.VARZ",
)


@asynccontextmanager
async def logged_in(servers: NatsCluster, login: NatsLogin) -> AsyncIterator[Link]:
    """Connect to the first server."""
    async with connected([f"nats://{servers.servers[0].address}"], login) as link:
        yield link


async def can_be_used(servers: NatsCluster, login: NatsLogin) -> bool:
    """Return whether a node can be stored and read back."""
    options = replace(servers.options(), login=login)
    async with open_bucket(servers.url(), options) as (store, _):
        await store.put(row("a"), ignore)
    async with open_bucket(servers.url(), options) as (_, rows):
        return hostnames_of(rows) == ["a"]


async def rejection(servers: NatsCluster, login: NatsLogin) -> str:
    """Return why a login fails."""
    with pytest.raises(StoreOpenError) as raised:
        await can_be_used(servers, login)
    return str(raised.value)


async def test_a_user_with_a_password(tmp_path: Path, free_port: FreePort) -> None:
    with NatsCluster(folder=tmp_path, free_port=free_port, settings=USERS) as servers:
        assert await can_be_used(servers, LOGIN)
        for wrong in (NatsLogin(), replace(LOGIN, password="wrong-password-of-them")):
            text = await rejection(servers, wrong)
            assert "Authorization Violation" in text
            assert "wrong-password" not in text


async def test_an_nkey(tmp_path: Path, free_port: FreePort) -> None:
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    users = f"authorization {{ users: [{{nkey: {public}}}] }}\n"
    with NatsCluster(folder=tmp_path, free_port=free_port, settings=users) as servers:
        assert await can_be_used(servers, NatsLogin(nkey=seed.decode()))
        other = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
        assert "Authorization" in await rejection(servers, NatsLogin(nkey=other.decode()))


@pytest.mark.parametrize("lax", [False, True])
async def test_tls_with_a_certificate_of_the_registry(
    tmp_path: Path, free_port: FreePort, *, lax: bool
) -> None:
    authority = Authority(tmp_path / "ca", lax=lax)
    server, client = authority.issue("127.0.0.1"), authority.issue("registry", stem="client")
    tls = (
        f'tls {{ cert_file: "{server.certificate}", key_file: "{server.key}",'
        f' ca_file: "{authority.ca}", verify: true, handshake_first: auto }}\n'
    )
    context = client_context(ca=authority.ca)
    with NatsCluster(folder=tmp_path / "n", free_port=free_port, settings=tls) as servers:
        assert await rejection(servers, NatsLogin(tls=context)) != ""  # it shows no certificate
        context.load_cert_chain(client.certificate, client.key)
        assert await can_be_used(servers, NatsLogin(tls=context))
        stranger = client_context(ca=Authority(tmp_path / "other").ca)
        assert "certificate verify failed" in await rejection(servers, NatsLogin(tls=stranger))


@pytest.mark.parametrize("lax", [False, True])
async def test_tls_that_only_the_server_asks_for_trusts_the_bundle_of_the_system(
    tmp_path: Path, free_port: FreePort, monkeypatch: pytest.MonkeyPatch, *, lax: bool
) -> None:
    authority = Authority(tmp_path / "ca", lax=lax)
    server = authority.issue("127.0.0.1")
    tls = f'tls {{ cert_file: "{server.certificate}", key_file: "{server.key}" }}\n'
    with NatsCluster(folder=tmp_path / "n", free_port=free_port, settings=tls) as servers:
        assert "certificate verify failed" in await rejection(servers, NatsLogin())
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        assert await can_be_used(servers, NatsLogin())


async def test_with_tls_no_password_is_sent_in_clear(free_port: FreePort) -> None:
    """Whoever is between pretends that the server wants no TLS."""
    port, received = free_port(), bytearray()
    info = b'INFO {"server_id":"n1","version":"2.12.0","proto":1,"max_payload":1048576}\r\n'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(info)
        received.extend(await reader.read(65536))
        writer.close()

    login = replace(LOGIN, tls=client_context())
    async with await asyncio.start_server(serve, "127.0.0.1", port):
        with pytest.raises(NoConnection, match="handshake_first: auto"):
            async with connected([f"nats://127.0.0.1:{port}"], login):
                pass
    assert PASSWORD.encode() not in received


async def test_a_server_that_does_not_begin_with_tls_is_rejected(
    tmp_path: Path, free_port: FreePort
) -> None:
    authority = Authority(tmp_path / "ca")
    server = authority.issue("127.0.0.1")
    tls = f'tls {{ cert_file: "{server.certificate}", key_file: "{server.key}" }}\n'
    login = NatsLogin(tls=client_context(ca=authority.ca))
    with (
        NatsCluster(folder=tmp_path / "n", free_port=free_port, settings=tls) as servers,
        pytest.raises(NoConnection, match="handshake_first: auto"),
    ):
        async with connected([f"nats://{servers.servers[0].address}"], login):
            pass


@pytest.fixture
def least(tmp_path: Path, free_port: FreePort) -> NatsCluster:
    return NatsCluster(folder=tmp_path, free_port=free_port, settings=USERS)


@pytest.mark.parametrize("check", [CHECKS[1], CHECKS[-2], *SHARED_CHECKS], ids=lambda c: c.__name__)
async def test_the_least_permissions_are_enough(check: Check, least: NatsCluster) -> None:
    with least as servers:
        backend = backend_at(servers.url(), replace(servers.options(), login=LOGIN))

        await check(lambda clock: backend.open(clock=clock, observe=Batches().observe))


async def test_the_least_permissions_are_enough_for_each_command(
    tmp_path: Path, least: NatsCluster
) -> None:
    with least as servers:
        assert await can_be_used(servers, LOGIN)
        bucket = backend_at(servers.url(), replace(servers.options(), login=LOGIN))
        await asyncio.to_thread(use_each_command, bucket, tmp_path / "backup")


def use_each_command(bucket: NatsBackend, backup: Path) -> None:
    """Use each command on a bucket with one node, which it has again in the end."""
    assert bucket.check() == 1
    assert bucket.backup(backup) == 1
    assert bucket.delete(["a"]) == ["a"]
    assert restored(bucket, backup).nodes == 1
    assert bucket.check() == 1
    nodes = once_unused(bucket.snapshot)
    once_unused(partial(bucket.fill, nodes))
    assert bucket.check() == 1


async def test_without_any_of_these_permissions_something_fails(
    tmp_path: Path, free_port: FreePort
) -> None:
    """Flow control is asked for only while much is delivered at once, which one node is not."""
    lacking = [one for one in LEAST.publish if one.startswith("$JS.API.")]
    # As long as there is no bucket.
    lacking.sort(key=lambda one: "STREAM.CREATE" not in one)
    with NatsCluster(
        folder=tmp_path / "n", free_port=free_port, settings=users_without(lacking)
    ) as servers:
        for number, left_out in enumerate(lacking):
            login = replace(LOGIN, user=f"u{number}")
            assert await fails(servers, login, tmp_path / f"backup-{number}"), left_out


def users_without(lacking: Sequence[str]) -> str:
    """Return users, each of which lacks one permission."""
    entries = []
    for number, left_out in enumerate(lacking):
        publish = json.dumps([one for one in LEAST.publish if one != left_out])
        permissions = f'{{publish: {publish}, subscribe: ["_INBOX.>"]}}'
        entries.append(f"{{user: u{number}, password: {PASSWORD}, permissions: {permissions}}}")
    return f"authorization {{ users: [{', '.join(entries)}] }}\n"


async def fails(servers: NatsCluster, login: NatsLogin, backup: Path) -> bool:
    """Return whether a registry, or a command, fails with a login."""
    bucket = backend_at(servers.url(), replace(servers.options(), login=login))
    try:
        assert await can_be_used(servers, login)
        await asyncio.to_thread(bucket.backup, backup)
        await asyncio.to_thread(bucket.restore, backup)
    except StoreOpenError:
        return True
    return False


async def test_with_these_permissions_nobody_purges_or_looks_elsewhere(
    least: NatsCluster,
) -> None:
    with least as servers:
        assert await can_be_used(servers, LOGIN)
        async with logged_in(servers, LOGIN) as link:
            for subject in ELSEWHERE:
                await link.client.publish(subject, b"")
                await async_until(partial(is_denied, link, subject), SOON_SECONDS)


async def is_denied(link: Link, subject: str) -> bool:
    return f'publish to "{subject.lower()}"' in link.denied.lower()


async def test_no_message_removes_those_of_other_keys(least: NatsCluster) -> None:
    with least as servers:
        assert await can_be_used(servers, LOGIN)
        async with logged_in(servers, LOGIN) as link:
            reply = await link.client.request("$KV.rollcall.x", b"", headers={"Nats-Rollup": "all"})
        assert b"rollup not permitted" in reply.data
        async with open_bucket(servers.url(), replace(servers.options(), login=LOGIN)) as (_, rows):
            assert hostnames_of(rows) == ["a"]


async def test_a_consumer_delivers_to_subjects_of_its_account_alone(
    tmp_path: Path, free_port: FreePort
) -> None:
    with NatsCluster(folder=tmp_path, free_port=free_port, settings=ACCOUNTS) as servers:
        assert await can_be_used(servers, LOGIN)
        async with (
            logged_in(servers, replace(LOGIN, user="neighbour")) as neighbour,
            logged_in(servers, replace(LOGIN, user="stranger")) as stranger,
            logged_in(servers, LOGIN) as registry,
        ):
            near, far = [await link.client.subscribe("orders") for link in (neighbour, stranger)]
            for link in (neighbour, stranger):
                await link.client.flush()
            await ask_jetstream(registry, *CONSUMER_FOR_OTHERS)

            await near.next_msg(SOON_SECONDS)
            await stranger.client.flush()
            assert far.pending_msgs == 0


async def test_a_registry_that_may_not_write_says_so_at_the_start(
    tmp_path: Path, free_port: FreePort
) -> None:
    reader = replace(LOGIN, user="reader")
    permissions = PERMISSIONS.replace('"$KV.rollcall.>"', "")
    entry = f"{{user: reader, password: {PASSWORD}, permissions: {permissions}}}"
    users = USERS.replace("] }", f"{entry}\n] }}")
    with NatsCluster(folder=tmp_path, free_port=free_port, settings=users) as servers:
        options = replace(servers.options(), login=LOGIN)
        async with open_bucket(servers.url(), options):  # its messages come all the time
            text = await rejection(servers, reader)
    assert "permissions violation for publish" in text.lower()


def test_secrets_are_not_shown() -> None:
    options = NatsOptions(login=NatsLogin(user="u", password=PASSWORD, credentials="c" * 20))

    assert PASSWORD not in repr(options)
    assert "c" * 20 not in repr(options)


async def test_a_copy_by_a_login_that_may_not_write_says_so(
    tmp_path: Path, free_port: FreePort
) -> None:
    reader = USERS.replace('"$KV.rollcall.>"', "")
    with NatsCluster(folder=tmp_path, free_port=free_port, settings=reader) as servers:
        bucket = backend_at(servers.url(), replace(servers.options(), login=LOGIN))
        with pytest.raises(StoreOpenError, match=r"(?i)permissions violation"):
            await asyncio.to_thread(bucket.fill, [row("a")])


@pytest.fixture
def operator() -> Operator:
    return Operator()


@pytest.fixture
def server(tmp_path: Path, free_port: FreePort, operator: Operator) -> Iterator[NatsCluster]:
    settings = operator.settings()
    with NatsCluster(folder=tmp_path / "n", free_port=free_port, settings=settings) as servers:
        yield servers


@pytest.fixture
def registry_credentials(operator: Operator) -> str:
    return credentials(operator.account, LEAST)


@pytest.fixture
def options(operator: Operator, registry_credentials: str) -> NatsOptions:
    return NatsOptions(
        login=NatsLogin(credentials=registry_credentials),
        system=NatsLogin(credentials=credentials(operator.system, SYSTEM)),
    )


async def start_rejection(server: NatsCluster, options: NatsOptions) -> str:
    """Return why a start is rejected."""
    with pytest.raises(StoreOpenError) as raised:
        async with open_bucket(server.url(), options):
            pass
    return str(raised.value)


def test_a_registry_reads_both_files_and_keeps_its_nodes(
    server: NatsCluster,
    operator: Operator,
    registry_credentials: str,
    tmp_path: Path,
    daemons: Daemons,
) -> None:
    own, system = tmp_path / "registry.creds", tmp_path / "system.creds"
    own.write_text(registry_credentials)
    system.write_text(credentials(operator.system, SYSTEM))
    nats = {"credentials": str(own), "system": {"credentials": str(system)}}
    registry = daemons.registry(store=server.url(), nats=nats)
    assert registry.ask("POST", "/nodes/one", json={"labels": [], "kv": {}}).ok

    registry.restart()

    assert [node["hostname"] for node in registry.ask("GET", "/nodes").json()] == ["one"]
    assert "SEED" not in registry.log()


async def test_credentials_that_a_server_does_not_accept_are_rejected_with_the_reason(
    server: NatsCluster, operator: Operator, options: NatsOptions
) -> None:
    stranger = credentials(Operator().account, LEAST)
    expired = credentials(operator.account, LEAST, seconds=-60)
    for wrong in (stranger, expired):
        text = await start_rejection(server, replace(options, login=NatsLogin(credentials=wrong)))
        assert "Authorization Violation" in text
    text = await start_rejection(server, replace(options, system=NatsLogin(credentials=stranger)))
    assert "the system account cannot be reached" in text
