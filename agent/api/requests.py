"""Reads the parts of requests: path, key, headers, query, the fields of an app, a password."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from typing import TypeVar, get_args

import msgspec
from aiohttp import web
from multidict import MultiMapping

from agent.api.bounds import without_others
from agent.apps.errors import KeyLost
from agent.apps.records import AppSpecT, AppState, AppView, without_secrets
from agent.apps.runner.runner import Requester
from agent.model import APP_NAME_PATTERN, HealthCheck, PullPolicy
from httpd import bodies
from httpd.auth import Caller, caller, waiting_with_its_key
from httpd.errors import BadInput, Forbidden

APPS_PATH = "/v1/apps"
# Any other name is a path that does not exist.
APP_PATH = f"{APPS_PATH}/{{name:{APP_NAME_PATTERN}}}"
DEFAULT_WAIT_SECONDS = 60
MAX_WAIT_SECONDS = 600
DEFAULT_LOG_LINES = 100
MAX_LOG_LINES = 100_000
MAX_LABEL_FILTERS = 16
LOG_FILTERS = ("tail", "since", "follow", "timestamps")
STATES: tuple[str, ...] = get_args(AppState)
BOOLEANS = {"true": True, "1": True, "": True, "false": False, "0": False}
T = TypeVar("T", bound=msgspec.Struct)
UNKNOWN = re.compile(r"unknown field `([^`]{0,100})`(?: - at `\$\.([a-z_]+)`)?")
PLACE = re.compile(r" - at `\$\.([a-z_]+)[^`]*`\Z")
SHAPES = {
    "command": 'an array, such as ["httpd", "-f"]',
    "data": 'an array of paths, such as ["/var/lib/shop"]',
    "env": 'an object of texts, such as {"MODE": "live"}',
    "health": 'an object with a `path`, such as {"path": "/"}, or with a `command`, such as'
    ' {"command": ["true"]}',
    "pull": " or ".join(get_args(PullPolicy)),
}


@dataclass(frozen=True, kw_only=True)
class LogWindow:
    """The part of a log that is requested.

    ``tail`` is a number of lines, None for all. ``since`` is a Unix time in seconds, None for the
    beginning. With ``follow`` the log does not end while the app runs. With ``timestamps`` each
    line begins with its time.
    """

    tail: int | None
    since: float | None
    follow: bool
    timestamps: bool


def app_name(request: web.Request) -> str:
    """Return the app's name in the path."""
    return request.match_info["name"]


def only_app_name(request: web.Request, *allowed: str) -> str:
    """Return the app's name. Raises BadInput for a query parameter that is not ``allowed``."""
    bodies.query(request, allowed)
    return app_name(request)


def may_write(client: Caller) -> bool:
    """Return whether a key may change apps, and see what may hold their secrets."""
    return "write" in client.allow


def redacted(client: Caller, view: AppSpecT) -> AppSpecT:
    """Return the part of a view that a key may see."""
    if isinstance(view, AppView) and view.message is not None:
        message = without_others(client, view.message)
        view = msgspec.structs.replace(view, message=message)
    return view if may_write(client) else without_secrets(view)


def requester(request: web.Request) -> Requester:
    """Return the caller with its Prefer header (RFC 7240), of which invalid parts are ignored."""
    wait, respond_async = DEFAULT_WAIT_SECONDS, False
    for preference in ",".join(request.headers.getall("Prefer", [])).split(","):
        name, _, value = preference.partition(";")[0].strip().partition("=")
        value = value.strip().strip('"')
        if name.strip().lower() == "respond-async":
            respond_async = True
        elif name.strip().lower() == "wait" and re.fullmatch(r"[0-9]{1,9}", value):
            wait = min(int(value), MAX_WAIT_SECONDS)
    client = caller(request)
    return Requester(
        name=client.name,
        wait_seconds=wait,
        respond_async=respond_async,
        picked_ports_only=client.apps is not None,
        drains=_drains(request),
        waiting=partial(_waiting, request),
    )


def _drains(request: web.Request) -> bool:
    """Return whether an app drains before a stop: unless ``?drain=0`` is given. Raises BadInput."""
    text = request.query.get("drain")
    if text not in (None, "0"):
        raise BadInput(f"`drain` is {text[:40]!a}; write 0, or leave it out")
    return text is None


