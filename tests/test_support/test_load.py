"""What clients of a load note, and what they do after a loss."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pytest_aiohttp import AiohttpServer

from tests.support.daemons import Daemon
from tests.support.registry.fake_servers import one_handler_app
from tests.support.registry.load.histories import Did
from tests.support.registry.load.load import Load
from tests.support.registry.load.losses import LossCheck
from tests.support.registry.load.targets import PATH, TargetsWatch
from tests.support.waiting import async_until

END_SECONDS = 60.0
SOME = '[{"hostname": "a"}]'
ANSWERS = [(200, "[]"), (503, "{}"), (200, SOME), (503, "{}"), (200, "[]"), (500, "{}")]


def daemon_of(server: TestServer, folder: Path) -> Daemon:
    """Return a daemon, not started, in whose place a server answers."""
    assert server.port is not None
    return Daemon(program="rollcall-registry", folder=folder, port=server.port, settings={})


async def test_a_deletion_whose_answer_is_lost_with_the_registry_has_an_unknown_outcome(
    tmp_path: Path, aiohttp_server: AiohttpServer
) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.method == "DELETE":
            # As after a kill: the connection ends, and no other one is accepted.
            load.stop()
            assert server.runner is not None
            for site in server.runner.sites:
                await site.stop()
            assert request.transport is not None
            request.transport.abort()
        return web.json_response([{"labels": ["value:1"]}])

    server = await aiohttp_server(one_handler_app(answer))
    load = Load([daemon_of(server, tmp_path / "r")], hosts=1, seed=1)
    async with asyncio.timeout(END_SECONDS):
        await load.run(clients=1)

    deletion = load.history[-1]
    assert (deletion.kind, deletion.value, deletion.outcome) == ("write", None, "unknown")


@pytest.mark.parametrize(
    ("status", "outcomes"),
    [(200, {"ok"}), (409, {"unknown"}), (429, set()), (503, {"unknown"}), (507, {"unknown"})],
)
async def test_a_change_that_was_rejected_may_have_taken_effect_before(
    tmp_path: Path, aiohttp_server: AiohttpServer, status: int, outcomes: set[str]
) -> None:
    registry = Registry()
    registry.status = status
    server = await aiohttp_server(registry.app())
    load = Load([daemon_of(server, tmp_path / "r")], hosts=1, seed=1)
    clients = asyncio.create_task(load.run(clients=1))

    async def has_answered() -> bool:
        return status in load.statuses

    await async_until(has_answered)
    load.stop()
    await clients

    assert {did.outcome for did in load.history if did.kind == "write"} == outcomes


class Registry:
    """A registry that shows what it got."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self.ages: list[int] = []  # those of the next answers with all nodes
        self.status = 200  # of the answers to changes

    def app(self) -> web.Application:
        """Return what serves it."""
        app = web.Application()
        app.router.add_route("*", "/nodes/{hostname}", self._answer)
        app.router.add_get("/nodes", self._list)
        app.router.add_get("/healthz", self._healthz)
        return app

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
    tmp_path: Path, aiohttp_server: AiohttpServer
) -> None:
    one, two = Registry(), Registry()
    daemons = [
        daemon_of(await aiohttp_server(registry.app()), tmp_path / name)
        for name, registry in (("one", one), ("two", two))
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
    one.nodes["h1.test"] = two.nodes["h2.test"] = "value:6"
    await load.confirm()

    assert one.nodes | two.nodes == {"h0.test": "value:2"}


async def test_no_client_does_anything_while_they_are_held(
    tmp_path: Path, aiohttp_server: AiohttpServer
) -> None:
    server = await aiohttp_server(Registry().app())
    load = Load([daemon_of(server, tmp_path / "r")], hosts=1, seed=1)
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
    tmp_path: Path, aiohttp_server: AiohttpServer
) -> None:
    one, two = Registry(), Registry()
    daemons = [
        daemon_of(await aiohttp_server(registry.app()), tmp_path / name)
        for name, registry in (("one", one), ("two", two))
    ]
    load = Load(daemons, hosts=2, seed=1)
    now = asyncio.get_running_loop().time()
    load.history += [
        Did("write", "h0.test", 0, now - 3, now - 2, "1"),
        Did("write", "h0.test", 1, now + 30, now + 31, "2"),  # the other may not know
        Did("write", "h1.test", 0, now - 3, now - 2, None),
    ]
    check = LossCheck(daemons, load, within=END_SECONDS, unnoticed=0.0)
    with ExitStack() as stack:
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
    tmp_path: Path, aiohttp_server: AiohttpServer
) -> None:
    left = list(ANSWERS)

    async def answer(_request: web.Request) -> web.Response:
        status, text = left.pop(0) if left else (503, "{}")
        return web.Response(status=status, text=text)

    daemon = daemon_of(await aiohttp_server(one_handler_app(answer)), tmp_path / "r")
    watch = TargetsWatch([daemon], pause=0.01)
    assert watch.faults() == ["registry 0 never showed targets"]
    watching = asyncio.create_task(watch.run())

    async def has_asked() -> bool:
        return not left

    try:
        await async_until(has_asked)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    reported = [fault.removeprefix(f"registry 0 answered {PATH} with ") for fault in watch.faults()]
    assert (reported[0], watch.looks) == ("200: []", [1])
    assert reported[1:] in ([], ["500: {}"])  # its answer may not have come yet
