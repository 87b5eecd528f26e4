"""An engine that says what a test has it say: what no engine on this machine would."""

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import structlog
from aiohttp import web
from structlog.testing import LogCapture

from agent.apps.operations.runner import OperationRunner
from agent.apps.queries import AppQueries
from agent.apps.repository import AppRepository
from agent.engine import DockerEngine
from agent.model import App
from agent.state.store import Store

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
ID = "c0ffee"
SSH, HTTP = 20001, 20002
NO_TIME = "0001-01-01T00:00:00Z"
NOW = "2026-01-31T12:00:00.000000001Z"
PREFIX = re.compile(r"/v1\.[0-9]+")


class FakeDockerApi:
    """Answers on a socket.

    ``asked`` holds each question: ``METHOD /path``, without a version; ``queries`` what came with
    it the last time.
    """

    def __init__(self, folder: str) -> None:
        self.path = str(Path(folder, "socket"))
        self.url = f"unix://{self.path}"
        self.asked: list[str] = []
        self.queries: dict[str, dict[str, str]] = {}
        self._answers: dict[str, list[tuple[int, Any]]] = {}
        self.respond("GET /version", (200, VERSION))
        self.respond("GET /info", (200, INFO))

    def respond(self, question: str, *answers: tuple[int, Any]) -> None:
        """Answer a question with these, status and JSON, one after the other; the last for good."""
        self._answers[question] = list(answers)

    async def answer(self, request: web.Request) -> web.Response:
        """Return the next answer to a question."""
        question = f"{request.method} {PREFIX.sub('', request.path, count=1)}"
        self.asked.append(question)
        self.queries[question] = dict(request.query)
        answers = self._answers.get(question)
        if answers is None:
            return web.json_response({"message": f"nothing to say to {question}"}, status=500)
        status, said = answers.pop(0) if len(answers) > 1 else answers[0]
        return (
            web.Response(status=status) if said is None else web.json_response(said, status=status)
        )


@asynccontextmanager
async def fake_docker_api() -> AsyncIterator[FakeDockerApi]:
    """Yield a fake engine that answers."""
    with TemporaryDirectory() as folder:  # pytest's own is too long a path for a socket
        engine = FakeDockerApi(folder)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", engine.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.UnixSite(runner, engine.path).start()
            yield engine
        finally:
            await runner.cleanup()


def inspect_response(status: str, *ports: int) -> dict[str, Any]:
    """Return the inspection of the app's container, which publishes these ports of the host."""
    return {
        "Id": ID,
        "Name": "/app",
        "Image": "sha256:1",
        "Created": NOW,
        "RestartCount": 0,
        "State": {
            "Status": status,
            "ExitCode": 0,
            "StartedAt": NOW,
            "FinishedAt": NO_TIME,
            "OOMKilled": False,
        },
        "Config": {"Image": "image"},
        "HostConfig": {},
        "NetworkSettings": {
            "Ports": {
                "22/tcp": None,
                "8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)} for port in ports],
            }
        },
    }


@asynccontextmanager
async def app_queries(engine: DockerEngine, folder: Path) -> AsyncIterator[AppQueries]:
    """Yield the readings of one app, `app`, with the ports SSH and HTTP."""
    store = Store(folder / "agent.db")
    repository = AppRepository(store)
    repository.load(await store.open())
    app = App(
        name="app",
        image="image",
        ssh_port=SSH,
        http_port=HTTP,
        cpu=50,
        memory=32,
        created_at=NOW,
        container_id=ID,
    )
    await repository.put(app)
    log = structlog.wrap_logger(None, processors=[LogCapture()])
    operations = OperationRunner(repository=repository, recover={}, clock=time.time, log=log)
    yield AppQueries(engine=engine, repository=repository, operations=operations)
    await repository.close()
