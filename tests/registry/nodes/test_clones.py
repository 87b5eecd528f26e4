"""Clones of a host, and hosts that are denied, are rejected."""

import asyncio
import re
import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from config.registry import NodesSettings, RegistryKey
from registry.errors import StoreUnreachable
from registry.nodes.clones import DeniedHosts
from registry.store.protocol import HeardBefore, Member, Row
from tests.support.registry.in_process import (
    NO_LIMITS,
    OPS,
    WEB_HOSTS,
    InProcessRegistry,
    RegistryResponse,
    in_process_registry,
)
from tests.support.registry.load.watcher import Watcher
from tests.support.registry.stores.memory_store import MemoryStore
from tests.support.registry.stores.shared_store import SharedLog
from tests.support.waiting import async_until


async def report(
    registry: InProcessRegistry, instance: str | None, *labels: str, **more: str
) -> RegistryResponse:
    kv = {"agent.id": "machine", **more}
    return await registry.post(
        "web-1", labels, kv | ({"agent.instance": instance} if instance else {})
    )


@pytest.mark.slow
async def test_an_instance_that_was_replaced_and_posts_again_is_409_and_counted(
    registry: InProcessRegistry,
) -> None:
    await report(registry, "first")
    registry.clock.pass_seconds(30)
    assert (await report(registry, "second", "a")).status == 200
    registry.clock.pass_seconds(12)

    for label in ("", "b"):
        answer = await report(registry, "first", *filter(None, [label]))
        assert answer.status == 409
        for word in ("web-1", "machine", "127.0.0.1", "12 s ago", "/etc/machine-id"):
            assert word in answer.json()["message"]

    assert (await report(registry, "second", "c")).status == 200
    assert (await registry.get("/nodes/web-1"))[0]["labels"] == ["c"]
    assert (await registry.counts())["clone"] == 2


async def test_both_addresses_are_reported() -> None:
    async with in_process_registry() as registry:
        nodes = registry.components.nodes
        await report(registry, "first")
        await report(registry, "second")
        (entry,) = registry.components.context.directory.fresh
        entry.address = "192.0.2.7"

        message = (await report(registry, "first")).json()["message"]

        assert "posts from 127.0.0.1" in message
        assert "last seen 0 s ago from 192.0.2.7" in message
        assert nodes.unavailable_reason is None


@pytest.mark.slow
async def test_a_restart_is_never_rejected(registry: InProcessRegistry) -> None:
    for number in range(30):
        for _ in range(2):
            assert (await report(registry, f"instance-{number}")).status == 200
        registry.clock.pass_seconds(30)
    assert (await registry.counts())["clone"] == 0


@pytest.mark.slow
async def test_of_two_clones_that_restart_in_turn_each_start_is_reported(
    registry: InProcessRegistry,
) -> None:
    for number in range(6):
        assert (await report(registry, f"instance-{number}")).status == 200
        for earlier in range(number):
            assert (await report(registry, f"instance-{earlier}")).status == 409


@pytest.mark.slow
async def test_once_the_holder_is_stale_the_other_one_takes_over(
    registry: InProcessRegistry,
) -> None:
    await report(registry, "first")
    await report(registry, "second")
    assert (await report(registry, "first")).status == 409
    registry.clock.pass_seconds(90)

    assert (await report(registry, "first")).status == 200
    assert (await report(registry, "second")).status == 409


async def test_a_host_that_was_deleted_begins_anew(registry: InProcessRegistry) -> None:
    await report(registry, "first")
    await report(registry, "second")
    await registry.ask("DELETE", "/nodes/web-1")

    assert (await report(registry, "first")).status == 200


@pytest.mark.slow
async def test_a_change_that_was_not_stored_replaces_nothing(registry: InProcessRegistry) -> None:
    await report(registry, "first")
    registry.store.failure = OSError("no")
    assert (await report(registry, "second")).status == 500
    registry.store.failure = None

    assert (await report(registry, "first", "a")).status == 200


async def test_agents_without_an_instance_go_on(registry: InProcessRegistry) -> None:
    await report(registry, None)
    await report(registry, "first")

    assert (await report(registry, None, "edited")).status == 200
    assert (await report(registry, "first")).status == 200


