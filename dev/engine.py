"""The local Docker Engine: where it is, and one of our own where none runs."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import docker
import docker.errors
import requests

from dev.waiting import TookTooLongError, until

DEFAULT_URL = "unix:///var/run/docker.sock"
START_SECONDS = 60.0
STOP_SECONDS = 30.0


class EngineError(Exception):
    """There is no engine; the text says why."""


def url(environ: Mapping[str, str]) -> str:
    """Give the address of the engine that this user's docker would talk to."""
    return environ.get("DOCKER_HOST") or DEFAULT_URL


def answers(url: str) -> bool:
    """Tell whether an engine answers there."""
    try:
        client = docker.APIClient(base_url=url, version="auto", timeout=5)
    except (docker.errors.DockerException, requests.RequestException):
        return False
    client.close()
    return True


@contextmanager
def running(url: str, *, log: Path) -> Iterator[None]:
    """Have an engine at the address: the one that is there, else one for as long as this lasts.

    Args:
        url: the engine's address; only the default one can be started.
        log: the file that a started engine's words go to.

    Raises:
        EngineError: none is there and none can be started.

    """
    if answers(url):
        yield
        return
    process = _start(url, log)
    try:
        _wait(process, url, log)
        yield
    finally:
        _end(process)


def _start(url: str, log: Path) -> subprocess.Popen[bytes]:
    if url != DEFAULT_URL:
        raise EngineError(f"no Docker Engine answers at {url}")
    if os.geteuid() != 0:
        raise EngineError("no Docker Engine answers, and only root can start one")
    program = shutil.which("dockerd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if program is None:
        raise EngineError("no Docker Engine answers, and dockerd is not installed")
    with log.open("wb") as output:
        return subprocess.Popen(
            [program],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C in the terminal is ours to pass on, in order
        )


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    try:
        until(
            lambda: process.poll() is not None or answers(url),
            "the Docker Engine's first answer",
            within=START_SECONDS,
        )
    except TookTooLongError as error:
        raise EngineError(f"{error}; see {log}") from error
    if process.poll() is not None:
        raise EngineError(f"dockerd ended with status {process.returncode}; see {log}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
