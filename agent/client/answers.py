"""The answers of an agent: decoded, and refused where a client could not use them."""

from typing import Annotated, Any

import msgspec

from agent.client.errors import AgentUnreachable

# A record is nested four deep. Whoever prints a value recurses into it.
MAX_DEPTH = 32
# A name is printed behind its host's, and may be handed to the next command.
AppName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9_.-]*\Z", max_length=255)]


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
    """What a dry run tells."""

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


# A record, plan, revision or event as the API has it.
Record = dict[str, Any]
# The numbers of an app; None where the engine does not know one.
Stats = dict[str, float | None]


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
