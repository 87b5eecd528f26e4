"""An agent's apps over a real engine, behind the real shell, in the test's own process."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog
from aiohttp import ClientSession, web
from prometheus_client import CollectorRegistry
from structlog.testing import LogCapture

from agent.apps.defaults import AppDefaults
from agent.apps.metrics.sampler import UsageSamples
from agent.apps.running import open_apps
from agent.apps.service.apps import Apps
from agent.daemon import build_application
from agent.engine.engine import Engine
from agent.engine.logins import ImageRegistryLogin
from agent.state.database import AgentDatabase
from agent.state.identity import IDENTITY_FILE, Identity
from dev.waiting import pause_after
from httpd.auth import Caller, Keyring, fingerprint
from httpd.metrics import new_metrics
from tests.support.run.answers import recorded_metrics
from tests.support.waiting import async_until

OPERATOR = "operator-key-0123456789"
READER = "reader-key-0123456789"
WRITER = "writer-key-0123456789"
SCRAPER = "scraper-key-0123456789"
KEYS = [
    (fingerprint(OPERATOR), Caller("operator", frozenset({"read", "write"}))),
    (fingerprint(READER), Caller("reader", frozenset({"read"}))),
    (fingerprint(WRITER), Caller("writer", frozenset({"write"}))),
    (fingerprint(SCRAPER), Caller("scraper", frozenset({"scrape"}))),
]
DEFAULTS = AppDefaults(
    bind="127.0.0.1", stop_seconds=1, settle_seconds=0.3, healthy_seconds=3, cpu=50, memory=32
)
NO_USAGE = UsageSamples(step_seconds=60, until=None, apps=[])
IDENTITY = "57a2c1b0-0000-4000-8000-000000000001"


@dataclass
class AgentResponse:
    """A response, read to its end."""

    status: int
    json: Any
    headers: Mapping[str, str]


@dataclass(kw_only=True)
class InProcessAgent:
    """What a test talks to. ``name()`` returns app names that no other test uses."""

    apps: Apps
    base_url: str
    session: ClientSession
    log: LogCapture
    changes: list[float] = field(default_factory=list)
    used: list[str] = field(default_factory=list)

    def name(self, word: str = "app") -> str:
        name = f"{word}-{secrets.token_hex(4)}"
        self.used.append(name)
        return name

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str = OPERATOR,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AgentResponse:
        async with self.session.request(
            method,
            f"{self.base_url}/v1/apps{path}",
            json=body,
            data=data,
            headers={"Authorization": f"Bearer {key}", **(headers or {})},
        ) as response:
            return AgentResponse(
                response.status, await response.json(content_type=None), response.headers
            )

    async def create(self, image: str, **fields: Any) -> dict[str, Any]:
        """Create an app and return its record."""
        body = {"name": fields.pop("name", None) or self.name(), "image": image, **fields}
        answer = await self.ask("POST", "", body)
        assert answer.status == 201, answer.json
        record: dict[str, Any] = answer.json
        return record

    async def get(self, name: str) -> dict[str, Any]:
        answer = await self.ask("GET", f"/{name}")
        assert answer.status == 200, answer.json
        record: dict[str, Any] = answer.json
        return record

    async def until(self, name: str, **wanted: Any) -> dict[str, Any]:
        """Wait until an app's record holds these values."""
        began = looked = time.monotonic()
        while True:
            record = await self.get(name)
            if all(record[key] == value for key, value in wanted.items()):
                return record
            now = time.monotonic()
            assert now - began < 60, f"{record} never became {wanted}"
            await asyncio.sleep(pause_after(now - began, now - looked))
            looked = time.monotonic()

    async def until_engine_found(self) -> None:
        """Wait until the agent has found its engine again."""

        async def answers() -> bool:
            return (await self.ask("GET", "")).status == 200

        await async_until(answers, within=40)

    async def until_busy(self, name: str) -> None:
        """Wait until a change of the app is under way."""
        await async_until(lambda: self._busy(name))

    async def _busy(self, name: str) -> bool:
        return (await self.get(name))["progress"] is not None

    async def page(self, record: Mapping[str, Any]) -> str:
        """Read the app's page over its HTTP port, once it answers."""
        deadline = time.monotonic() + 30
        while True:
            try:
                async with self.session.get(f"http://127.0.0.1:{record['http_port']}/") as page:
                    return await page.text()
            except OSError:
                assert time.monotonic() < deadline, "the app's page never answered"
                await asyncio.sleep(0.02)