@asynccontextmanager
async def _waiting(request: web.Request) -> AsyncIterator[None]:
    try:
        async with waiting_with_its_key(request):
            yield
    except Forbidden as error:
        raise KeyLost(str(error)) from error


def labels(query: MultiMapping[str]) -> list[str]:
    """Return the values of ``?label=``, each once. Raises BadInput for too many."""
    found = list(dict.fromkeys(query.getall("label", [])))
    if len(found) > MAX_LABEL_FILTERS:
        raise BadInput(f"`label` is given {len(found)} times; at most {MAX_LABEL_FILTERS} may be")
    return found


def states(query: MultiMapping[str]) -> list[str]:
    """Return the values of ``?state=``, each once. Raises BadInput for one that is no state."""
    found = list(dict.fromkeys(query.getall("state", [])))
    for state in found:
        if state not in STATES:
            raise BadInput(f"`state` is {state[:40]!a}; write one of {', '.join(STATES)}")
    return found


def keep_data(request: web.Request) -> bool:
    """Return ``?keep_data=``, false by default. Raises BadInput."""
    text = bodies.query(request, ("keep_data", "drain", "dry_run")).get("keep_data", "false")
    return _boolean("keep_data", text)


def dry_run(request: web.Request, *allowed: str) -> bool:
    """Return ``?dry_run=``, false by default; ``allowed`` are other parameters. Raises BadInput."""
    query = bodies.query(request, ("dry_run", *allowed))
    return _boolean("dry_run", query.get("dry_run", "false"))


def log_window(request: web.Request) -> LogWindow:
    """Return the window that the query asks for, 100 lines by default. Raises BadInput."""
    query = bodies.query(request, LOG_FILTERS)
    return LogWindow(
        tail=_tail(query.get("tail", str(DEFAULT_LOG_LINES))),
        since=_since(query.get("since", "")),
        follow=_boolean("follow", query.get("follow", "false")),
        timestamps=_boolean("timestamps", query.get("timestamps", "false")),
    )


def pause(request: web.Request) -> bool:
    """Return ``?pause=``, False by default. Raises BadInput."""
    return _boolean("pause", bodies.query(request, ("pause",)).get("pause", "false"))


def _tail(text: str) -> int | None:
    if text == "all":
        return None
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) > MAX_LOG_LINES:
        raise BadInput(
            f"`tail` is {text[:40]!a}; write a number of lines up to {MAX_LOG_LINES}, or all"
        )
    return int(text)


def _since(text: str) -> float | None:
    if not text:
        return None
    try:
        if re.fullmatch(r"[0-9]{1,10}(\.[0-9]{1,9})?", text):
            return float(text)
        moment = datetime.fromisoformat(text)
        return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError) as error:
        raise BadInput(
            f"`since` is {text[:40]!a}; write Unix seconds, or a time such as 2026-01-31T12:00:00Z"
        ) from error


def _boolean(name: str, text: str) -> bool:
    if text not in BOOLEANS:
        raise BadInput(f"`{name}` is {text[:40]!a}; write true or false")
    return BOOLEANS[text]


def password(content_type: str, body: bytes) -> str:
    """Return the password in a body: a JSON string or bare text, without one newline at its end.

    Text of the type text/plain is never read as JSON.

    Raises:
        BadInput: the body is not UTF-8.

    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput("the password is not UTF-8") from error
    if content_type != "text/plain":
        with suppress(msgspec.MsgspecError):  # otherwise it is bare text
            text = msgspec.json.decode(text, type=str)
    return text.removesuffix("\n").removesuffix("\r")


def decode_fields(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Return a decoded JSON body; BadInput, with the fields or the values that there are."""
    try:
        return bodies.decode(body, decoder)
    except BadInput as error:
        fields = decoder.type.__struct_fields__
        raise BadInput(f"{error}{_right(str(error), fields)}") from error


def _right(message: str, all_fields: Sequence[str]) -> str:
    """Return what would be right, to be added to a message; empty if it says that itself."""
    unknown, place = UNKNOWN.search(message), PLACE.search(message)
    if unknown is not None:
        fields = HealthCheck.__struct_fields__ if unknown[2] == "health" else all_fields
        close = get_close_matches(unknown[1], fields, n=1)
        meant = "".join(f"; did you mean `{each}`?" for each in close)
        return f"{meant or ';'} the fields are {', '.join(fields)}"
    if place is not None and place[1] in SHAPES:
        return f"; `{place[1]}` is {SHAPES[place[1]]}"
    return ""
