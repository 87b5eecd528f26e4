"""What clients of a load note, and what they do after a loss."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

import pytest
from aiohttp import web

from tests.support.daemons import Daemon, FreePort
from tests.support.registry.load.histories import Did
from tests.support.registry.load.load import Load
from tests.support.registry.load.losses import LossCheck
from tests.support.registry.load.targets import PATH, TargetsWatch
from tests.support.waiting import async_until

END_SECONDS = 60.0
SOME = '[{"hostname": "a"}]'
ANSWERS = [(200, "[]"), (503, "{}"), (200, SOME), (503, "{}"), (200, "[]"), (500, "{}")]


async def test_a_deletion_whose_answer_is_lost_with_the_registry_has_an_unknown_outcome(
    tmp_path: Path, free_port: FreePort
) -> None:
    port = free_port()
    registry = Daemon(program="rollcall-registry", folder=tmp_path / "r", port=port, settings={})
    load = Load([registry], hosts=1, seed=1)

    async def answer(request: web.Request) -> web.Response:
        if request.method == "DELETE":
            # As after a kill: the connection ends, and no other one is accepted.
            load.stop()
            await site.stop()
            assert request.transport is not None
            request.transport.abort()
        return web.json_response([{"labels": ["value:1"]}])

    app = web.Application()
    app.router.add_route("*", "/nodes/{hostname}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    try:
        async with asyncio.timeout(END_SECONDS):
            await load.run(clients=1)
    finally:
        await runner.cleanup()

    deletion = load.history[-1]
    assert (deletion.kind, deletion.value, deletion.outcome) == ("write", None, "unknown")


@pytest.mark.parametrize(
    ("status", "outcomes"),
    [(200, {"ok"}), (409, {"unknown"}), (429, set()), (503, {"unknown"}), (507, {"unknown"})],
)
async def test_a_change_that_was_refused_may_have_taken_effect_before(
    tmp_path: Path, free_port: FreePort, status: int, outcomes: set[str]
) -> None:
    port = free_port()
    daemon = Daemon(program="rollcall-registry", folder=tmp_path / "r", port=port, settings={})
    load = Load([daemon], hosts=1, seed=1)
    registry = Registry(port)
    registry.status = status
    async with registry.serving():
        clients = asyncio.create_task(load.run(clients=1))

        async def has_answered() -> bool:
            return status in load.statuses

        await async_until(has_answered)
        load.stop()
        await clients

    assert {did.outcome for did in load.history if did.kind == "write"} == outcomes


class Registry:
    """A registry that shows what it was told; `url` is its address within the context."""

    def __init__(self, port: int) -> None:
        self.nodes: dict[str, str] = {}
        self.ages: list[int] = []  # those of the next answers with all nodes
        self.status = 200  # of the answers to changes
        self.url = f"http://127.0.0.1:{port}"
        self._port = port

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Serve within this context."""
        app = web.Application()
        app.router.add_route("*", "/nodes/{hostname}", self._answer)
        app.router.add_get("/nodes", self._list)
        app.router.add_get("/healthz", self._healthz)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", self._port).start()
            yield self
        finally:
            await runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.json_response({})

    async def _list(self, _request: web.Request) -> web.Response:
        age = {"Rollcall-Store-Age": str(self.ages.pop(0))} if self.ages else {}
        nodes = [{"hostname": name, "labels": [label]} for name, label in self.nodes.items()]
        return web.json_response(nodes, headers=age)

    async def _answer(self, request: web.Request) -> web.Response:
        hostname = request.match_info["hostname"]
        if request.method != "GET" and self.status != 200:
            return web.json_response({}, status=self.status)
        if request.method == "POST":
            [label, _] = (await request.json())["labels"]
            self.nodes[hostname] = label
        if hostname not in self.nodes:
            return web.json_response({}, status=404)
        label = self.nodes[hostname]
        if request.method == "DELETE":
            del self.nodes[hostname]
        return web.json_response([{"labels": [label]}])


