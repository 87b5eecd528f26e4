"""What clients of a load note when a registry dies."""

import asyncio
from pathlib import Path

from aiohttp import web

from tests.support.daemons import Daemon, FreePort
from tests.support.registry.load.load import Load

END_SECONDS = 60.0


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
