"""Who only looks keeps nobody from changing anything."""

import asyncio

import msgspec

from agent.engine import DockerEngine
from agent.engine.protocol import EngineError
from tests.agent.engine.test_json_http import http_response, read_request, unix_server

INFO = {"ServerVersion": "x", "NCPU": 2, "MemTotal": 1 << 30, "DockerRootDir": "/"}
ANSWERS = {b"/version": {"Version": "x", "ApiVersion": "1.41"}, b"/v1.41/info": INFO}
URGENT = b"b" * 64


async def test_any_number_who_want_figures_keep_no_change_from_asking_the_engine() -> None:
    asked, enough = asyncio.Semaphore(0), asyncio.Event()

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await read_request(reader):
            answer = ANSWERS.get(line.split()[1])
            if URGENT in line:
                writer.write(http_response(b"{}"))
            elif answer is None:  # figures, which are long in coming
                asked.release()
                await enough.wait()
                writer.write(http_response(b'{"message": "none"}', b"500 Internal Server Error"))
            else:
                writer.write(http_response(msgspec.json.encode(answer)))

    async with unix_server(answering) as path:
        engine = DockerEngine(url=f"unix://{path}", timeout_seconds=60)
        samples = [asyncio.ensure_future(engine.sample("a" * 64)) for _ in range(30)]
        listings = [asyncio.ensure_future(engine.processes("a" * 64)) for _ in range(30)]
        await asked.acquire()

        info = await engine.info()  # raises where it has to stand in their queue

        assert info.version == "x"
        assert await engine.sample(URGENT.decode(), priority=True) is None
        assert not any(each.done() for each in (*samples, *listings))
        enough.set()
        outcomes = await asyncio.gather(*samples, *listings, return_exceptions=True)
        assert all(isinstance(outcome, EngineError) for outcome in outcomes)
        await engine.close()
