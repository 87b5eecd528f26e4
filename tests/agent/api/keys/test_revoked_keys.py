"""A reload that revokes or reduces a key ends what it has open or waits for, and nothing else."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout
from structlog.testing import LogCapture

from agent.model import NewApp
from httpd.auth import Caller, fingerprint
from httpd.metrics import new_metrics
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.in_process import KEYS, OPERATOR, READER, WRITER, served
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, WatchedKeyring, running_apps
from tests.support.agent.tars import packed
from tests.support.waiting import async_until

ALL = frozenset({"read", "write"})
DATA = "/v1/apps/web/data"
STREAMS = ("/v1/events", "/v1/apps/web/logs?follow=true", DATA)
NOW = {
    "revoked": [],
    "reduced": [(fingerprint(OPERATOR), Caller("operator", frozenset({"read"})))],
    "replaced by another of its name": [(fingerprint("k" * 20), Caller("operator", ALL))],
}


class EndlessEngine(FakeEngine):
    """An engine whose logs and archives come to no end, and go on once there is to be ``more``.

    ``is_filling`` is set by what comes in.
    """

    is_filling = False

    def __init__(self) -> None:
        super().__init__()
        self.more = asyncio.Event()

    async def logs(
        self,
        container_id: str,
        *,
        tail: int | None,
        since: float | None,
        follow: bool,
        until: float | None = None,
        timestamps: bool = False,
    ) -> AsyncGenerator[bytes]:
        del tail, since, follow, until, timestamps
        self._find(container_id)
        yield b"a line\n"
        await self.more.wait()
        yield b"another line\n"
        await asyncio.Event().wait()

    async def archive(self, container_id: str, path: str) -> AsyncGenerator[bytes]:
        assert path in self._find(container_id).volumes
        tar = packed({".": None, "file": b"x" * 6_000_000})
        yield tar[:2_000_000]
        await self.more.wait()
        yield tar[2_000_000:4_000_000]
        await asyncio.Event().wait()

    async def unpack(self, container_id: str, tar: AsyncIterator[bytes]) -> None:
        self._find(container_id)
        async for _ in tar:
            self.is_filling = True


class Agent:
    """An agent that is asked with the operator's key, whose keys can be replaced."""

    def __init__(
        self,
        engine: EndlessEngine,
        apps: AskedApps,
        keyring: WatchedKeyring,
        session: ClientSession,
    ) -> None:
        self.engine = engine
        self.apps = apps
        self.keyring = keyring
        self.session = session

    async def open(self, path: str) -> ClientResponse:
        response = await self.session.get(path, headers={"Authorization": OPERATOR})
        assert response.status == 200
        return response


@asynccontextmanager
async def running_agent(folder: Path) -> AsyncIterator[Agent]:
    log, keyring, engine = LogCapture(), WatchedKeyring(KEYS), EndlessEngine()
    wrapped = structlog.wrap_logger(None, processors=[log])
    async with (
        running_apps(folder, engine, log, defaults=AT_ONCE) as apps,
        served(apps, new_metrics(), wrapped, keyring=keyring) as base_url,
        ClientSession(base_url, timeout=ClientTimeout(total=8)) as session,
    ):
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        yield Agent(engine, apps, keyring, session)


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("change", NOW)
async def test_a_stream_is_cut_off_with_the_key_that_opened_it(
    tmp_path: Path, path: str, change: str
) -> None:
    async with running_agent(tmp_path) as agent:
        stream = await agent.open(path)
        assert await stream.content.readany()

        agent.keyring.replace([*NOW[change], (fingerprint(READER), Caller("reader", ALL))])

        with pytest.raises(ClientError):
            await stream.read()
        stream.close()


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_outlives_a_reload_that_takes_nothing_from_its_key(
    tmp_path: Path, path: str
) -> None:
    async with running_agent(tmp_path) as agent:
        stream = await agent.open(path)
        assert await stream.content.readany()

        agent.keyring.replace([(fingerprint(OPERATOR), Caller("renamed", ALL | {"scrape"}))])
        agent.engine.more.set()
        if path == "/v1/events":
            await agent.apps.stop("web", ASKER)

        assert await stream.content.readany()
        stream.close()