async def test_what_was_acknowledged_last_is_confirmed_and_what_was_deleted_last_is_gone(
    tmp_path: Path, free_port: FreePort
) -> None:
    daemons = [
        Daemon(program="rollcall-registry", folder=tmp_path / name, port=free_port(), settings={})
        for name in ("one", "other")
    ]
    load = Load(daemons, hosts=3, seed=1)
    load.history += [
        Did("write", "h0.test", 0, 1.0, 2.0, "2"),
        Did("write", "h0.test", 1, 0.0, 1.0, "1"),
        Did("write", "h0.test", 1, 3.0, 4.0, "3", "unknown"),
        Did("write", "h1.test", 0, 1.0, 2.0, None),
        Did("read", "h1.test", 0, 3.0, 4.0, "4"),
        Did("write", "h2.test", 0, 1.0, 2.0, "5", "unknown"),
    ]
    async with (
        Registry(daemons[0].port).serving() as one,
        Registry(daemons[1].port).serving() as two,
    ):
        one.nodes["h1.test"] = two.nodes["h2.test"] = "value:6"
        await load.confirm()

        assert one.nodes | two.nodes == {"h0.test": "value:2"}


async def test_no_client_does_anything_while_they_are_held(
    tmp_path: Path, free_port: FreePort
) -> None:
    port = free_port()
    daemon = Daemon(program="rollcall-registry", folder=tmp_path / "r", port=port, settings={})
    load = Load([daemon], hosts=1, seed=1)
    async with Registry(port).serving():
        clients = asyncio.create_task(load.run(clients=4))

        async def have_done(count: int) -> bool:
            return len(load.history) > count

        await async_until(lambda: have_done(0))
        async with load.held():
            before = len(load.history)
            for _ in range(20):
                await load.confirm()
            assert all(did.kind == "write" for did in load.history[before:])  # clients would read
            held = len(load.history)
        await async_until(lambda: have_done(held))
        load.stop()
        await clients


@pytest.mark.slow
async def test_a_registry_that_forgets_its_nodes_at_a_loss_is_caught(
    tmp_path: Path, free_port: FreePort
) -> None:
    daemons = [
        Daemon(program="rollcall-registry", folder=tmp_path / name, port=free_port(), settings={})
        for name in ("one", "other")
    ]
    load = Load(daemons, hosts=2, seed=1)
    now = asyncio.get_running_loop().time()
    load.history += [
        Did("write", "h0.test", 0, now - 3, now - 2, "1"),
        Did("write", "h0.test", 1, now + 30, now + 31, "2"),  # the other may not know
        Did("write", "h1.test", 0, now - 3, now - 2, None),
    ]
    check = LossCheck(daemons, load, within=END_SECONDS, unnoticed=0.0)
    async with (
        AsyncExitStack() as stack,
        Registry(daemons[0].port).serving() as one,
        Registry(daemons[1].port).serving() as two,
    ):
        for daemon in daemons:
            stack.callback(daemon.close)
        one.nodes["h0.test"], two.nodes["h0.test"] = "value:1", "value:2"
        two.ages = [5, 4]
        await check.begin()
        assert not two.ages
        two.ages = [5, 4]
        assert await check.faults() == []
        assert not two.ages

        del two.nodes["h0.test"]
        [fault] = await check.faults()
        assert fault.startswith("registry 1 after a loss: h0.test ends with None")
        two.nodes["h0.test"] = one.nodes["h1.test"] = "value:1"
        [fault] = await check.faults()
        assert fault.startswith("registry 0 after a loss: h1.test ends with 1")


async def test_no_targets_after_some_are_a_fault_and_503_is_none(
    tmp_path: Path, free_port: FreePort
) -> None:
    port, left = free_port(), list(ANSWERS)

    async def answer(_request: web.Request) -> web.Response:
        status, text = left.pop(0) if left else (503, "{}")
        return web.Response(status=status, text=text)

    daemon = Daemon(program="rollcall-registry", folder=tmp_path / "r", port=port, settings={})
    watch = TargetsWatch([daemon], pause=0.01)
    assert watch.faults() == ["registry 0 never showed targets"]
    app = web.Application()
    app.router.add_get(PATH, answer)
    runner = web.AppRunner(app)
    await runner.setup()
    watching = asyncio.create_task(watch.run())

    async def has_asked() -> bool:
        return not left

    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await async_until(has_asked)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await runner.cleanup()

    told = [fault.removeprefix(f"registry 0 answered {PATH} with ") for fault in watch.faults()]
    assert (told[0], watch.looks) == ("200: []", [1])
    assert told[1:] in ([], ["500: {}"])  # its answer may not have come yet
