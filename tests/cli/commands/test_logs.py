"""`logs`: what an app writes on all of its hosts."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest
from aiohttp import web

from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, FakeAgent, StartAgent
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow

SHOP, LOGS = "/v1/apps/shop", "/v1/apps/shop/logs"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def lines(*written: str) -> bytes:
    """Return lines as an agent sends them, one for each millisecond."""
    times = (f"2026-11-28T12:00:00.{number:03}000000Z" for number in range(len(written)))
    return "".join(f"{time} {line}\n" for time, line in zip(times, written, strict=True)).encode()


def sent(*bodies: bytes, asked: list[str], broken: int = 0) -> Answer:
    """Return an answer: one body after the other, of which the first ones break."""
    left = list(bodies)

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.query_string)
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(left.pop(0))
        if len(bodies) - len(left) <= broken:
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


@pytest.fixture
async def other(registry: InProcessRegistry, agent: FakeAgent, fake_agent: StartAgent) -> FakeAgent:
    """Return the agent of web-2; it and that of web-1 have the app, and db-1 has not."""
    running = await fake_agent()
    await registry.post("web-1", ["app:shop"], kv={"agent.url": agent.url})
    await registry.post("web-2", ["app:shop", "rack:1"], kv={"agent.url": running.url})
    await registry.post("db-1", kv={"agent.url": running.url})
    return running


async def test_each_line_is_behind_its_host_and_a_host_that_fails_stops_no_other(
    rollcall: Rollcall, agent: FakeAgent, other: FakeAgent
) -> None:
    asked: list[str] = []
    other.answers["GET", LOGS] = sent(lines("one", "two\t2"), lines("one"), asked=asked)

    ran = await rollcall("logs", "shop", "-n", "2", "--timestamps")
    chosen = await rollcall("logs", "shop", "--label", "rack:1")

    assert (ran.status, chosen.status) == (1, 0)
    assert ran.err == "web-1: there is no such app\n"
    assert ran.out == (
        "web-2 | 2026-11-28T12:00:00.000000000Z one\n"
        "web-2 | 2026-11-28T12:00:00.001000000Z two\t2\n"
    )
    assert chosen.out == "web-2 | one\n"
    assert asked == [
        "tail=2&follow=false&timestamps=true",
        "tail=20&follow=false&timestamps=true",
    ]
    assert len(agent.asked) == 1


@pytest.mark.parametrize(("options", "follow"), [([], "false"), (["--follow"], "true")])
async def test_a_log_that_breaks_goes_on_where_it_was(
    rollcall: Rollcall, other: FakeAgent, options: list[str], follow: str
) -> None:
    asked: list[str] = []
    whole = lines("-", "a", "a", "b", "c", "d")
    cut = [whole.index(f" {line}".encode()) for line in ("c", "d")]
    other.answers["GET", LOGS] = sent(
        *(whole[whole.index(b"\n") + 1 : cut[0] - 10], whole[: cut[1]], whole),
        asked=asked,
        broken=2,
    )
    other.answers["GET", SHOP] = APP_RECORD | {"state": "exited", "desired": "stopped"}

    ran = await rollcall("logs", "shop", "web-2", *options)

    assert (ran.status, ran.err) == (0, "")
    assert ran.out == "".join(f"web-2 | {line}\n" for line in "aabcd")
    resumed = f"tail=all&follow={follow}&since=2026-11-28T12:00:00Z&timestamps=true"
    assert [each.replace("%3A", ":") for each in asked[1:]] == [resumed, resumed]


async def test_programs_get_an_object_for_each_line(rollcall: Rollcall, other: FakeAgent) -> None:
    # The engine writes a line of more than 16 KiB in pieces, each behind its time.
    pieces = [b"x" * 16384, b"y" * 16384, b"z"]
    body = b"".join(lines("")[:31] + each for each in pieces)
    other.answers["GET", LOGS] = sent(lines("\x1b[1m ü") + body + b"\n", asked=[])

    ran = await rollcall("logs", "shop", "web-2", "-o", "json")

    first, second = map(msgspec.json.decode, ran.out.splitlines())
    assert first == {"host": "web-2", "time": "2026-11-28T12:00:00.000000000Z", "line": "\x1b[1m ü"}
    assert second["line"] == "x" * 16384 + "y" * 16384 + "z"


async def test_at_most_a_hundred_hosts_are_followed(
    rollcall: Rollcall, registry: InProcessRegistry, agent: FakeAgent
) -> None:
    for number in range(101):
        await registry.post(f"web-{number}", ["app:shop"], kv={"agent.url": agent.url})

    ran = await rollcall("logs", "shop", "--follow")
    unknown = await rollcall("logs", "shp")

    assert (ran.status, unknown.status, agent.asked) == (2, 1, [])
    assert "101 hosts have the app, and at most 100 can be followed" in ran.err
    assert "app:shop" in unknown.err