@asynccontextmanager
async def in_process_agent(
    folder: Path,
    engine_url: str,
    *,
    timeout_seconds: float = 30,
    logins: tuple[ImageRegistryLogin, ...] = (),
    pull_seconds: float = 3600,
    pull_idle_seconds: float = 120,
    upload_idle_seconds: float = 30,
    adopt: bool = False,
    keep: bool = False,
    identity: str = IDENTITY,
    **defaults: Any,
) -> AsyncIterator[InProcessAgent]:
    """Run an agent's apps. Apps made with ``name()`` are deleted afterwards, unless ``keep``."""
    capture, changes, metrics = LogCapture(), list[float](), new_metrics()
    log = structlog.wrap_logger(None, processors=[capture])
    if not adopt:
        await without_adoption(folder)
    opening = open_apps(
        store=AgentDatabase(folder / "agent.db"),
        engine=Engine(
            url=engine_url,
            timeout_seconds=timeout_seconds,
            logins=logins,
            pull_seconds=pull_seconds,
            pull_idle_seconds=pull_idle_seconds,
        ),
        identity=identity_of(folder, identity),
        defaults=replace(DEFAULTS, **defaults),
        log=log,
        on_change=lambda: changes.append(time.monotonic()),
        clock=time.time,
        metrics=metrics,
        drain_seconds=20,
    )
    async with (
        ClientSession() as session,
        opening as apps,
        served(apps, metrics, log, upload_idle_seconds) as base_url,
    ):
        agent = InProcessAgent(
            apps=apps, base_url=base_url, session=session, log=capture, changes=changes
        )
        try:
            yield agent
        finally:
            if not keep:
                await _clean(agent)


async def _clean(agent: InProcessAgent) -> None:
    answers = await asyncio.gather(*(agent.ask("DELETE", f"/{name}") for name in agent.used))
    assert {answer.status for answer in answers} <= {200, 404}, answers


def identity_of(folder: Path, identity: str = IDENTITY) -> Identity:
    """Return the identity of an agent with this folder; another one in its file is a former one."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / IDENTITY_FILE
    found = json.loads(file.read_bytes()) if file.exists() else {"id": identity}
    if found["id"] != identity:
        found["former"] = [*found.get("former", ()), found["id"]]
    file.write_text(json.dumps({"machine": None, **found, "id": identity}))
    return Identity(directory=folder, machine=None)


def delete_database(folder: Path) -> None:
    """Lose the database of an agent that does not run."""
    for file in folder.glob("agent.db*"):
        file.unlink()


async def without_adoption(folder: Path) -> None:
    """Make the database beforehand, so that the containers of tests beside this one stay theirs."""
    store = AgentDatabase(folder / "agent.db")
    kept = await store.open()
    if not kept.adopted:
        await store.adopt([])
    await store.close()


def application(
    apps: Apps,
    metrics: CollectorRegistry,
    log: Any,
    upload_idle_seconds: float = 30,
    keyring: Keyring | None = None,
    usage: UsageSamples = NO_USAGE,
) -> web.Application:
    """Build the application of an agent as the daemon does."""
    return build_application(
        apps,
        usage=lambda: usage,
        hostname="web-1.example.com",
        keyring=keyring or Keyring(KEYS),
        metrics=metrics,
        request_metrics=recorded_metrics("agent", metrics),
        open_metrics=False,
        open_swagger=False,
        pages=False,
        max_connections=1000,
        log=log,
        upload_idle_seconds=upload_idle_seconds,
    )


@asynccontextmanager
async def served(
    apps: Apps,
    metrics: CollectorRegistry,
    log: Any,
    upload_idle_seconds: float = 30,
    keyring: Keyring | None = None,
    usage: UsageSamples = NO_USAGE,
) -> AsyncIterator[str]:
    """Serve the API of the agent on 127.0.0.1; yield its address."""
    app = application(apps, metrics, log, upload_idle_seconds, keyring, usage)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
