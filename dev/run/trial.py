"""Gets what is needed to try apps: an engine, and an image."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import docker
import docker.errors
import requests

from dev import engine, images
from dev.run.missing import Missing, missing

PAGE = "Hello from the roll call\n"
NEVER_LOOKED = Missing("")


class Trial:
    """Starts an engine where none runs, and builds the image, as soon as this machine lets it.

    Args:
        url: the address of the engine.
        image: the name of the image.
        log: the file for the output of a started engine.
        stop: an event that cancels a start.
        stack: is closed by the caller, and ends a started engine.

    """

    def __init__(self, url: str, image: str, log: Path, stop: Event, stack: ExitStack) -> None:
        self._url = url
        self._image = image
        self._log = log
        self._stop = stop
        self._stack = stack
        self._seen: Missing | None = NEVER_LOOKED
        self._left: Missing | None = NEVER_LOOKED

    def missing(self) -> Missing | None:
        """Return what apps lack here, None if nothing.

        Where that has changed since the last call, an engine is started, and the image is built.
        """
        seen = missing(self._url)
        if seen != self._seen:
            self._seen = seen
            self._left = self._started(seen) or self._built()
        return self._left

    def _started(self, seen: Missing | None) -> Missing | None:
        """Start an engine if one is all that is missing; return what is missing then."""
        if seen is None or not seen.is_startable or os.geteuid() != 0:
            return seen
        try:
            self._stack.enter_context(engine.running(self._url, log=self._log, stop=self._stop))
        except engine.EngineError as error:
            return Missing(f"{seen.why}: {error}", seen.command)
        return missing(self._url)

    def _built(self) -> Missing | None:
        try:
            with _client(self._url) as client:
                images.build_busybox(client, self._image, page=PAGE)
        except (
            images.ImageError,
            docker.errors.DockerException,
            requests.RequestException,
        ) as error:
            why = f"the image {self._image} could not be built: {error}"
            return Missing(why, after="Start `make run` again to build it again.")
        return None


@contextmanager
def _client(url: str) -> Iterator[docker.APIClient]:
    client = docker.APIClient(base_url=url, version="auto", timeout=60)
    try:
        yield client
    finally:
        client.close()
