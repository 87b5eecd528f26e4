"""What keys share on a host: one key has four fifths of it at most, and others go on."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog
from aiohttp import ClientResponse, ClientSession, ClientTimeout, TCPConnector
from structlog.testing import LogCapture

from agent.api.bounds import holders
from agent.api.data import MAX_TRANSFERS
from agent.apps.health import MOST_CHECKS
from agent.apps.images.pulled import MOST_PULLS_OF_KEY
from agent.apps.runner.runner import MOST_OPERATIONS
from agent.engine.models import Image, PullProgress
from agent.model import HealthCheck, NewApp
from httpd.auth import Caller, fingerprint
from httpd.metrics import new_metrics
from runtime.turns import share
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.in_process import served
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, WatchedKeyring, running_apps
from tests.support.agent.tars import packed
from tests.support.waiting import async_until

ALL = frozenset({"read", "write"})
OPS, TEAM = "ops-key-0123456789-abc", "team-key-0123456789-abc"
KEYS = [
    (fingerprint(OPS), Caller("ops", ALL)),
    (fingerprint(TEAM), Caller("team", ALL, apps=("tm-*",))),
]
CHECK = HealthCheck(
    command=("check",), interval_seconds=1, timeout_seconds=60, retries=100, start_seconds=0
)


class HeldEngine(FakeEngine):
    """An engine whose archives have no end, and whose pulls of ``tm`` images end when they may."""

    def __init__(self) -> None:
        super().__init__()
        self.pulling = 0
        self.wanted = set[str]()
        self.may_end = asyncio.Event()

    async def archive(self, container_id: str, path: str) -> AsyncGenerator[bytes]:
        assert path in self._find(container_id).volumes
        yield packed({".": None, "file": b"x" * 400_000})[:300_000]
        await asyncio.Event().wait()

    async def image(self, reference: str) -> Image | None:
        if reference.startswith("tm:"):
            self.wanted.add(reference)
            known = await super().image(IMAGE) if self.may_end.is_set() else None
            return known and replace(known, local=False)
        return await super().image(reference)

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        del reference
        self.pulling += 1
        try:
            progress(PullProgress(done_bytes=0, total_bytes=1))
            await self.may_end.wait()
        finally:
            self.pulling -= 1


class Agent:
    """An agent with a key for all apps and one for the apps ``tm-*``."""

    def __init__(
        self, engine: HeldEngine, apps: AskedApps, keyring: WatchedKeyring, session: ClientSession
    ) -> None:
        self.engine = engine
        self.apps = apps
        self.keyring = keyring
        self._session = session

    async def ask(
        self, key: str, method: str, path: str, body: object = None, *, wait: int = 60
    ) -> ClientResponse:
        """Return a response whose head has arrived."""
        headers = {"Authorization": f"Bearer {key}", "Prefer": f"wait={wait}"}
        return await self._session.request(method, f"/v1/apps{path}", headers=headers, json=body)

    async def until_pulling(self, number: int) -> None:
        await async_until(lambda: asyncio.sleep(0, self.engine.pulling == number))

    async def until_wanted(self, number: int) -> None:
        """Wait until so many images were to be pulled so far."""
        await async_until(lambda: asyncio.sleep(0, len(self.engine.wanted) == number))

    async def step(self, name: str) -> str | None:
        found = {each.name: each for each in await self.apps.queries.all()}.get(name)
        return found.progress.step if found and found.progress else None


@asynccontextmanager
async def running_agent(folder: Path) -> AsyncIterator[Agent]:
    log, engine, keyring = LogCapture(), HeldEngine(), WatchedKeyring(KEYS)
    wrapped = structlog.wrap_logger(None, processors=[log])
    async with (
        running_apps(
            folder, engine, log, defaults=AT_ONCE, holders=partial(holders, keyring)
        ) as apps,
        served(apps, new_metrics(), wrapped, keyring=keyring) as base_url,
        ClientSession(
            base_url, timeout=ClientTimeout(total=8), connector=TCPConnector(limit=0)
        ) as session,
    ):
        yield Agent(engine, apps, keyring, session)
    assert [each for each in log.entries if each["log_level"] == "error"] == []


async def test_transfers_of_one_key_leave_places_to_others(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        for name in ("tm-a", "web"):
            await agent.apps.create(NewApp(name=name, image=IMAGE), ASKER)

        of_team = [await agent.ask(TEAM, "GET", "/tm-a/data") for _ in range(share(MAX_TRANSFERS))]
        assert {each.status for each in of_team} == {200}
        steps = list[str]()

        async def note(step: str) -> None:
            steps.append(step)

        agent.engine.at_step = note
        rejected = await agent.ask(TEAM, "GET", "/tm-a/data?pause=true")
        assert (rejected.status, steps) == (503, [])
        assert "transfers of data are under way with the key `team`" in await rejected.text()
        # Its places are free for data that comes in as well.
        await agent.apps.stop("tm-a", ASKER)
        assert (await agent.ask(TEAM, "PUT", "/tm-a/data", {})).status == 503

        of_ops = await agent.ask(OPS, "GET", "/web/data")
        assert of_ops.status == 200
        for each in (*of_team, of_ops):
            each.close()


async def test_changes_of_one_key_that_do_not_end_leave_places_to_others(tmp_path: Path) -> None:
    most = share(MOST_OPERATIONS)
    async with running_agent(tmp_path) as agent:

        def create(number: int) -> asyncio.Task[ClientResponse]:
            body = {"name": f"tm-{number}", "image": f"tm:{number}"}
            return asyncio.create_task(agent.ask(TEAM, "POST", "", body))

        creations = [create(number) for number in range(most)]
        await agent.until_wanted(most)

        impatient = await agent.ask(TEAM, "POST", "", {"name": "tm-x", "image": IMAGE}, wait=0)
        assert impatient.status == 409
        assert f"{most} of them with one key" in await impatient.text()
        created = await agent.ask(OPS, "POST", "", {"name": "web", "image": IMAGE})
        assert created.status == 201

        late = create(most)
        # A deletion ends a pull, and the next change of the key has its turn.
        assert (await agent.ask(TEAM, "DELETE", "/tm-0")).status == 200
        assert (await creations[0]).status == 409
        await agent.until_wanted(most + 1)
        agent.engine.may_end.set()
        assert {(await each).status for each in (*creations[1:], late)} == {201}


async def test_pulls_of_one_key_leave_the_engine_to_the_pulls_of_others(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:

        def create(key: str, name: str, image: str) -> asyncio.Task[ClientResponse]:
            return asyncio.create_task(agent.ask(key, "POST", "", {"name": name, "image": image}))

        of_team = [create(TEAM, f"tm-{number}", f"tm:{number}") for number in range(4)]
        await agent.until_wanted(4)
        await agent.until_pulling(MOST_PULLS_OF_KEY)

        # The last two of the key wait for their turn, and others for the same images.
        of_ops = [create(OPS, f"web-{number}", f"tm:{number}") for number in range(4)]
        await agent.until_pulling(MOST_PULLS_OF_KEY + len(of_ops))
        agent.engine.may_end.set()
        assert {(await each).status for each in (*of_team, *of_ops)} == {201}


async def test_a_change_that_waits_for_a_place_ends_with_its_key(tmp_path: Path) -> None:
    most = share(MOST_OPERATIONS)
    async with running_agent(tmp_path) as agent:
        creations = []
        # Each change waits for its app, and the last one for a place as well.
        opened = agent.keyring.open + most + 2
        for number in range(most + 1):
            body = {"name": f"tm-{number}", "image": f"tm:{number}"}
            creations.append(asyncio.create_task(agent.ask(TEAM, "POST", "", body)))
            await agent.until_wanted(min(number + 1, most))
        await async_until(lambda: asyncio.sleep(0, agent.keyring.open >= opened))

        agent.keyring.replace(KEYS[:1])

        assert (await creations.pop()).status == 403
        agent.engine.may_end.set()
        assert {(await each).status for each in creations} == {201}


async def test_slow_checks_of_the_apps_of_one_key_do_not_delay_those_of_others(
    tmp_path: Path,
) -> None:
    async with running_agent(tmp_path) as agent:
        hanging = set[str]()

        async def check(container_id: str) -> int:
            if not agent.engine.state.containers[container_id].name.startswith("tm-"):
                return 0
            hanging.add(container_id)
            return await asyncio.Event().wait()

        agent.engine.check = check
        for number in range(MOST_CHECKS + 1):
            await agent.apps.create(NewApp(name=f"tm-{number}", image=IMAGE, health=CHECK), ASKER)
        await async_until(lambda: asyncio.sleep(0, len(hanging) == share(MOST_CHECKS)))

        await agent.apps.create(NewApp(name="web", image=IMAGE, health=CHECK), ASKER)

        async def healthy() -> bool:
            return bool((await agent.apps.queries.one("web")).healthy)

        await async_until(healthy)
        assert len(hanging) == share(MOST_CHECKS)
