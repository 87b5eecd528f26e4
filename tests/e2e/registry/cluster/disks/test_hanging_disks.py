"""Disks of NATS servers that hang: a change that is not synced is neither answered nor shown."""

from pathlib import Path

import pytest
import requests

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.registry.nats.disks import on_a_shared_disk
from tests.support.registry.nats.servers import NatsCluster
from tests.support.requirements import need_root
from tests.support.run.release import some_of

pytestmark = pytest.mark.real("mkfs.ext4", "mount")
SOON_SECONDS = 180.0


def post(registry: Daemon, hostname: str) -> int:
    """Post a node; return the status of the answer."""
    body = {"labels": ["service:web"], "kv": {}}
    return registry.ask("POST", f"/nodes/{hostname}", json=body).status_code


def read(registry: Daemon, hostname: str) -> int:
    """Read a node; return the status of the answer."""
    return registry.ask("GET", f"/nodes/{hostname}").status_code


@pytest.mark.parametrize("size", some_of([1, 3], 1, reason="the same disk with three servers"))
def test_a_change_that_is_not_synced_is_neither_acknowledged_nor_shown(
    size: int, tmp_path: Path, free_port: FreePort
) -> None:
    need_root()
    servers = NatsCluster(folder=tmp_path / "nats", free_port=free_port, size=size)
    with (
        on_a_shared_disk(servers, tmp_path / "disks") as disk,
        Daemons(folder=tmp_path / "daemons", free_port=free_port) as daemons,
    ):
        registries = [
            daemons.registry(store=servers.url(), nats=servers.settings()) for _ in range(2)
        ]
        assert post(registries[0], "known") == requests.codes.ok

        with disk.hanging():
            assert post(registries[0], "unsynced") == requests.codes.service_unavailable
            assert [read(one, "unsynced") for one in registries] == [requests.codes.not_found] * 2
            assert read(registries[0], "known") == requests.codes.ok

        until(
            lambda: post(registries[0], "unsynced") == requests.codes.ok,
            "an answer with 200",
            within=SOON_SECONDS,
        )


@pytest.mark.release("shows that the test above can fail")
def test_servers_that_do_not_sync_always_acknowledge_and_show_such_a_change(
    tmp_path: Path, free_port: FreePort
) -> None:
    need_root()
    servers = NatsCluster(folder=tmp_path / "nats", free_port=free_port, sync="2m")
    nats = {**servers.settings(), "accept_loss": True}
    with (
        on_a_shared_disk(servers, tmp_path / "disks") as disk,
        Daemons(folder=tmp_path / "daemons", free_port=free_port) as daemons,
    ):
        registry = daemons.registry(store=servers.url(), nats=nats)
        assert post(registry, "known") == requests.codes.ok

        with disk.hanging():
            assert post(registry, "unsynced") == requests.codes.ok
            assert read(registry, "unsynced") == requests.codes.ok
