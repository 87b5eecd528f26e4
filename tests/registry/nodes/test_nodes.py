"""Hosts that fall silent, heartbeats that are turned down, identities that are left out."""

import shutil
from pathlib import Path

import pytest

from clients.message import Heartbeat
from registry.api.access import NodeKeys
from registry.errors import IdentityMismatch, StoreUnavailable, TooManyConflicts
from registry.nodes.changes import Source
from registry.nodes.heartbeats import Report
from registry.prometheus.targets import TargetOptions
from registry.registry import Registry
from registry.store.sqlite.store import SqliteStore
from tests.support.machine.clocks import ManualClock
from tests.support.registry.in_process import (
    NODE_SECRET,
    WEB_HOSTS,
    InProcessRegistry,
    clocks_of,
    context_of,
)
from tests.support.registry.stores.sqlite_store import Batches, open_store

OPERATOR = Source("ops", "127.0.0.1")


def registry_on(store: SqliteStore, uptime: ManualClock) -> Registry:
    return Registry(context_of(store, clocks_of(uptime)), TargetOptions())


@pytest.mark.slow
async def test_a_crash_makes_nobody_fresh_who_was_silent_for_long(tmp_path: Path) -> None:
    path, crashed = tmp_path / "r.db", tmp_path / "crashed.db"
    uptime, batches = ManualClock(), Batches()
    store = SqliteStore(path=path, monotonic=uptime, observe=batches.observe)
    nodes = registry_on(store, uptime).nodes
    await nodes.load()
    heartbeat = Heartbeat(labels=[], kv={})
    report = Report("web-1", b"", OPERATOR, operator=True)
    await nodes.heartbeats.accept_durably(report, heartbeat, is_large=False)
    for _ in range(200):
        uptime.now += 0.5
        await nodes.writes.flush()
    assert nodes.state_counts() == (0, 1)
    for suffix in ("", "-wal"):  # what a kill would leave
        shutil.copy(f"{path}{suffix}", f"{crashed}{suffix}")
    await store.close()

    async with open_store(crashed, uptime=uptime) as (_, [row]):
        assert row.age >= 90
    assert len(batches) <= 1 + 200 / 18 + 1  # an idle registry seldom writes


@pytest.mark.slow
async def test_each_heartbeat_is_counted_once_as_taken_or_as_rejected(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1")
    await registry.post("web-1")
    registry.store.failure = StoreUnavailable("broken")
    for _ in range(5):
        await registry.components.nodes.writes.flush()
    assert (await registry.counts())["store"] == 0

    assert (await registry.post("web-1")).status == 503  # the same as before
    assert (await registry.post("web-1", ["new"])).status == 503
    assert (await registry.post("web-2")).status == 503
    await registry.components.nodes.writes.flush()

    assert await registry.counts() == {
        "unchanged": 1,
        "added": 1,
        "changed": 0,
        "clone": 0,
        "store": 3,
        "rate": 0,
        "capacity": 0,
    }
    registry.store.failure = None
    await registry.components.nodes.writes.flush()
    assert (await registry.post("web-1")).status == 200
    assert (await registry.counts())["unchanged"] == 2


async def test_a_node_that_others_change_all_the_time_makes_no_other_request_fail(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1")
    registry.store.failure = TooManyConflicts("others change web-2; send it again")

    rejected = await registry.post("web-2")

    assert (rejected.status, rejected.headers["Retry-After"]) == (503, "5")
    assert registry.components.nodes.unavailable_reason is None
    assert (await registry.post("web-1")).status == 200


async def test_a_host_cannot_leave_out_the_identity_that_guards_its_name(
    registry: InProcessRegistry,
) -> None:
    own_key = NodeKeys([NODE_SECRET]).make("web-1")
    await registry.post("web-1", ["a"], {"agent.id": "first"})

    for key in (WEB_HOSTS, own_key):
        answer = await registry.post("web-1", ["b"], {}, key=key)
        assert answer.status == 409
        assert "first" in answer.json()["message"]
        assert "this one has none" in answer.json()["message"]
    assert (await registry.post("web-1", [], {"agent.id": "second"}, key=own_key)).status == 409
    assert (await registry.get("/nodes/web-1"))[0]["labels"] == ["a"]

    registry.clock.pass_seconds(90)
    assert (await registry.post("web-1", ["b"], {}, key=own_key)).status == 200


async def test_a_host_without_an_identity_may_go_on_without(registry: InProcessRegistry) -> None:
    own_key = NodeKeys([NODE_SECRET]).make("web-1")

    assert (await registry.post("web-1", ["a"], {}, key=own_key)).status == 200
    assert (await registry.post("web-1", ["b"], {}, key=own_key)).status == 200


async def test_an_operator_may_leave_out_a_hosts_identity(registry: InProcessRegistry) -> None:
    await registry.post("web-1", ["a"], {"agent.id": "first"})

    assert (await registry.post("web-1", ["b"], {})).status == 200


async def test_a_deletion_for_another_identity_is_rejected_as_what_it_is(
    registry: InProcessRegistry,
) -> None:
    await registry.post("a", kv={"agent.id": "new"})

    with pytest.raises(IdentityMismatch, match=r"a is now the host with agent\.id 'new'"):
        await registry.components.nodes.delete("a", OPERATOR, agent_id="old")


@pytest.mark.slow
async def test_a_deletion_leaves_nothing_behind_whether_it_succeeds_or_fails(
    registry: InProcessRegistry,
) -> None:
    for hostname in ("web-1", "web-2"):
        await registry.post(hostname)
    registry.store.failure = StoreUnavailable("broken")
    for hostname in ("web-1", "web-2"):
        assert (await registry.ask("DELETE", f"/nodes/{hostname}")).status == 503
    registry.store.failure = None
    await registry.components.nodes.writes.flush()

    assert (await registry.post("web-1")).status == 200  # it changes nothing
    assert (await registry.counts())["unchanged"] == 1
    for hostname in ("web-1", "web-2"):
        assert (await registry.ask("DELETE", f"/nodes/{hostname}")).status == 200
        assert (await registry.ask("DELETE", f"/nodes/{hostname}")).status == 404

    for _ in range(3):
        assert (await registry.post("web-1")).status == 200
    counts = await registry.counts()
    assert (counts["added"], counts["changed"], counts["unchanged"]) == (3, 0, 3)
