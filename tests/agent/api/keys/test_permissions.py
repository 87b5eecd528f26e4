"""What each kind of key may ask of an agent."""

from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from pytest_aiohttp import AiohttpClient
from structlog.testing import LogCapture

from agent.engine.models import Process
from agent.model import HealthCheck, NewApp
from httpd.auth import Caller, Keyring, fingerprint
from httpd.metrics import new_metrics
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.in_process import (
    KEYS,
    OPERATOR,
    READER,
    SCRAPER,
    WRITER,
    application,
)
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps
from tests.support.httpd.swagger import documented_operations

APPS = "/v1/apps"
OF_APP = ("", "/history", "/processes", "/stats", "/logs", "/events", "/data")
PROCESS = Process(
    pid=7,
    ppid=1,
    user="app",
    cpu_percent=0.0,
    memory_bytes=1,
    elapsed_seconds=1,
    command="serve --key s3cret",
)
READS = ("/v1/events", APPS, *[f"{APPS}/web{path}" for path in OF_APP])
DOCUMENT = Path(__file__).parents[4] / "agent" / "swagger.yml"
SCRAPE, READ, WRITE, BOTH, NOBODY = "scrape", "read", "write", "read and write", "no key"
# As BOTH, for some apps: for that of the path, or for others.
OWN, OTHERS = "its app", "other apps"
KEY_OF = {
    SCRAPE: SCRAPER, READ: READER, WRITE: WRITER, BOTH: OPERATOR, OWN: "own-key-0123456789",
    OTHERS: "others-key-0123456789", NOBODY: "none",
}  # fmt: skip
READERS, WRITERS = {READ, BOTH, OWN}, {WRITE, BOTH, OWN}
ONE = f"{APPS}/{{}}"
WHO_MAY: dict[tuple[str, str], set[str]] = {
    ("GET", "/healthz"): {*KEY_OF},
    ("GET", "/metrics"): {SCRAPE, READ, BOTH},
    ("GET", "/swagger.json"): {*READERS, OTHERS},
    ("GET", "/access"): {*READERS, OTHERS},
    ("GET", "/v1/usage"): {*READERS, OTHERS},
    ("GET", "/v1/events"): {*READERS, OTHERS},
    ("GET", APPS): {*READERS, OTHERS},
    # The names in bodies, which nobody gets to with this one, are tested with keys for some apps.
    ("POST", APPS): {*WRITERS, OTHERS},
    **{("GET", ONE + path): READERS for path in OF_APP if path != "/data"},
    ("GET", f"{ONE}/data"): {BOTH, OWN},
    **{
        ("PUT", ONE + path): WRITERS
        for path in ("", "/start", "/stop", "/restart", "/rebuild", "/rollback", "/keys", "/data")
    },
    ("DELETE", ONE): WRITERS,
    ("POST", f"{ONE}/labels"): WRITERS,
    ("DELETE", f"{ONE}/labels"): WRITERS,
}


@pytest.mark.parametrize("kind", KEY_OF)
async def test_each_operation_is_for_the_keys_that_the_table_names(
    tmp_path: Path, aiohttp_client: AiohttpClient, kind: str
) -> None:
    document = yaml.safe_load(DOCUMENT.read_text())
    assert documented_operations(document) == WHO_MAY.keys()
    both = frozenset({"read", "write"})
    bound = {
        OWN: Caller("own", both, apps=("none-*",)),
        OTHERS: Caller("others", both, apps=("x",)),
    }
    keys = [*KEYS, *((fingerprint(KEY_OF[each]), caller) for each, caller in bound.items())]
    log = LogCapture()
    wrapped = structlog.wrap_logger(None, processors=[log])
    async with running_apps(tmp_path, FakeEngine(), log, defaults=AT_ONCE) as apps:
        client = await aiohttp_client(
            application(apps, new_metrics(), wrapped, keyring=Keyring(keys))
        )
        for (method, path), who in WHO_MAY.items():
            headers = {"Authorization": KEY_OF[kind]}
            named = path.format("none-such")
            # A stream has no end, and the body of a change has a mistake.
            async with client.request(method, named, headers=headers, data=b"[") as response:
                rejected = 401 if kind == NOBODY else 403
                assert (response.status != rejected) == (kind in who), (method, path)


@pytest.mark.slow
async def test_a_key_that_may_only_write_changes_apps_and_reads_none(
    tmp_path: Path, aiohttp_client: AiohttpClient
) -> None:
    log = LogCapture()
    bound = structlog.wrap_logger(None, processors=[log])
    async with running_apps(tmp_path, FakeEngine(), log, defaults=AT_ONCE) as apps:
        client = await aiohttp_client(application(apps, new_metrics(), bound))
        await apps.create(NewApp(name="web", image=IMAGE, env={"TOKEN": "s3cret"}), ASKER)

        async def ask(method: str, path: str, key: str) -> tuple[int, str]:
            headers = {"Authorization": f"Bearer {key}"}
            async with client.request(method, path, headers=headers) as response:
                # A stream has no end.
                return response.status, "" if response.ok else await response.text()

        for path in READS:
            status, text = await ask("GET", path, WRITER)
            assert status == 403, path
            assert "the key `writer` allows write, which is not enough to GET" in text
        assert (await ask("HEAD", f"{APPS}/web", WRITER))[0] == 403
        assert (await ask("PUT", f"{APPS}/web/stop", WRITER))[0] == 200

        assert (await ask("GET", f"{APPS}/web", READER))[0] == 200
        assert (await ask("PUT", f"{APPS}/web/start", READER))[0] == 403
        assert (await apps.queries.one("web")).state == "exited"


class PsEngine(FakeEngine):
    """An engine with one process in each container."""

    async def processes(self, container_id: str) -> list[Process]:
        self._find(container_id)
        return [PROCESS]


@pytest.mark.slow
async def test_a_key_that_may_only_read_sees_no_command_with_its_arguments(
    tmp_path: Path, aiohttp_client: AiohttpClient
) -> None:
    log = LogCapture()
    bound = structlog.wrap_logger(None, processors=[log])
    async with running_apps(tmp_path, PsEngine(), log, defaults=AT_ONCE) as apps:
        client = await aiohttp_client(application(apps, new_metrics(), bound))
        check = HealthCheck(command=("check", "s3cret"))
        wanted = NewApp(name="web", image=IMAGE, command=("serve", "s3cret"), health=check)
        await apps.create(wanted, ASKER)

        async def get(path: str, key: str) -> Any:
            response = await client.get(f"{APPS}{path}", headers={"Authorization": key})
            return await response.json()

        for record in (await get("/web", READER), *(await get("", READER))):
            assert record["command"] is None
            assert record["health"]["command"] is None
            assert record["health"]["retries"] == 3
        assert (await get("/web", OPERATOR))["command"] == ["serve", "s3cret"]
        assert (await get("/web", OPERATOR))["health"]["command"] == ["check", "s3cret"]
        assert [each["command"] for each in await get("/web/processes", READER)] == ["serve"]
        both = [await get("/web/processes", key) for key in (OPERATOR, READER)]
        assert [each["command"] for (each,) in both] == ["serve --key s3cret", "serve"]
