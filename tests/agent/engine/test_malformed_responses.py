"""An engine that answers something else than what was asked: its fault, and reported as such."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from agent.engine.engine import Engine
from agent.engine.errors import EngineError
from agent.engine.models import PullProgress
from tests.support.agent.engines.fake_docker_api import SPEC, VERSION, fake_docker_api

ID = "a" * 64
Call = Callable[[Engine], Awaitable[object]]


async def read_events(engine: Engine) -> None:
    async with aclosing(engine.events("label", since=0)) as events:
        async for _ in events:
            pass


def pass_over(_: PullProgress) -> None:
    """Want to know nothing of how far a pull is."""


@asynccontextmanager
async def answering_all_with(
    body: bytes, *, status: int = 200, version: Any = VERSION
) -> AsyncIterator[Engine]:
    async with fake_docker_api() as fake:
        fake.respond("GET /version", (200, version))
        fake.respond("GET /info", (status, body))
        fake.respond_otherwise((status, body))
        engine = Engine(url=fake.url, timeout_seconds=30)
        try:
            yield engine
        finally:
            await engine.close()


CALLS: list[Call] = [
    lambda engine: engine.info(),
    lambda engine: engine.inspect(ID),
    lambda engine: engine.image("image"),
    lambda engine: engine.processes(ID),
    lambda engine: engine.sample(ID),
    lambda engine: engine.volume_labels("volume"),
    lambda engine: engine.create(SPEC),
    lambda engine: engine.execute(ID, ["true"]),
    lambda engine: engine.pull("image", pass_over),
    read_events,
]


@pytest.mark.parametrize("body", [b"[]", b"5", b'"text"', b"[1]", b"no JSON", b"\xff", b'{"h": '])
@pytest.mark.parametrize("call", CALLS)
async def test_an_answer_of_another_shape_is_an_error_of_the_engine(
    call: Call, body: bytes
) -> None:
    async with answering_all_with(body) as engine:
        with pytest.raises(EngineError, match=r"unexpected answer|interrupted"):
            await call(engine)


@pytest.mark.parametrize("body", [b"[1]", b'[{"Id": 1}]', b"{}", b"null", b"[", b"[[]]"])
async def test_an_odd_list_is_an_error_of_the_engine(body: bytes) -> None:
    async with answering_all_with(body) as engine:
        with pytest.raises(EngineError, match="unexpected answer"):
            await engine.containers()


@pytest.mark.parametrize(
    "line",
    [
        b'{"errorDetail": "text"}',
        b'{"status": "Downloading", "id": "a", "progressDetail": {"current": "x", "total": "y"}}',
        b'{"status": "Downloading", "id": "a", "progressDetail": 5}',
    ],
)
async def test_an_odd_line_in_the_report_of_a_pull_is_no_success(line: bytes) -> None:
    async with answering_all_with(line + b"\n") as engine:
        with pytest.raises(EngineError, match="unexpected answer"):
            await engine.pull("image", pass_over)


@pytest.mark.parametrize("version", [{}, [], {"Version": "x", "ApiVersion": "new"}, b"-"])
@pytest.mark.parametrize("call", [CALLS[0], lambda engine: engine.start(ID)])
async def test_an_odd_version_is_an_error_of_the_engine(call: Call, version: Any) -> None:
    async with answering_all_with(b"{}", version=version) as engine:
        with pytest.raises(EngineError, match="unexpected answer"):
            await call(engine)


REJECTED = [CALLS[0], CALLS[6], CALLS[7], CALLS[8], read_events]


@pytest.mark.parametrize("call", REJECTED)
async def test_a_rejection_without_a_word_names_its_status_and_no_address(call: Call) -> None:
    async with answering_all_with(b"", status=500) as engine:
        with pytest.raises(EngineError, match=r"engine answered with 500 and does not say why$"):
            await call(engine)


@pytest.mark.parametrize("call", REJECTED)
@pytest.mark.parametrize("body", [b"{}", b"[1]", b'{"message": 5}', b"\xff", b"<html>"])
async def test_a_rejection_that_makes_no_sense_is_an_error_of_the_engine(
    call: Call, body: bytes
) -> None:
    async with answering_all_with(body, status=500) as engine:
        with pytest.raises(EngineError) as rejected:
            await call(engine)
    assert "unix" not in str(rejected.value)
    assert "/v1.41" not in str(rejected.value)