@pytest.mark.slow
async def test_no_text_can_pass_for_an_identity_and_none_hides_it(
    registry: InProcessRegistry,
) -> None:
    labels = [',"agent.id":"false",', '"kv":{"agent.id":"false"', '{"agent.instance":"x"']
    odd = {',"agent.id': "false", '{"agent.id': "false", "a": ',"agent.id":"false"'}
    for identity in ('quote"d', "back\\slash", "grüße 😀", "", "a" * 300):
        await registry.ask("DELETE", "/nodes/web-1")
        kv = odd | {"agent.id": identity, "z": '{"agent.id":"false"'}
        assert (await registry.post("web-1", labels, kv)).status == 200

        assert (await registry.post("web-1", [*labels, "b"], kv)).status == 200
        other = await registry.post("web-1", labels, kv | {"agent.id": "false"})
        assert other.status == 409
        message = other.json()["message"]
        assert ascii(identity[:8]) in message
        assert len(identity) <= 8 or identity[:9] not in message


@pytest.mark.parametrize("identity", ['a"b', "back\\", '","agent.id":"c', "grüße"])
async def test_an_identity_may_hold_any_characters(
    registry: InProcessRegistry, identity: str
) -> None:
    other = {'"agent.id': "other", '"': "other", 'x"agent.id': '"agent.id":"other'}
    assert (await registry.post("web-1", [], other)).status == 200

    assert (await registry.post("web-1", [], other | {"agent.id": identity})).status == 200
    assert (await registry.post("web-1", ["a"], other | {"agent.id": identity})).status == 200
    answer = await registry.post("web-1", [], other | {"agent.id": "other"})

    assert answer.status == 409
    assert ascii(identity[:8]) in answer.json()["message"]


async def test_no_conflict_shows_more_than_eight_characters_of_an_identity(
    registry: InProcessRegistry,
) -> None:
    held, other = "0123456789abcdef" * 2, "fedcba9876543210" * 2
    for instance in ("one", "two"):
        kv = {"agent.id": held, "agent.instance": instance}
        assert (await registry.post("web-1", kv=kv)).status == 200

    for answer in (
        await registry.post("web-1", kv={"agent.id": other}),
        await registry.post("web-1", kv={"agent.id": held, "agent.instance": "one"}),
        await registry.ask("DELETE", f"/nodes/web-1?agent_id={other}"),
    ):
        assert answer.status == 409
        assert "'01234567'..." in answer.json()["message"]
        assert held[:9] not in answer.json()["message"]
        assert other[:9] not in answer.json()["message"]


DENIED = ("WEB-7.", "old-*")
NAMES = ("web-7", "old-1", "old-2", "web-8")
LABELS = ["prometheus:web", "service:a"]


@pytest.fixture
async def fleet() -> AsyncIterator[InProcessRegistry]:
    """Yield a registry with four hosts."""
    async with in_process_registry() as registry:
        for name in NAMES:
            await registry.post(name, LABELS)
        yield registry


async def names(registry: InProcessRegistry, query: str = "") -> list[str]:
    return [node["hostname"] for node in await registry.get(f"/nodes{query}")]


async def keep_following(watcher: Watcher) -> None:
    """Resume each time: a reload ends the streams that are behind."""
    while True:
        await watcher.follow()


async def test_hosts_that_are_denied_are_in_no_answer_from_the_reload_on(
    fleet: InProcessRegistry,
) -> None:
    paths = ("/nodes", "/nodes?label=service:a", "/nodes?search=old", "/prometheus/web",
             "/prometheus/web?format=http_sd", "/services", "/status")  # fmt: skip
    for path in paths:  # some answers are kept for the next client
        await fleet.ask("GET", path)

    await fleet.components.deny(DENIED)

    assert await names(fleet) == ["web-8"]
    for path in paths:
        body = (await fleet.ask("GET", path)).body
        assert not [name for name in NAMES[:3] if name.encode() in body], path
    for path in ("/nodes/web-7", "/nodes/old-1/explain", "/prometheus/web?explain=old-2"):
        assert (await fleet.ask("GET", path)).status == 404
    assert (await fleet.get("/status"))["nodes"]["total"] == 1


@pytest.mark.parametrize("lane", [True, False])
async def test_no_key_reports_or_deletes_them(*, lane: bool) -> None:
    async with in_process_registry(lane=lane) as registry:
        await registry.post("web-7", LABELS)
        await registry.components.deny(DENIED)

        for key, name in ((OPS, "web-7"), (WEB_HOSTS, "WEB-7."), (OPS, "old-3")):
            for _ in range(2):
                answer = await registry.post(name, LABELS, key=key)
                assert answer.status == 403
                assert "is in `nodes.denied` of this registry" in answer.json()["message"]
            assert (await registry.ask("DELETE", f"/nodes/{name}", key=key)).status == 403
        status = await registry.get("/status")
        assert (status["rejected"], status["denied"]["rejected"]) == ([], 2)
        assert (await registry.post("web-70", LABELS)).status == 200


