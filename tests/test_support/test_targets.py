"""The watch over targets finds a registry that shows none any more."""

import asyncio
from pathlib import Path

from aiohttp import web

from tests.support.daemons import Daemon, FreePort
from tests.support.registry.load.targets import PATH, TargetsWatch
from tests.support.waiting import async_until

SOME = '[{"hostname": "a"}]'
ANSWERS = [(200, "[]"), (503, "{}"), (200, SOME), (503, "{}"), (200, "[]"), (500, "{}")]


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
