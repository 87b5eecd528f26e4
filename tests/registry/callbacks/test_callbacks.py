"""Callbacks of a registry: when they begin, what a reload changes, what a failing store does."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from config.registry import NodesSettings
from registry.callbacks.receiver import Callback
from registry.errors import StoreFull, StoreUnavailable
from registry.nodes.search import Filters
from tests.support.registry.callback_receiver import CallbackReceiver, callback_receiver
from tests.support.registry.in_process import InProcessRegistry, in_process_registry
from tests.support.registry.stores.memory_store import MemoryStore
from tests.support.waiting import async_until

pytestmark = pytest.mark.slow  # what is posted waits for half a second
METRIC = "rollcall_registry_callback_"


@pytest.fixture
def receiver() -> Iterator[CallbackReceiver]:
    """Yield a receiver that listens."""
    with callback_receiver() as listening:
        yield listening


def callback(receiver: CallbackReceiver, *labels: str) -> Callback:
    """Return a callback to a receiver."""
    return Callback(url=receiver.url, key=b"k" * 16, filters=Filters(labels=labels))


async def until_taken(receiver: CallbackReceiver, *taken: str) -> None:
    """Wait until a receiver has taken exactly this."""

    async def has_taken() -> bool:
        return receiver.taken == list(taken)

    await async_until(has_taken, within=20)


async def test_a_reload_keeps_adds_changes_and_removes_callbacks(
    registry: InProcessRegistry, receiver: CallbackReceiver
) -> None:
    callbacks, first = registry.components.callbacks, callback(receiver)
    await registry.post("before")
    with callback_receiver() as other:
        async with callbacks.sending([first]):
            await until_taken(receiver, "resync started")
            callbacks.replace([first, callback(other)])
            await until_taken(other, "resync started")
            await registry.post("a")
            await until_taken(receiver, "resync started", "added a")
            callbacks.replace([replace(first, key=b"another-key-0123456789")])
            await registry.post("b", labels=["x"])
            await until_taken(receiver, "resync started", "added a", "added b")
            callbacks.replace([callback(receiver, "x")])
            expected = ["resync started", "added a", "added b", "resync settings"]
            await until_taken(receiver, *expected)
            await registry.post("c")
            await registry.post("d", labels=["x"])
            await until_taken(receiver, *expected, "added d")
        assert other.taken in (["resync started"], ["resync started", "added a"])

    await registry.post("after", labels=["x"])
    shown = (await registry.ask("GET", "/metrics")).body.decode()
    assert f'{METRIC}changes_total{{callback="{receiver.url}"}} 3.0' in shown
    assert f'{METRIC}resyncs_total{{callback="{receiver.url}"}} 2.0' in shown
    assert other.url not in shown


@pytest.mark.parametrize(
    ("failure", "is_posted"), [(StoreFull("full"), True), (StoreUnavailable("gone"), False)]
)
async def test_nothing_is_posted_while_the_nodes_cannot_be_read(
    failure: Exception, *, is_posted: bool, registry: InProcessRegistry, receiver: CallbackReceiver
) -> None:
    nodes = registry.components.nodes
    await registry.post("h1")
    async with registry.components.callbacks.sending([callback(receiver)]):
        await until_taken(receiver, "resync started")
        registry.store.failure = failure
        assert (await registry.post("h2")).status in (503, 507)
        registry.clock.pass_seconds(100)
        assert nodes.state_counts() == (0, 1)
        if is_posted:
            await until_taken(receiver, "resync started", "stale h1")
        else:
            assert (await registry.ask("GET", "/nodes")).status == 503
            await asyncio.sleep(1)
            assert receiver.taken == ["resync started"]
        registry.store.failure = None
        await nodes.writes.flush()
        await until_taken(receiver, "resync started", "stale h1")


async def test_a_node_that_only_moves_is_not_posted(receiver: CallbackReceiver) -> None:
    async with (
        in_process_registry(trusted_proxies=["127.0.0.1"]) as registry,
        registry.components.callbacks.sending([callback(receiver)]),
    ):
        await until_taken(receiver, "resync started")
        for address in ("192.0.2.1", "192.0.2.2"):
            await registry.post("h1", headers={"X-Forwarded-For": address})
        await registry.post("h2")
        await until_taken(receiver, "resync started", "added h1", "added h2")


async def test_nothing_is_posted_during_the_warm_up(receiver: CallbackReceiver) -> None:
    limits = NodesSettings(warm_up_seconds=60, max_mib=0, changes_per_minute=0)
    async with in_process_registry(limits=limits, store=MemoryStore(continues=False)) as registry:
        warm_up = registry.components.warm_up
        assert warm_up.reason is not None
        async with registry.components.callbacks.sending([callback(receiver)]):
            await registry.post("h1")
            await asyncio.sleep(1)
            assert receiver.taken == []
            registry.clock.pass_seconds(61)
            await warm_up.finish()
            await until_taken(receiver, "resync started")
