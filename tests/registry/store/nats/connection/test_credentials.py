"""Logins by credentials files, at servers whose operator has signed their accounts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from registry.errors import StoreOpenError
from registry.store.options import NatsLogin, NatsOptions
from tests.support.daemons import Daemons, FreePort
from tests.support.registry.nats.accounts import Operator, credentials
from tests.support.registry.nats.buckets import backend_at, open_bucket
from tests.support.registry.nats.permissions import LEAST, SYSTEM
from tests.support.registry.nats.servers import NatsCluster
from tests.support.registry.stores.conformance import CHECKS, Check
from tests.support.registry.stores.shared_conformance import SHARED_CHECKS
from tests.support.registry.stores.sqlite_store import Batches

pytestmark = pytest.mark.real


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


async def refusal(server: NatsCluster, options: NatsOptions) -> str:
    """Return why a start is refused."""
    with pytest.raises(StoreOpenError) as raised:
        async with open_bucket(server.url(), options):
            pass
    return str(raised.value)


@pytest.mark.parametrize("check", [CHECKS[1], CHECKS[-2], *SHARED_CHECKS], ids=lambda c: c.__name__)
async def test_credentials_with_the_least_permissions_are_enough(
    check: Check, server: NatsCluster, options: NatsOptions
) -> None:
    backend = backend_at(server.url(), options)

    await check(lambda clock: backend.open(clock=clock, observe=Batches().observe))


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


async def test_credentials_that_a_server_does_not_accept_are_refused_with_the_reason(
    server: NatsCluster, operator: Operator, options: NatsOptions
) -> None:
    stranger = credentials(Operator().account, LEAST)
    expired = credentials(operator.account, LEAST, seconds=-60)
    for wrong in (stranger, expired):
        text = await refusal(server, replace(options, login=NatsLogin(credentials=wrong)))
        assert "Authorization Violation" in text
    text = await refusal(server, replace(options, login=NatsLogin(credentials="no credentials")))
    assert "the nkey or the credentials cannot be used" in text
    text = await refusal(server, replace(options, system=NatsLogin(credentials=stranger)))
    assert "the system account cannot be reached" in text


async def test_a_server_that_syncs_too_seldom_is_seen_by_the_system_account(
    tmp_path: Path, free_port: FreePort, operator: Operator, options: NatsOptions
) -> None:
    settings = operator.settings()
    with NatsCluster(
        folder=tmp_path / "lossy", free_port=free_port, sync="2m", settings=settings
    ) as servers:
        assert "loses acknowledged changes" in await refusal(servers, options)