async def test_who_is_taken_off_the_list_reports_again(fleet: InProcessRegistry) -> None:
    await fleet.components.deny(DENIED)
    await fleet.components.deny(["old-*"])

    assert (await fleet.post("web-7", LABELS)).status == 200
    assert (await fleet.post("old-1", LABELS)).status == 403
    assert await names(fleet) == ["web-7", "web-8"]
    await fleet.components.nodes.writes.delete_expired()
    assert fleet.store.rows.keys() == {"web-7", "web-8"}


async def test_a_watch_is_reported_that_they_are_gone_and_resumes_without_them(
    fleet: InProcessRegistry,
) -> None:
    watcher, late = Watcher(fleet.address), Watcher(fleet.address)
    following = asyncio.create_task(watcher.follow())
    await watcher.until(lambda seen: len(seen.nodes) == len(NAMES))
    late.last_id = watcher.events[1].id

    await fleet.components.deny(DENIED)
    await watcher.until(lambda seen: set(seen.nodes) == {"web-8"})
    resuming = asyncio.create_task(late.follow())
    await late.until(lambda seen: "web-8" in seen.nodes)

    reported = msgspec.json.encode([event.data for event in late.events if event.kind == "node"])
    assert b"web-7" not in reported
    assert b"old-" not in reported
    for task in (following, resuming):
        task.cancel()
    await asyncio.gather(following, resuming, return_exceptions=True)


async def test_they_are_not_loaded_and_go_from_the_store() -> None:
    store = MemoryStore([Row(name, b'{"labels":[],"kv":{}}', 1, "") for name in sorted(NAMES)])
    limits = msgspec.structs.replace(NO_LIMITS, denied=DENIED)
    async with in_process_registry(store=store, limits=limits) as registry:
        assert await names(registry) == ["web-8"]
        await registry.components.nodes.writes.delete_expired()
        assert store.rows.keys() == {"web-8"}


async def test_what_another_registry_takes_of_them_is_not_shown_here(
    fleet: InProcessRegistry,
) -> None:
    await fleet.components.deny(DENIED)

    fleet.store.shared.stored(Row("old-1", b'{"labels":["new"],"kv":{}}', 1, ""))

    assert await names(fleet) == ["web-8"]


async def test_what_another_registry_took_of_them_is_shown_once_they_are_allowed(
    fleet: InProcessRegistry,
) -> None:
    await fleet.components.deny(DENIED)
    await fleet.components.nodes.writes.delete_expired()
    shared, later = fleet.store.shared, int(time.time()) + 5
    for name in NAMES[:3]:
        shared.stored(Row(name, b'{"labels":["new","prometheus:web"],"kv":{}}', 1, "10.0.0.1"))
    shared.heard([("web-7", later, "10.0.0.2")], own=False)
    shared.heard_before([HeardBefore("old-1", later, "10.0.0.3", 0.0)])
    shared.deleted("old-2", expired=False)
    watcher = Watcher(fleet.address)
    following = asyncio.create_task(keep_following(watcher))
    await watcher.until(lambda seen: set(seen.nodes) == {"web-8"})

    await fleet.components.deny(["old-*"])
    assert await names(fleet) == ["web-7", "web-8"]
    await fleet.components.deny([])

    assert await names(fleet) == ["old-1", "web-7", "web-8"]
    for name, address in (("old-1", "10.0.0.3"), ("web-7", "10.0.0.2")):
        [node] = await fleet.get(f"/nodes/{name}?address=true")
        assert (node["labels"][0], node["last_update"], node["address"]) == ("new", later, address)
    assert b"web-7" in (await fleet.ask("GET", "/prometheus/web")).body
    await watcher.until(lambda seen: set(seen.nodes) == {"old-1", "web-7", "web-8"})
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await fleet.components.nodes.writes.delete_expired()
    assert fleet.store.rows.keys() == {"web-8"}  # nothing was written for those shown again


