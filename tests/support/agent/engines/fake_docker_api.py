"""An engine that says what a test has it say: what no engine on this machine would."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import web

from agent.apps.runner.runner import OperationRunner, Operations
from agent.apps.service.queries import AppQueries
from agent.engine.engine import Engine
from agent.engine.models import ContainerSpec
from agent.model import App
from tests.support.agent.apps.hosts import opened_host
from tests.support.agent.in_process import DEFAULTS

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
SPEC = ContainerSpec(
    name="app",
    image="image",
    labels={},
    env={},
    ports=(),
    bind="127.0.0.1",
    cpu=50,
    memory=32,
    pids=512,
    log_mib=10,
    stop_seconds=1,
    volumes={"/srv": "rollcall-app"},
    init=True,
    no_new_privileges=True,
)
PREFIX = re.compile(r"/v1\.[0-9]+")


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeDockerApi:
    """Answers on a socket.

    ``asked`` holds each question: ``METHOD /path``, without a version; ``queries`` what came with
    it the last time; ``versions`` the versions of the API that were spoken.
    """

    def __init__(self, folder: str) -> None:
        self.path = str(Path(folder, "socket"))
        self.url = f"unix://{self.path}"
        self.asked: list[str] = []
        self.queries: dict[str, dict[str, str]] = {}
        self.versions: list[str] = []
        self._answers: dict[str, list[tuple[int, Any]]] = {}
        self._handlers: dict[str, Handler] = {}
        self._otherwise: tuple[int, Any] | None = None
        self._connections: set[web.RequestHandler] = set()
        self.respond("GET /version", (200, VERSION))
        self.respond("GET /info", (200, INFO))

    @property
    def connections(self) -> int:
        """How many connections were made, that of the latest question included."""
        return len(self._connections)

    @property
    def open_connections(self) -> int:
        """How many of them are open."""
        return sum(each.transport is not None for each in self._connections)

    def respond(self, question: str, *answers: tuple[int, Any]) -> None:
        """Answer a question with these, status and body, one after the other; the last for good.

        Bytes are sent as they are, anything else as JSON, and None as no body.
        """
        self._answers[question] = list(answers)

    def handle(self, question: str, handler: Handler) -> None:
        """Answer a request by ``handler``, which is cancelled if the client disconnects."""
        self._handlers[question] = handler

    def respond_otherwise(self, answer: tuple[int, Any]) -> None:
        """Answer this to all that no other answer is known to."""
        self._otherwise = answer

    def vanish(self) -> None:
        """Reject new connections from now on."""
        Path(self.path).unlink()

    def hang_up(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            if connection.transport is not None:
                connection.transport.close()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Return the next answer to a question."""
        question = f"{request.method} {PREFIX.sub('', request.path, count=1)}"
        self.asked.append(question)
        self.queries[question] = dict(request.query)
        self.versions += PREFIX.findall(request.path)
        self._connections.add(request.protocol)
        if question in self._handlers:
            return await self._handlers[question](request)
        answers = self._answers.get(question)
        if answers:
            return _response(*(answers.pop(0) if len(answers) > 1 else answers[0]))
        unknown = (500, {"message": f"nothing to say to {question}"})
        return _response(*(self._otherwise or unknown))


def _response(status: int, body: Any) -> web.Response:
    if body is None or isinstance(body, bytes):
        return web.Response(status=status, body=body)
    return web.json_response(body, status=status)


@asynccontextmanager
async def fake_docker_api() -> AsyncIterator[FakeDockerApi]:
    """Run a fake engine that answers."""
    with TemporaryDirectory() as folder:  # pytest's own is too long a path for a socket
        engine = FakeDockerApi(folder)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", engine.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1, handler_cancellation=True)
        await runner.setup()
        try:
            await web.UnixSite(runner, engine.path).start()
            yield engine
        finally:
            await runner.cleanup()


def inspect_response(status: str, *ports: int) -> dict[str, Any]:
    """Return an inspect of the app's container, with these ports of the host published."""
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
async def app_queries(engine: Engine, folder: Path) -> AsyncIterator[AppQueries]:
    """Query one app, `app`, with the ports SSH and HTTP."""
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
    async with opened_host(engine, folder, defaults=DEFAULTS) as host:
        await host.context.repository.put(app)
        yield AppQueries(host, OperationRunner(host, Operations()))
