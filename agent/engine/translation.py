"""Translates the errors of docker-py, aiohttp and their transports to the agent's own."""

import asyncio
import errno
import grp
import re
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import aiohttp
import msgspec
import requests
import urllib3
from docker.errors import APIError, DockerException

from agent.engine.errors import (
    DiskFull,
    EndpointLeft,
    EngineConflict,
    EngineError,
    EngineRejected,
    EngineTimeout,
    EngineUnavailable,
    HostPortInUse,
    ImageNotFound,
    ImageServerBusy,
    ImageServerUnavailable,
    ImageUnavailable,
    InvalidParameter,
    NameInUse,
    NetworkNotFound,
    NoCommand,
    ObjectNotFound,
    PortsNotPublished,
)
from agent.engine.responses import ErrorResponse

NO_SERVER_KNOWS = re.compile(
    r"not found|manifest unknown|name unknown|denied|does not exist|no matching manifest",
    re.IGNORECASE,
)
# The texts of Go for failed connections, and those of servers for their own failures.
SERVER_FAILS = re.compile(
    r"dial tcp|connection re(?:fused|set)|no such host|timeout|timed out|deadline exceeded"
    r"|is unreachable|no route to host|server misbehaving|x509|certificate|\bEOF\b|\btls\b"
    r"|server gave HTTP response|unexpected (?:HTTP )?status.* 5[0-9]{2}\b",
    re.IGNORECASE,
)
SERVER_BUSY = re.compile(r"too ?many ?requests|status.* 429\b|rate limit", re.IGNORECASE)
NO_LOGIN = re.compile(
    r"unauthorized|authentication required|incorrect username|denied|no basic auth|status.* 401\b",
    re.IGNORECASE,
)
LOGIN_HINT = "the login for its server is that in `docker.registries`, if there is one"
# The engine's name of that step, and its own names of the container.
NOT_PUBLISHED = re.compile(r"driver failed programming external connectivity on .*?\([0-9a-f]+\): ")
# The first that is found in a text of the engine counts.
BY_WORDS: tuple[tuple[str, type[EngineError]], ...] = (
    (r"no space left on device|disk quota exceeded", DiskFull),
    (r"port is already allocated|address already in use", HostPortInUse),
    (r"no such image|manifest unknown|pull access denied", ImageUnavailable),
    (r"\bnetwork \S+ not found", NetworkNotFound),
    (r"the container name .* is already in use", NameInUse),
    (r"endpoint with name \S+ already exists in network", EndpointLeft),
    (r"\bports cannot be published\b", PortsNotPublished),
    (r"no command specified", NoCommand),
)
ERRORS_BY_WORDS = tuple((re.compile(words, re.IGNORECASE), error) for words, error in BY_WORDS)
BY_STATUS = {400: InvalidParameter, 404: ObjectNotFound, 409: EngineConflict}
MALFORMED = "the container engine sent an unexpected answer"
UNREACHABLE = "the container engine cannot be reached"
LATE = "the container engine does not answer in time"
LONGEST_TEXT = 2000
# The errors of a connection that fails, in either library; what the engine did is unknown then.
BROKEN = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    aiohttp.ClientError,
    HTTPException,
    OSError,
)


ERROR_RESPONSE = msgspec.json.Decoder(ErrorResponse)


def from_text(text: str, status: int = 500) -> EngineError:
    """Return the error for a text of the engine, or for its status if the text is not known."""
    text = NOT_PUBLISHED.sub("its ports cannot be published: ", text)
    for words, error in ERRORS_BY_WORDS:
        if words.search(text):
            return error(text)
    return BY_STATUS.get(status, EngineRejected)(text)


def from_response(status: int, body: bytes) -> EngineError:
    """Return the error for a response with a status of an error."""
    try:
        text = ERROR_RESPONSE.decode(body).message
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "replace")
    return _from_words(status, text)


def _from_words(status: int, text: str) -> EngineError:
    words = " ".join(text[:LONGEST_TEXT].split())
    return from_text(
        words or f"the container engine answered with {status} and does not say why", status
    )


def from_library(error: Exception, *, socket_path: str = "") -> EngineError:
    """Return our error for one of docker-py, of aiohttp, or of the transport under them."""
    if isinstance(error, EngineError):
        return error
    if isinstance(error, APIError):
        return _from_words(error.status_code or 500, str(error.explanation or ""))
    if isinstance(error, TimeoutError | requests.Timeout | urllib3.exceptions.TimeoutError):
        return EngineTimeout(LATE)
    if isinstance(error, aiohttp.ClientPayloadError):
        return EngineUnavailable("the container engine's answer was interrupted")
    return _unreachable(error, socket_path)


def _unreachable(error: Exception, socket_path: str) -> EngineUnavailable:
    """Return the error for a socket that cannot be connected to, with the reason if it is known."""
    match error.errno if isinstance(error, OSError) else None:
        case errno.EACCES:
            reason = "the agent has no permission to use its socket"
            remedy = f"{socket_path}: {_allowed_to_use(Path(socket_path))}"
        case errno.ENOENT:
            reason = "its socket does not exist"
            remedy = f"start the engine, or set `docker.url`; there is no {socket_path}"
        case errno.ECONNREFUSED:
            reason = "it does not run"
            remedy = f"start the engine; nothing listens on {socket_path}"
        case _:
            return EngineUnavailable(UNREACHABLE)
    return EngineUnavailable(f"{UNREACHABLE}: {reason}", remedy=remedy)


def _allowed_to_use(path: Path) -> str:
    """Return what gives the user of the agent the permission to use a socket."""
    with suppress(OSError, KeyError):
        status = path.stat()
        group = grp.getgrgid(status.st_gid).gr_name
        if status.st_mode & stat.S_IWGRP and status.st_gid != 0:
            return f"add the user of the agent to the group {group}, and restart the agent"
    return "run the agent as a user who may use it"


@contextmanager
def translated() -> Iterator[None]:
    """Raise our errors for those of the libraries."""
    try:
        yield
    except (*BROKEN, DockerException) as error:
        raise from_library(error) from error


@contextmanager
def well_formed() -> Iterator[None]:
    """Raise EngineRejected where an answer is not of the shape that it should have.

    Only decode an answer in this context: it reports any error as a mistake of the engine.
    """
    try:
        yield
    except msgspec.DecodeError as error:  # it names types and places, and no value
        raise EngineRejected(f"{MALFORMED}: {error}") from error
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise EngineRejected(MALFORMED) from error


@asynccontextmanager
async def within(seconds: float | None) -> AsyncIterator[None]:
    """Raise EngineTimeout if the context takes longer than ``seconds``; None is no limit."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise EngineTimeout(LATE) from error


def from_top(error: EngineError) -> EngineError:
    """Translate an error of ``top``: one that is not explained is a failure of the host's ps."""
    if type(error) is not EngineRejected:
        return error
    return EngineRejected(
        "the processes cannot be listed: the engine asks the `ps` of its host (Debian: procps),"
        f" which failed: {error}"
    )


def from_pull(text: str) -> EngineError:
    """Return the error for an image that could not be pulled, with the engine's words."""
    error = from_text(text)
    if isinstance(error, DiskFull):
        return error
    if SERVER_BUSY.search(text):
        return ImageServerBusy(f"{text}; try again later; {LOGIN_HINT}")
    if SERVER_FAILS.search(text):
        return ImageServerUnavailable(text)
    if NO_LOGIN.search(text):
        text = f"{text}; {LOGIN_HINT}"
    return (ImageNotFound if NO_SERVER_KNOWS.search(text) else ImageUnavailable)(text)