async def test_a_node_that_the_store_still_has_is_shown_once_it_is_allowed(
    fleet: InProcessRegistry,
) -> None:
    await fleet.components.deny(["web-7"])
    await fleet.components.deny([])  # it was to be deleted soon
    assert await names(fleet) == sorted(NAMES)
    await fleet.components.nodes.writes.delete_expired()

    await fleet.components.deny(["web-7"])
    fleet.store.failure = StoreUnreachable("no quorum")
    await fleet.components.nodes.writes.delete_expired()
    assert await names(fleet) == ["old-1", "old-2", "web-8"]
    await fleet.components.deny([])

    assert await names(fleet) == sorted(NAMES)
    assert fleet.store.rows.keys() == set(NAMES)


async def test_registries_with_another_list_are_named(fleet: InProcessRegistry) -> None:
    await fleet.components.deny(DENIED)
    digest = fleet.store.denied
    await fleet.components.deny(["old-*", "web-7"])
    assert fleet.store.denied == digest  # the order and the case make no difference
    fleet.store.members = [
        Member(name=name, run=name, own=name == "here", seen_seconds=0, denied=denied)
        for name, denied in (("here", ""), ("same", digest), ("other", "0" * 16), ("none", ""))
    ]

    denied = (await fleet.get("/status"))["denied"]

    shown = {"patterns": 2, "rejected": 0, "digest": digest, "differs_from": ["other", "none"]}
    assert denied == shown
    metrics = (await fleet.ask("GET", "/metrics")).body
    assert b"\nrollcall_registry_denied_differs 2.0\n" in metrics
    fleet.store.members = [
        Member(name="vm", run=run, own=run == "r1", seen_seconds=0, denied="")
        for run in ("r1", "r2")
    ]
    assert (await fleet.get("/status"))["denied"]["differs_from"] == ["vm (run r2)"]
    await fleet.components.deny(())
    assert fleet.store.denied == ""


@pytest.mark.parametrize(
    "pattern",
    ["a b", "", "[a-", "a]", "[z-a]*", "[Z-a]", "[!a-z0-9._-]", "[]", "web-7..", ".a", "!web*"],
)
def test_a_pattern_that_matches_no_hostname_is_a_mistake(pattern: str) -> None:
    text = re.escape(f"holds `{pattern}`, which matches no hostname")
    with pytest.raises(ValueError, match=text):
        NodesSettings(denied=(pattern,))
    with pytest.raises(ValueError, match=text):
        RegistryKey(name="k", value="a" * 20, allow=("register",), nodes=("web-*", pattern))


@pytest.mark.parametrize("pattern", ["b?", "WEB-7.Example.COM.", "[!a]*", "web-[0-9A-F]", "_x"])
def test_a_pattern_that_matches_some_hostname_is_none(pattern: str) -> None:
    NodesSettings(denied=(pattern,))
    assert any(
        name in DeniedHosts([pattern]) for name in ("web-7.example.com", "_x", "b1", "web-a")
    )


@pytest.mark.parametrize("pattern", ["*", "**", "??", "*.*"])
def test_a_pattern_that_may_match_every_host_is_a_mistake(pattern: str) -> None:
    with pytest.raises(ValueError, match="which may match every host"):
        NodesSettings(denied=("web-7", pattern))
    RegistryKey(name="k", value="a" * 20, allow=("register",), nodes=("web-*", pattern))


@pytest.mark.parametrize("is_first_there", [True, False])
async def test_a_watch_that_moves_to_another_registry_shows_none_that_is_denied_there(
    *, is_first_there: bool
) -> None:
    log = SharedLog(11)
    async with (
        in_process_registry(level="error", store=log.store()) as one,
        in_process_registry(level="error", store=log.store()) as other,
    ):
        for name in NAMES:
            await one.post(name, LABELS)
        if not is_first_there:
            await other.components.deny(["web-7"])
        watcher = Watcher(other.address)

        async def sees(*expected: str) -> None:
            following = asyncio.create_task(keep_following(watcher))
            await watcher.until(lambda seen: set(seen.nodes) == set(expected))
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

        await sees("old-1", "old-2", "web-8", *(["web-7"] if is_first_there else []))
        if is_first_there:
            await one.components.deny(["web-7"])
        await one.post("new", LABELS)
        await async_until(lambda: _has(other, "new"))
        await sees("new", "old-1", "old-2", "web-8", *(["web-7"] if is_first_there else []))

        watcher.go_to(one.address)
        await sees(*await names(one))
        assert ("web-7" in watcher.nodes) is not is_first_there


async def _has(registry: InProcessRegistry, name: str) -> bool:
    return name in await names(registry)
