"""What the daemons answer to their clients. Fields of later versions are ignored."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from clients.errors import AgentUnreachable
from clients.message import Node

# The query parameter that adds the address of each node.
ADDRESS = "address", "true"
Query = list[tuple[str, str]]
NodeEventKind = Literal["reset", "node", "gone", "stale", "fresh", "listed"]
# A record is nested four deep. Whoever prints a value recurses into it.
MAX_DEPTH = 32
# A name is printed behind its host's, and may be handed to the next command.
AppName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9_.-]*\Z", max_length=255)]
# A record, plan, revision or event as the API has it.
Record = dict[str, Any]
# The numbers of an app; None where the engine does not know one.
Stats = dict[str, float | None]


class Gaps(NamedTuple):
    """What an answer may lack, in seconds; 0 for nothing.

    Hosts that have not reported yet, while the registry still warms up for ``warming``; and what
    happened in the last ``store_age``, for which it does not reach its store.
    """

    warming: int = 0
    store_age: int = 0


class AddressedNode(Node, frozen=True, kw_only=True, omit_defaults=True):
    """A node, and where its last heartbeat came from; None unless that was asked for."""

    address: str | None = None


class ExplainedTarget(msgspec.Struct, frozen=True):
    """A target that scrapers get, with the labels that it has from the node."""

    target: str
    labels: dict[str, str]


class LeftOut(msgspec.Struct, frozen=True):
    """A target or a label that was left out or changed, and why."""

    reason: str
    why: str
    target: str | None = None
    label: str | None = None


class ExplainedService(msgspec.Struct, frozen=True):
    """What scrapers get of a node for one of its services."""

    service: str
    targets: list[ExplainedTarget]
    left_out: list[LeftOut]


class Warned(msgspec.Struct, frozen=True):
    """A label that looks like a misspelt directive, and which one may be meant."""

    label: str
    why: str


class ExplainedNode(msgspec.Struct, frozen=True):
    """What becomes of the labels of a node, for all of its services.

    It was last seen so long ago, from the address.
    """

    hostname: str
    address: str
    stale: bool
    age_seconds: float
    services: list[ExplainedService]
    warnings: list[Warned] = []


class Scraper(msgspec.Struct, frozen=True):
    """Who asked for targets: the name of the key, the address, and when, in Unix seconds."""

    by: str
    address: str
    at: int


class Service(msgspec.Struct, frozen=True):
    """A service: how many nodes offer it, how many targets they have, and who scrapes it."""

    service: str
    nodes: int
    targets: int
    scrapers: list[Scraper]


class StoreStatus(msgspec.Struct, frozen=True):
    """The store of a registry; ``state`` is ``ok`` where all is well."""

    kind: str
    state: str
    message: str


class Rejected(msgspec.Struct, frozen=True):
    """A host whose heartbeats were rejected: when, why, and the address they came from."""

    hostname: str
    at: int
    status: int
    message: str
    address: str


class NodeCounts(msgspec.Struct, frozen=True):
    """How many nodes are due to be forgotten, and stay since too many would be."""

    held: int = 0


class Denied(msgspec.Struct, frozen=True):
    """The list `nodes.denied`: its length, how many of its hosts report, who has another list."""

    patterns: int = 0
    rejected: int = 0
    differs_from: list[str] = []


class MissingHost(msgspec.Struct, frozen=True):
    """An expected host that does not report; None where the registry knows nothing."""

    hostname: str
    last_seen: int | None
    rejected: str | None


class RollCall(msgspec.Struct, frozen=True):
    """Which of the expected hosts report, and which others do; the first two are counts."""

    expected: int
    present: int
    stale: list[MissingHost]
    absent: list[MissingHost]
    away: list[str]
    unexpected: list[str]


class RollCallCounts(msgspec.Struct, frozen=True):
    """How many hosts are expected, and how many of them are absent."""

    expected: int
    absent: int


class Expected(msgspec.Struct, frozen=True):
    """The list `nodes.expected`: its file if one is set, what is wrong, who has another list."""

    file: str | None = None
    problem: str = ""
    differs_from: list[str] = []
    roll_call: RollCallCounts | None = None


class Status(msgspec.Struct, frozen=True):
    """How a registry is; times are Unix seconds by its clock."""

    version: str
    now: int
    stale_after_seconds: float
    warming_seconds: int
    store: StoreStatus
    rejected: list[Rejected]
    nodes: NodeCounts = NodeCounts()
    denied: Denied = Denied()
    expected: Expected = Expected()


class NodeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a watch. `node` is what is there from now on, of the kind ``node`` alone.

    After ``reset``, the events of all nodes follow, and then ``listed``: from then on, they are in
    the place of all that was known before. Its ``warming_seconds`` say for how long the registry
    still does not know all nodes, 0 if it does.
    """

    kind: NodeEventKind
    hostname: str = ""
    node: AddressedNode | None = None
    warming_seconds: int = 0


def filter_parameters(
    labels: Iterable[str], prefixes: Iterable[str], kv: Mapping[str, str] | None
) -> Query:
    """Return the query parameters of filters."""
    query = [("label", label) for label in labels]
    query += [("prefix", prefix) for prefix in prefixes]
    return query + [("kv", f"{name}:{value}") for name, value in (kv or {}).items()]


class Progress(msgspec.Struct):
    """How far a change is."""

    step: str | None = None
    percent: float | None = None


class App(msgspec.Struct):
    """The fields of a record that clients use; it has more."""

    name: AppName
    state: str
    desired: str
    http_port: int
    ssh_port: int
    healthy: bool | None
    message: str | None
    image: str = ""
    revision: int | None = None
    restarts: int | None = None
    exit_code: int | None = None
    crashing: bool | None = None
    finished_at: str | None = None
    labels: list[str] = []
    progress: Progress | None = None


class PlannedApp(msgspec.Struct):
    """The app of a plan."""

    container_id: str | None = None


class Plan(msgspec.Struct):
    """What a dry run shows."""

    app: PlannedApp | None
    replaces_container: bool
    seconds_without_service: float | None
    message: str | None
    changed: list[str] | None = None


class Revision(msgspec.Struct):
    """A revision of an app."""

    revision: int


class Event(msgspec.Struct):
    """The fields of an event that clients use; it has more."""

    id: str
    time: str = ""
    action: str = ""
    outcome: str | None = None
    message: str | None = None
    exit_code: int | None = None


class Process(msgspec.Struct):
    """A process of an app."""

    pid: int
    memory_bytes: float
    elapsed_seconds: float


class AppUsage(msgspec.Struct):
    """What one app has used, the oldest value first."""

    name: AppName
    cpu_percent: list[float | None]
    memory_bytes: list[int | None]


class Usage(msgspec.Struct):
    """What all apps have used, and when the last values were measured, in Unix seconds."""

    until: int | None
    apps: list[AppUsage]


class Message(msgspec.Struct):
    """A message."""

    message: str


def decoded(body: bytes, shape: Any) -> Any:
    """Return an answer as it is, once it has this shape; AgentUnreachable if it has not."""
    try:
        # First the shape: of a body that has another one, little is decoded.
        msgspec.json.decode(body, type=shape)
        answer = msgspec.json.decode(body)
        if _depth(answer) > MAX_DEPTH:
            raise AgentUnreachable(f"what answers is no agent: nested more than {MAX_DEPTH} deep")
    except (ValueError, RecursionError) as error:
        raise AgentUnreachable(f"what answers is no agent: {error}") from error
    return answer


def _depth(value: Any) -> int:
    """Return how deep a JSON value is nested."""
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0) if isinstance(value, (dict, list)) else 0
