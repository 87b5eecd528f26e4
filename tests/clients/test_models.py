"""Answers that no agent gives: each is an error that says so, and nothing else."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.agent import MAX_ANSWER_BYTES, MAX_ERROR_BYTES, AgentClient
from clients.errors import AgentUnreachable
from clients.models import App, Event, Message, Plan, Process, Revision, Stats, decoded
from tests.support.cli.fake_agent import APP_RECORD
from tests.support.cli.junk import JUNK
from tests.support.examples import share_of
from tests.support.registry.fake_servers import HttpServer

SHAPES = (App, list[App], list[Revision], list[Event], list[Process], Stats, Plan, Message)
OPERATIONS: dict[str, Callable[[AgentClient], Awaitable[Any]]] = {
    "apps": lambda agent: agent.apps(),
    "app": lambda agent: agent.app("shop"),
    "history": lambda agent: agent.history("shop"),
    "events": lambda agent: agent.events("shop"),
    "processes": lambda agent: agent.processes("shop"),
    "stats": lambda agent: agent.stats("shop"),
    "health": lambda agent: agent.health(),
    "create": lambda agent: agent.create({}),
    "stop": lambda agent: agent.change("shop", "stop"),
    "dry run": lambda agent: agent.change("shop", "stop", dry_run=True),
    "delete": lambda agent: agent.delete("shop"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_junk_is_no_answer_of_an_agent(operation: str, http_server: HttpServer) -> None:
    junk = iter(JUNK)

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=next(junk))

    url = await http_server(handler, daemon="agent")
    async with AgentClient(url=url, server_hostname="web-1", key=lambda: "key") as agent:
        for _ in JUNK:
            with pytest.raises(AgentUnreachable, match="what answers is no agent"):
                await OPERATIONS[operation](agent)


@pytest.mark.slow
@pytest.mark.parametrize(("status", "limit"), [(200, MAX_ANSWER_BYTES), (500, MAX_ERROR_BYTES)])
async def test_an_answer_without_an_end_is_none_of_an_agent(
    status: int, limit: int, http_server: HttpServer
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        while True:
            await response.write(b" " * 1_000_000)

    url = await http_server(handler, daemon="agent")
    async with AgentClient(url=url, server_hostname="web-1", key=lambda: "key") as agent:
        with pytest.raises(AgentUnreachable, match=f"more than {limit} bytes"):
            await agent.change("shop", "stop")


@pytest.mark.parametrize("name", [name for name in APP_RECORD if name != "image"])
@pytest.mark.parametrize("value", [[], {}, 1.5, True])
def test_a_field_of_another_type_is_named(name: str, value: Any) -> None:
    if name in ("healthy", "crashing") and value is True:
        value = "yes"
    body = msgspec.json.encode([APP_RECORD, {**APP_RECORD, name: value}])

    with pytest.raises(AgentUnreachable, match=rf"no agent: .* at `\$\[1\]\.{name}`"):
        decoded(body, list[App])


def test_an_exit_code_that_is_no_number_is_named() -> None:
    body = msgspec.json.encode({**APP_RECORD, "exit_code": "four"})

    with pytest.raises(AgentUnreachable, match=r"no agent: .* at `\$\.exit_code`"):
        decoded(body, App)


def test_fields_that_clients_do_not_use_may_be_anything() -> None:
    record = {**APP_RECORD, "new": {"a": [1, None]}, "cpu": "7"}

    assert decoded(msgspec.json.encode(record), App) == record


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text() | st.sampled_from([*APP_RECORD, "pid"]), inner, max_size=3)
    ),
)


@pytest.mark.slow
@settings(max_examples=share_of(300))
@given(body=values.map(msgspec.json.encode) | st.binary(max_size=50))
def test_whatever_is_answered_is_taken_or_rejected(body: bytes) -> None:
    for shape in SHAPES:
        try:
            answer = decoded(body, shape)
        except AgentUnreachable:
            continue
        assert answer == msgspec.json.decode(body)
        msgspec.convert(answer, shape)
