"""An engine that says what a test has it say: what no engine on this machine would."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import web

VERSION = {"Version": "20.10.24", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}
INFO = {
    "ServerVersion": "20.10.24",
    "NCPU": 2,
    "MemTotal": 1 << 30,
    "DockerRootDir": "/nowhere",
    "CpuCfsPeriod": True,
    "CpuCfsQuota": True,
    "MemoryLimit": True,
    "PidsLimit": True,
    "SwapLimit": True,
}
PREFIX = re.compile(r"/v1\.[0-9]+")


class FakeEngine:
    """Answers on a socket. ``asked`` holds each question: ``METHOD /path``, without a version."""

    def __init__(self, folder: str) -> None:
        self.path = str(Path(folder, "socket"))
        self.url = f"unix://{self.path}"
        self.asked: list[str] = []
        self._answers: dict[str, list[tuple[int, Any]]] = {}
        self.say("GET /version", (200, VERSION))
        self.say("GET /info", (200, INFO))

    def say(self, question: str, *answers: tuple[int, Any]) -> None:
        """Answer a question with these, status and JSON, one after the other; the last for good."""
        self._answers[question] = list(answers)

    async def answer(self, request: web.Request) -> web.Response:
        """Give the next answer to a question."""
        question = f"{request.method} {PREFIX.sub('', request.path, count=1)}"
        self.asked.append(question)
        answers = self._answers.get(question)
        if answers is None:
            return web.json_response({"message": f"nothing to say to {question}"}, status=500)
        status, said = answers.pop(0) if len(answers) > 1 else answers[0]
        return (
            web.Response(status=status) if said is None else web.json_response(said, status=status)
        )


@asynccontextmanager
async def faked() -> AsyncIterator[FakeEngine]:
    """Give a fake engine that answers."""
    with TemporaryDirectory() as folder:  # pytest's own is too long a path for a socket
        engine = FakeEngine(folder)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", engine.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.UnixSite(runner, engine.path).start()
            yield engine
        finally:
            await runner.cleanup()
