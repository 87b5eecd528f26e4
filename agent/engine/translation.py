"""From docker-py's errors to ours, once, where it is called."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException

import requests
import urllib3
from docker.errors import APIError, DockerException

from agent.engine.protocol import (
    DiskFull,
    EngineConflict,
    EngineError,
    EngineRefused,
    EngineTimeout,
    EngineUnavailable,
    HostPortInUse,
    ImageUnavailable,
    InvalidParameter,
    NameInUse,
    ObjectNotFound,
)

NO_PORT = re.compile(r"port is already allocated|address already in use", re.IGNORECASE)
NO_ROOM = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
NO_IMAGE = re.compile(r"no such image|manifest unknown|pull access denied", re.IGNORECASE)
NAME_TAKEN = re.compile(r"the container name .* is already in use", re.IGNORECASE)
ODD = "the container engine answered something odd"
BY_STATUS = {400: InvalidParameter, 404: ObjectNotFound, 409: EngineConflict}
FAILURES = (
    EngineError,
    DockerException,
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    HTTPException,
    OSError,
)


def refusal(text: str, status: int = 500) -> EngineError:
    """Tell what an answer of the engine means, by its words where its status is of no help."""
    if NO_ROOM.search(text):
        return DiskFull(text)
    if NO_PORT.search(text):
        return HostPortInUse(text)
    if NO_IMAGE.search(text):
        return ImageUnavailable(text)
    if NAME_TAKEN.search(text):
        return NameInUse(text)
    return BY_STATUS.get(status, EngineRefused)(text)


def translate(error: Exception) -> EngineError:
    """Give our error for one of docker-py or of the transport under it."""
    if isinstance(error, EngineError):
        return error
    if isinstance(error, APIError):
        words = str(
            error.explanation
            or f"the container engine answered with {error.status_code} and does not say why"
        )
        return refusal(" ".join(words.split()), error.status_code or 500)
    if isinstance(error, TimeoutError | requests.Timeout | urllib3.exceptions.TimeoutError):
        return EngineTimeout("the container engine does not answer in time")
    if isinstance(error, requests.JSONDecodeError):
        return EngineRefused(ODD)
    return EngineUnavailable("the container engine cannot be reached")


@contextmanager
def understood() -> Iterator[None]:
    """Raise our error where an answer does not hold what it should; for its taking apart alone."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise EngineRefused(ODD) from error


def top_failure(error: EngineError) -> EngineError:
    """Say that it is the host's ps that failed, where no more is known of a failure."""
    if type(error) is not EngineRefused:
        return error
    return EngineRefused(
        "the processes cannot be listed: the engine asks the `ps` of its host (Debian: procps),"
        f" which failed: {error}"
    )


@contextmanager
def translated() -> Iterator[None]:
    """Raise our errors for those of docker-py and the transport."""
    try:
        yield
    except FAILURES as error:
        raise translate(error) from error