async def test_data_that_comes_with_a_key_that_is_revoked_changes_nothing(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.apps.stop("web", ASKER)
        before = await agent.apps.queries.one("web")

        async def tar() -> AsyncIterator[bytes]:
            yield packed({"srv/file": b"x" * 4_000_000})[:2_000_000]
            await asyncio.Event().wait()

        async def restore() -> None:
            headers = {"Authorization": OPERATOR}
            async with agent.session.put(DATA, headers=headers, data=tar()):
                pass

        restoring = asyncio.create_task(restore())
        await async_until(lambda: asyncio.sleep(0, agent.engine.is_filling))
        agent.keyring.replace([])

        with pytest.raises(ClientError):
            await restoring
        assert (await agent.apps.queries.one("web")).volumes == before.volumes


@asynccontextmanager
async def busy_app(agent: Agent) -> AsyncIterator[None]:
    """Keep a change of the app under way, by a client that sends its data without an end."""
    await agent.apps.stop("web", ASKER)

    async def tar() -> AsyncIterator[bytes]:
        yield packed({"srv/file": b"x" * 4_000_000})[:2_000_000]
        await asyncio.Event().wait()

    async def restore() -> None:
        headers = {"Authorization": OPERATOR}
        async with agent.session.put(DATA, headers=headers, data=tar()):
            pass

    restoring = asyncio.create_task(restore())
    await async_until(lambda: asyncio.sleep(0, agent.engine.is_filling))
    try:
        yield
    finally:
        restoring.cancel()


LATER = {"Authorization": WRITER, "Prefer": "wait=600"}
KEPT = (fingerprint(OPERATOR), Caller("operator", ALL))
WRITER_NOW = {
    "revoked": [],
    "reduced": [(fingerprint(WRITER), Caller("writer", frozenset({"write"}), apps=("b-*",)))],
    "replaced by another of its name": [(fingerprint("k" * 20), Caller("writer", ALL))],
}


async def waiting_delete(agent: Agent, url: str) -> asyncio.Task[ClientResponse]:
    """Ask for a deletion, and return once it waits for its turn."""

    async def delete() -> ClientResponse:
        return await agent.session.delete(url, headers=LATER)

    before = agent.keyring.open
    deleting = asyncio.create_task(delete())
    await async_until(lambda: asyncio.sleep(0, agent.keyring.open > before))
    return deleting


@pytest.mark.parametrize("change", WRITER_NOW)
@pytest.mark.parametrize("dry_run", ["false", "true"])
async def test_a_change_that_waits_for_its_turn_ends_with_its_key(
    tmp_path: Path, change: str, dry_run: str
) -> None:
    async with running_agent(tmp_path) as agent, busy_app(agent):
        url = f"/v1/apps/web?dry_run={dry_run}"
        deleting = await waiting_delete(agent, url)

        agent.keyring.replace([KEPT, *WRITER_NOW[change]])

        async with await deleting as response:
            assert response.status == 403
            assert "was revoked, or allows less" in await response.text()
        progress = (await agent.apps.queries.one("web")).progress
        assert progress is not None
        assert progress.operation == "restore"


async def test_a_change_that_waits_outlives_a_reload_that_takes_nothing_from_its_key(
    tmp_path: Path,
) -> None:
    async with running_agent(tmp_path) as agent:
        async with busy_app(agent):
            deleting = await waiting_delete(agent, "/v1/apps/web")
            agent.keyring.replace([KEPT, (fingerprint(WRITER), Caller("writer", ALL))])

        async with await deleting as response:
            assert response.status == 200
