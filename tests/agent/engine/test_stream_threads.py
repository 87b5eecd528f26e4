"""A system that gives no more threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests
from agent.engine.connection import Client

from agent.engine.protocol import EngineUnavailable, TooManyStreams
from agent.engine.streams import Streams, frames

MORE_THAN_THERE_IS = 1 << 46


@contextmanager
def no_threads() -> Iterator[None]:
    """Have the system refuse each new thread: none may have a stack of so many bytes."""
    usual = threading.stack_size(MORE_THAN_THERE_IS)
    try:
        yield
    finally:
        threading.stack_size(usual)


def nobody() -> Client:
    raise requests.ConnectionError


def ask(_client: Client) -> requests.Response:
    raise AssertionError("there is no engine")


async def test_a_stream_without_a_thread_is_refused_and_takes_no_room() -> None:
    streams = Streams(nobody, most=1, what="logs")

    with no_threads(), pytest.raises(TooManyStreams, match="no more threads"):
        await anext(streams.read(ask, frames))

    with pytest.raises(EngineUnavailable):
        await anext(streams.read(ask, frames))
