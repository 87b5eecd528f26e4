"""GET /status and GET /roll-call: how the registry is, and which expected hosts report."""

from collections.abc import Sequence
from http import HTTPStatus

import msgspec
from aiohttp import web

from clients.message import HostnameInvalid, normalise_hostname
from config import VERSION
from httpd.auth import CALLER, caller
from httpd.bodies import json_response, query
from registry.api.access import may_report, request_source
from registry.api.queries import PAGE, page
from registry.api.representation import Answers, next_page
from registry.nodes.heartbeat_counts import (
    HeartbeatSamples,
    RejectedHeartbeat,
)
from registry.registry import Registry
from registry.responses.readers import Expected
from registry.roll_call import Answer
from registry.store.protocol import Member

HEARTBEATS = "/nodes/{hostname}"
# Rejections that are about the host. Others are about a client without a key, or the registry.
HOST_REJECTION_STATUSES = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INSUFFICIENT_STORAGE,
    }
)


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The store; `url` holds no secrets, `shared` is whether several registries can share it."""

    kind: str
    url: str
    shared: bool
    state: str
    message: str


class DeniedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The list `nodes.denied`: its length, its digest, and who shares the store with another.

    `rejected` is how many hosts in the list still report. No answer has their names.
    """

    patterns: int
    rejected: int
    digest: str
    differs_from: Sequence[str]


class RollCallCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many hosts are expected, how they are, and how many others there are."""

    expected: int
    present: int
    stale: int
    absent: int
    away: int
    unexpected: int


class ExpectedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The list `nodes.expected`: its file, None if none is set, and why that cannot be used.

    `roll_call` is None without a list, and while not all nodes are known.
    """

    file: str | None
    problem: str
    digest: str
    differs_from: Sequence[str]
    roll_call: RollCallCounts | None


class NodeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes there are, and how many are fresh, stale, held, and report apps down."""

    total: int
    fresh: int
    stale: int
    held: int
    apps_down: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a registry is; `started_at` and `now` are Unix times in seconds, by its clock."""

    version: str
    started_at: int
    now: int
    stale_after_seconds: float
    warming_seconds: int
    store: StoreStatus
    members: Sequence[Member]
    denied: DeniedStatus
    expected: ExpectedStatus
    nodes: NodeCounts
    rejected: list[RejectedHeartbeat]
    history: HeartbeatSamples


class StatusApi:
    """The handler of /status."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._wall = registry.context.clocks.wall
        self._started_at = int(self._wall())

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [web.get("/status", self.status)]

    async def status(self, request: web.Request) -> web.Response:
        """Answer 200, also while the store is loading or fails, and `store` says so."""
        query(request, ())
        nodes, settings = self._registry.nodes, self._registry.context.settings
        state, message = nodes.store_state
        fresh, stale = nodes.state_counts()
        url = settings.store_url
        latest, denied = self._registry.rejected.latest(), nodes.denied
        rejected = [each for each in latest if each.hostname not in denied]
        store = StoreStatus(
            kind=url.partition(":")[0],
            url=url,
            shared=nodes.is_store_shared,
            state=state,
            message=message,
        )
        return json_response(
            Status(
                version=VERSION,
                started_at=self._started_at,
                now=int(self._wall()),
                stale_after_seconds=settings.freshness.stale_after,
                warming_seconds=self._registry.warm_up.remaining_seconds,
                store=store,
                members=nodes.members,
                denied=DeniedStatus(
                    patterns=len(denied.patterns),
                    rejected=len(latest) - len(rejected),
                    digest=denied.digest,
                    differs_from=nodes.denied_elsewhere,
                ),
                expected=self._expected(),
                nodes=NodeCounts(
                    total=fresh + stale,
                    fresh=fresh,
                    stale=stale,
                    held=nodes.ages.held,
                    apps_down=nodes.directory.apps_down,
                ),
                rejected=rejected,
                history=self._registry.heartbeats.samples(),
            )
        )

    def _expected(self) -> ExpectedStatus:
        file, latest = self._registry.expected_file, self._registry.roll_calls.latest
        nodes = self._registry.nodes
        counts = None if latest is None else RollCallCounts(**latest.numbers())
        return ExpectedStatus(
            file=None if file.path is None else str(file.path),
            problem=file.problem,
            digest=nodes.expected.digest,
            differs_from=nodes.expected_elsewhere,
            roll_call=counts,
        )


class RejectionRecorder:
    """Records the hosts whose heartbeats are rejected, whoever rejects them.

    What comes with a key that may not report the host is no heartbeat of it.

    A store that is full rejects all hosts, with the status that else means that this host has no
    room: `store` shows that.
    """

    def __init__(self, registry: Registry) -> None:
        self._rejected = registry.rejected
        self._nodes = registry.nodes

    async def __call__(self, request: web.Request, response: web.StreamResponse) -> None:
        """Look at the answer to a heartbeat right before it is sent."""
        if response.status not in HOST_REJECTION_STATUSES or request.method != "POST":
            return
        resource = request.match_info.route.resource
        if resource is None or resource.canonical != HEARTBEATS or CALLER not in request:
            return
        if response.status == HTTPStatus.INSUFFICIENT_STORAGE and self._is_store_full:
            return
        hostname = _hostname(request.match_info["hostname"])
        if not may_report(caller(request), hostname):
            return
        self._rejected.record(
            hostname,
            status=response.status,
            message=_message(response),
            address=request_source(request).address,
        )

    @property
    def _is_store_full(self) -> bool:
        return self._nodes.store_state[0] == "full"


class _Message(msgspec.Struct):
    message: str


def _hostname(text: str) -> str:
    """Return the hostname of a path, or what stands there instead."""
    try:
        return normalise_hostname(text)
    except HostnameInvalid:
        return text


def _message(response: web.StreamResponse) -> str:
    body = response.body if isinstance(response, web.Response) else None
    return msgspec.json.decode(body, type=_Message).message if isinstance(body, bytes) else ""


class RollCallApi:
    """The handler of /roll-call."""

    def __init__(self, registry: Registry, answers: Answers) -> None:
        self._calls = registry.roll_calls
        self._queries = registry.queries
        self._answers = answers
        self._slices = registry.slices

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [web.get("/roll-call", self.call)]

    async def call(self, request: web.Request) -> web.StreamResponse:
        """Answer 200 with the hosts that are missing, away or unexpected, or a page of them.

        404 if no hosts are expected; 503 until their list and all nodes are known.
        """
        after, limit = page(query(request, PAGE))
        self._calls.require()
        await self._queries.prepare_read()
        self._calls.require()
        expected = Expected(object(), self._calls.expected_bytes)
        async with self._answers.reading(request, expected=expected) as reader:
            answer = Answer(after=after, limit=limit)
            await self._slices.run(self._calls.read(answer))
            body, next_after = answer.encoded()
            headers = next_page(request, next_after)
            return await self._answers.respond_whole(request, reader, body, headers=headers)
