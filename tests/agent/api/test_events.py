"""GET /v1/events and GET /v1/apps/NAME/events: what happened, and what happens, to whoever asks."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from aiohttp import ClientResponse, ClientSession, ClientTimeout, TCPConnector
from structlog.testing import LogCapture

from agent.api.streams import MAX_READERS
from agent.apps.repository.events import MAX_EVENTS
from agent.model import AppChanges, NewApp
from agent.state.history import Event
from httpd.metrics import new_metrics
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.in_process import OPERATOR, READER, served
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps

pytestmark = pytest.mark.slow
TIMEOUT_SECONDS = 60


class Client:
    """Asks an agent's API."""

    def __init__(self, apps: AskedApps, base_url: str, session: ClientSession) -> None:
        self.apps = apps
        self.base_url = base_url
        self._session = session

    async def get(self, path: str, *, key: str = READER, last_id: str = "") -> ClientResponse:
        headers = {"Authorization": f"Bearer {key}"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        return await self._session.get(f"{self.base_url}{path}", headers=headers)


@asynccontextmanager
async def client(folder: Path, engine: FakeEngine | None = None) -> AsyncIterator[Client]:
    log = LogCapture()
    async with (
        running_apps(folder, engine or FakeEngine(), log, defaults=AT_ONCE) as apps,
        served(apps, new_metrics(), structlog.wrap_logger(None, processors=[log])) as base_url,
        ClientSession(
            connector=TCPConnector(limit=0), timeout=ClientTimeout(total=TIMEOUT_SECONDS)
        ) as session,
    ):
        yield Client(apps, base_url, session)


async def next_event(stream: ClientResponse) -> tuple[str, str, Any]:
    """Return id, kind and data of the next event."""
    fields: dict[str, str] = {}
    while True:
        line = (await stream.content.readuntil(b"\n")).decode().rstrip("\n")
        if line:
            name, _, fields[name] = line.partition(": ")
            fields[name] = line.partition(": ")[2]
        elif "data" in fields:
            return fields["id"], fields["event"], msgspec.json.decode(fields["data"])


async def test_who_follows_is_reported_all_apps_what_they_themselves_show(tmp_path: Path) -> None:
    async with client(tmp_path) as asked:
        stream = await asked.get("/v1/events")
        assert (await next_event(stream))[1:] == ("reset", {})
        await asked.apps.create(NewApp(name="web", image=IMAGE, env={"A": "secret"}), ASKER)
        await asked.apps.create(NewApp(name="shop", image=IMAGE), ASKER)
        await asked.apps.update("web", AppChanges(env={"A": "secret too"}), ASKER)

        events = [await next_event(stream) for _ in range(3)]

        web, shop = [
            await (await asked.get(f"/v1/apps/{name}/events")).json() for name in ("web", "shop")
        ]
        assert [data for _, _, data in events] == [web[0], shop[0], web[1]]
        assert [each_id for each_id, _, _ in events] == [web[0]["id"], shop[0]["id"], web[1]["id"]]
        assert web[1].items() >= {"by": "operator", "action": "update", "changed": ["env"]}.items()
        assert "secret" not in repr(events)
        stream.close()


async def test_who_was_away_goes_on_after_its_last_event_over_a_restart_too(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with client(tmp_path, engine) as asked:
        await asked.apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await asked.apps.stop("web", ASKER)
        created, stopped = await (await asked.get("/v1/apps/web/events")).json()
    async with client(tmp_path, engine) as asked:
        await asked.apps.start("web", ASKER)
        stream = await asked.get("/v1/events", last_id=created["id"])

        assert [(await next_event(stream))[2]["action"] for _ in range(2)] == ["stop", "start"]
        stream.close()
        assert stopped["outcome"] == "done"


@pytest.mark.parametrize("last_id", ["nonsense", "7-0", "99999-18c"])
async def test_who_has_an_event_that_is_not_known_gets_reset_and_what_comes(
    tmp_path: Path, last_id: str
) -> None:
    async with client(tmp_path) as asked:
        await asked.apps.create(NewApp(name="web", image=IMAGE), ASKER)
        stream = await asked.get("/v1/events", last_id=last_id)
        reset = await next_event(stream)
        assert reset[1] == "reset"
        await asked.apps.stop("web", ASKER)
        assert (await next_event(stream))[2]["action"] == "stop"
        stream.close()

        resumed = await asked.get("/v1/events", last_id=reset[0])
        assert (await next_event(resumed))[2]["action"] == "stop"
        resumed.close()


async def test_only_so_many_follow_at_a_time(tmp_path: Path) -> None:
    async with client(tmp_path) as asked:
        most = MAX_READERS * 4 // 5
        streams = await asyncio.gather(*(asked.get("/v1/events") for _ in range(most)))
        rejected = await asked.get("/v1/events")

        assert {each.status for each in streams} == {200}
        assert (rejected.status, rejected.headers["Retry-After"]) == (503, "5")
        assert f"{most} clients follow events with the key `reader`" in await rejected.text()
        # An operator still gets in.
        streams += await asyncio.gather(
            *(asked.get("/v1/events", key=OPERATOR) for _ in range(MAX_READERS - most))
        )
        assert {each.status for each in streams} == {200}
        assert (await asked.get("/v1/events", key=OPERATOR)).status == 503
        for each in streams:
            each.close()


async def test_a_follower_that_does_not_keep_up_is_cut_off(tmp_path: Path) -> None:
    async with client(tmp_path) as asked:
        host, _, port = asked.base_url.removeprefix("http://").partition(":")
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect((host, int(port)))
            slow.sendall(
                f"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: {READER}\r\n\r\n".encode()
            )
            head = await asyncio.to_thread(slow.recv, 20)
            assert head.startswith(b"HTTP/1.1 200")

            for number in range(1, MAX_EVENTS * 2, 100):
                asked.apps.context.repository.feed.add(
                    [large_event(each) for each in range(number, number + 100)]
                )
                await asyncio.sleep(0)

            await asyncio.wait_for(asyncio.to_thread(read_to_the_end, slow), TIMEOUT_SECONDS)


def large_event(number: int) -> Event:
    return Event(number=number, time=1, app="web", by="ops", action="stop", message="x" * 1000)


def read_to_the_end(connection: socket.socket) -> None:
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        return


async def test_a_stream_ends_in_order_at_the_shutdown(tmp_path: Path) -> None:
    async with ClientSession() as session:
        async with client(tmp_path) as asked:
            headers = {"Authorization": f"Bearer {OPERATOR}"}
            stream = await session.get(f"{asked.base_url}/v1/events", headers=headers)
            await next_event(stream)

        assert await stream.read() == b""  # cut off in the middle, this would raise


async def test_an_app_that_never_was_has_no_events(tmp_path: Path) -> None:
    async with client(tmp_path) as asked:
        assert (await asked.get("/v1/apps/never/events")).status == 404
        assert (await asked.get("/v1/events?since=1")).status == 400
        assert (await asked.get("/v1/events", key="wrong-key-0123456789")).status == 401
