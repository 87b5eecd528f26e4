"""A registry within the test: real rules and routes on a real port, time and store in our hand."""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger
from yarl import URL

from config.registry import NodesSettings, RegistrySettings
from httpd.auth import Caller, Keyring, fingerprint
from httpd.metrics import new_metrics
from httpd.server.limits import Timeouts
from httpd.server.listener import DEFAULT_TIMEOUTS, serving
from httpd.server.tls import ServerTls
from registry.api.access import NodeKeys
from registry.api.app import build_application
from registry.api.lane import heartbeat_endpoint
from registry.nodes.changes import AUDITED_KINDS, NodeChange, NodeChanges, Source
from registry.nodes.context import CHANGE_LOG_BYTES, Clocks, Freshness, NodeRules, RegistryContext
from registry.nodes.directory import Directory
from registry.prometheus.targets import TargetOptions
from registry.registry import Registry
from registry.store.protocol import NodeStore
from tests.support.registry.stores.memory_store import MemoryStore
from tests.support.run.answers import recorded_metrics

OPS = "ops-key-0123456789"
READER = "reader-key-0123456789"
SCRAPER = "scraper-key-0123456789"
WRITER = "writer-key-0123456789"
WEB_HOSTS = "web-hosts-key-0123456789"
NODE_SECRET = "node-secret-0123456789"
WALL = 1_700_000_000
HEARTBEAT_COUNTS = re.compile(
    r'^rollcall_registry_heartbeats_(?:rejected_)?total{.*"(.*)"} (.*)$', re.MULTILINE
)

NO_LIMITS = NodesSettings(
    warm_up_seconds=0, max_mib=0, changes_per_minute=0, expire_at_most_percent=0
)

KEYS = [
    (fingerprint(OPS), Caller("ops", frozenset({"read", "write"}))),
    (fingerprint(READER), Caller("reader", frozenset({"read"}))),
    (fingerprint(SCRAPER), Caller("scraper", frozenset({"scrape"}))),
    (fingerprint(WRITER), Caller("writer", frozenset({"write"}))),
    (fingerprint(WEB_HOSTS), Caller("web-hosts", frozenset({"register"}), ("web-*",))),
]


class ManualClocks:
    """All clocks, moved by the test; while `is_held`, that of ages stands still."""

    def __init__(self) -> None:
        self.wall = float(WALL)
        self.uptime = self.steady = 1000.0
        self.is_held = False

    def pass_seconds(self, seconds: float) -> None:
        """Advance the clocks."""
        self.wall += seconds
        self.steady += seconds
        if not self.is_held:
            self.uptime += seconds

    def clocks(self) -> Clocks:
        """Return them as a registry takes them."""
        return Clocks(lambda: self.wall, lambda: self.uptime, lambda: self.steady)


class RegistryResponse:
    """Status, headers and body of an answer."""

    def __init__(self, response: aiohttp.ClientResponse, body: bytes) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = body

    def json(self) -> Any:
        """Decode the body."""
        return msgspec.json.decode(self.body)


class Controls(NamedTuple):
    """What a test moves or looks at from within."""

    store: MemoryStore
    clock: ManualClocks
    audit: list[tuple[str, str, Source]]
    keyring: Keyring
    metrics: CollectorRegistry


class InProcessRegistry:
    """A running registry, and how to ask it."""

    def __init__(
        self,
        *,
        address: tuple[str, int],
        app: web.Application,
        components: Registry,
        controls: Controls,
    ) -> None:
        self.address = address
        self.app = app
        self.components = components
        self.store, self.clock, self.audit, self.keyring, self.metrics = controls
        self._session = aiohttp.ClientSession(auto_decompress=False)

    async def ask(
        self,
        method: str,
        path: str,
        *,
        key: str | None = OPS,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> RegistryResponse:
        """Send a request."""
        sent = {"Accept-Encoding": "identity"} | dict(headers or {})
        if key is not None:
            sent |= {"Authorization": f"Bearer {key}"}
        url = URL(f"http://{self.address[0]}:{self.address[1]}{path}", encoded=True)
        async with self._session.request(method, url, headers=sent, **options) as response:
            return RegistryResponse(response, await response.read())

    async def get(self, path: str, **options: Any) -> Any:
        """Return what a path shows."""
        answer = await self.ask("GET", path, **options)
        assert answer.status == 200, answer.body
        return answer.json()

    async def post(
        self,
        hostname: str,
        labels: Sequence[str] = (),
        kv: Mapping[str, str] | None = None,
        **options: Any,
    ) -> RegistryResponse:
        """Send a heartbeat."""
        body = {"labels": list(labels), "kv": dict(kv or {})}
        return await self.ask("POST", f"/nodes/{hostname}", json=body, **options)

    async def counts(self) -> dict[str, float]:
        """Return the heartbeats accepted and rejected, by outcome and reason, from /metrics."""
        text = (await self.ask("GET", "/metrics")).body.decode()
        return {label: float(value) for label, value in HEARTBEAT_COUNTS.findall(text)}

    async def close(self) -> None:
        """End."""
        await self._session.close()


def context_of(
    store: NodeStore,
    clocks: Clocks,
    *,
    freshness: Freshness | None = None,
    limits: NodesSettings = NO_LIMITS,
    change_log_bytes: int = CHANGE_LOG_BYTES,
    log: FilteringBoundLogger | None = None,
) -> RegistryContext:
    """Return the context of a registry on a store that is not loaded yet; no node expires."""
    log = log or silent_log("error")
    return RegistryContext(
        store=store,
        directory=Directory(),
        changes=NodeChanges(log),
        settings=NodeRules(
            freshness=freshness
            or Freshness(
                stale_after=90,
                expire_after=0,
                started=clocks.monotonic(),
                expire_at_most_percent=0,
            ),
            store_url="memory:",
            max_mib=limits.max_mib,
            changes_per_minute=limits.changes_per_minute,
            denied=limits.denied,
            expected=None if limits.expected is None else Path(limits.expected),
            warm_up=limits.warm_up,
            change_log_bytes=change_log_bytes,
        ),
        clocks=clocks,
        log=log,
        metrics=new_metrics(),
    )


def clocks_of(clock: Callable[[], float]) -> Clocks:
    """Return the clocks of a registry, of which one decides."""
    return Clocks(wall=lambda: float(WALL), monotonic=clock, steady=clock)


def silent_log(level: str) -> FilteringBoundLogger:
    """Return a logger that prints nothing below a level."""
    log: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(), wrapper_class=structlog.make_filtering_bound_logger(level)
    )
    return log


@asynccontextmanager
async def in_process_registry(
    *,
    target_options: TargetOptions | None = None,
    store: MemoryStore | None = None,
    clock: ManualClocks | None = None,
    stale_after: float = 90,
    expire_after: float = 86_400,
    limits: NodesSettings = NO_LIMITS,
    load: bool = True,
    open_metrics: bool = False,
    open_swagger: bool = False,
    pages: bool = True,
    level: str = "info",
    tls: ServerTls | None = None,
    lane: bool = True,
    record_audit: bool = True,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    change_log_bytes: int = CHANGE_LOG_BYTES,
    max_connections: int = 2000,
    trusted_proxies: Sequence[str] = (),
) -> AsyncIterator[InProcessRegistry]:
    """Run a registry while the context is open; without the lane, aiohttp answers everything."""
    clock = clock or ManualClocks()
    store = store or MemoryStore()
    context = context_of(
        store,
        clock.clocks(),
        freshness=Freshness(
            stale_after=stale_after,
            expire_after=expire_after,
            started=clock.uptime,
            expire_at_most_percent=limits.expire_at_most_percent,
        ),
        limits=limits,
        change_log_bytes=change_log_bytes,
        log=silent_log(level),
    )
    request_metrics = recorded_metrics("registry", context.metrics)
    components = Registry(context, target_options or TargetOptions())
    audit: list[tuple[str, str, Source]] = []

    def record(change: NodeChange) -> None:
        audit.append((change.kind, change.node.hostname, change.source))

    if record_audit:
        context.changes.subscribe(record, AUDITED_KINDS)
    keyring = Keyring(KEYS, derived=NodeKeys([NODE_SECRET]))
    app = build_application(
        components,
        RegistrySettings(
            open_metrics=open_metrics,
            open_swagger=open_swagger,
            pages=pages,
            max_connections=max_connections,
            trusted_proxies=tuple(trusted_proxies),
        ),
        keyring,
        request_metrics,
    )
    if load:
        await components.load()
    async with serving(
        app,
        tls=tls,
        metrics=request_metrics,
        max_connections=max_connections,
        drain_seconds=5.0,
        timeouts=timeouts,
        log=context.log,
        lane=heartbeat_endpoint(components.nodes) if lane else None,
    ) as listener:
        address = await listener.start(("127.0.0.1", 0))
        registry = InProcessRegistry(
            address=address,
            app=app,
            components=components,
            controls=Controls(store, clock, audit, keyring, context.metrics),
        )
        try:
            yield registry
        finally:
            await registry.close()
