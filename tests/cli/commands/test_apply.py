"""`diff` and `apply`: what a file says, compared with the agents, and brought about."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, FakeAgent, StartAgent, rejection
from tests.support.cli.process import Run
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow

SHOP = "/v1/apps/shop"
RECORD: dict[str, Any] = {
    **APP_RECORD,
    "memory": 64,
    "env": {"MODE": "live", "path": "/"},
    "health": {"path": "/", "retries": 3},
    "healthy": True,
    "labels": ["a:b"],
}
PLAN = {"app": RECORD, "replaces_container": True, "seconds_without_service": 1, "message": None}
FILE = """\
apps:
  - name: shop
    where: {labels: [service:web]}
    image: shop:1
    memory: 64
    http_port: 0
    env: {MODE: live, path: /}
    health: {path: /}
    labels: [a:b]
"""


@pytest.fixture
async def agent(registry: InProcessRegistry, fake_agent: StartAgent) -> FakeAgent:
    """Return the agent of web-1, which has the app as the file says."""
    running = await fake_agent()
    await registry.post("web-1", labels=["service:web"], kv={"agent.url": running.url})
    running.answers["GET", SHOP] = RECORD
    return running


class AppsFile:
    """The file of apps."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.write(FILE)

    def write(self, text: str) -> None:
        """Replace what it says."""
        self._path.write_text(text)

    def __str__(self) -> str:
        """Return its path."""
        return str(self._path)


@pytest.fixture
def file(tmp_path: Path) -> AppsFile:
    """Return a file that says what is."""
    return AppsFile(tmp_path / "apps.yml")


async def test_what_a_key_may_not_see_is_unknown_and_not_different(
    rollcall: Rollcall, agent: FakeAgent, file: AppsFile
) -> None:
    hidden: dict[str, Any] = {
        **RECORD,
        "env": {"MODE": None, "path": None},
        "command": None,
        "health": {"path": None, "command": None, "retries": 3},
    }
    wanted = FILE.replace("health: {path: /}", "health: {command: [check]}\n    command: [serve]")
    file.write(wanted)
    agent.answers["GET", SHOP] = hidden
    agent.answers["PUT", SHOP] = PLAN
    note = "not compared, as this key may not see it: env, health, command"

    for command in ("diff", "apply"):
        done = await rollcall(command, "-f", str(file), "-o", "json")

        assert done.status == 0, done.err
        (step,) = json.loads(done.out)
        assert (step["step"], step["note"]) == ("none", note)
    assert agent.changes() == []

    # What can be seen to differ does: the name of a variable, or another kind of check.
    file.write(wanted.replace("MODE: live", "NODE: live"))
    differs = await rollcall("diff", "-f", str(file), "-o", "json")
    assert json.loads(differs.out)[0]["changes"] == ["env: MODE, NODE"]
    file.write(FILE)
    differs = await rollcall("diff", "-f", str(file), "-o", "json")
    assert json.loads(differs.out)[0]["changes"][0].startswith("health: ")


async def test_what_is_as_the_file_says_is_left_alone(
    rollcall: Rollcall, agent: FakeAgent, file: AppsFile
) -> None:
    file.write(FILE.replace("64", "64M"))
    for command in ("diff", "apply"):
        done = await rollcall(command, "-f", str(file), "-o", "json")

        assert done.status == 0, done.err
        assert json.loads(done.out)[0]["step"] == "none"
    assert agent.changes() == []


async def test_a_file_of_apps_may_come_from_a_pipe(run: Run, agent: FakeAgent) -> None:
    reported = {}

    for given in ("diff -f -", "apply -f -", "apply -f - --yes"):
        text = FILE.replace("64", "128") if given == "apply -f -" else FILE
        agent.answers["PUT", f"{SHOP}?dry_run=true"] = PLAN
        reported[given] = await run(*given.split(), stdin=text)

    assert [each.returncode for each in reported.values()] == [0, 2, 0]
    assert "no terminal to ask at" in reported["apply -f -"].stderr
    assert all("dry_run=true" in each.path for each in agent.changes())


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ({"healthy": False, "message": "GET / failed"}, "it is unhealthy: GET / failed"),
        ({"state": "exited", "message": None}, "it is exited"),
        ({"crashing": True, "message": None}, "it crashes again and again"),
        ({"state": "missing", "desired": "stopped", "message": "gone"}, "it is missing: gone"),
    ],
)
async def test_an_app_that_is_as_the_file_says_and_not_well_is_reported(
    rollcall: Rollcall,
    agent: FakeAgent,
    file: AppsFile,
    changed: dict[str, object],
    reported: str,
) -> None:
    agent.answers["GET", SHOP] = {**RECORD, **changed}

    assert reported in (await rollcall("diff", "-f", str(file))).out


async def test_what_differs_is_reported_first_and_then_changed_and_no_more(
    rollcall: Rollcall, agent: FakeAgent, file: AppsFile
) -> None:
    file.write(FILE.replace("64", "128").replace("live", "secret").replace("a:b", "c:d"))
    agent.answers["PUT", f"{SHOP}?dry_run=true"] = PLAN
    agent.answers["PUT", SHOP] = RECORD
    for method in ("POST", "DELETE"):
        agent.answers[method, f"{SHOP}/labels?dry_run=true"] = PLAN
        agent.answers[method, f"{SHOP}/labels"] = RECORD

    reported = await rollcall("diff", "-f", str(file))

    assert reported.status == 1
    assert "memory: 64 -> 128" in reported.out
    assert "env: MODE" in reported.out
    assert "secret" not in reported.out
    assert "+label c:d, -label a:b" in reported.out
    assert all("dry_run=true" in each.path for each in agent.changes())
    agent.asked.clear()

    unasked = await rollcall("apply", "-f", str(file))
    assert (unasked.status, "add --yes" in unasked.err) == (2, True)
    assert all("dry_run=true" in each.path for each in agent.changes())
    agent.asked.clear()

    done = await rollcall("apply", "-f", str(file), "--yes")

    assert done.status == 0, done.err
    fields = {"memory": 128, "env": {"MODE": "secret", "path": "/"}}
    changes = [each for each in agent.changes() if "dry_run" not in each.path]
    assert [(each.method, msgspec.json.decode(each.body)) for each in changes] == [
        ("PUT", fields),
        ("POST", {"Value": "c:d"}),
        ("DELETE", {"Value": "a:b"}),
    ]


async def test_values_of_a_difference_are_written_as_in_a_file(
    rollcall: Rollcall, agent: FakeAgent, file: AppsFile
) -> None:
    file.write(FILE.rstrip() + "\n    http_target: 8000\n")
    agent.answers["PUT", f"{SHOP}?dry_run=true"] = PLAN

    reported = await rollcall("diff", "-f", str(file))

    assert "http_target: null -> 8000" in reported.out, reported.err


async def test_an_app_that_is_missing_is_created(
    rollcall: Rollcall, agent: FakeAgent, file: AppsFile
) -> None:
    del agent.answers["GET", SHOP]
    agent.answers["POST", "/v1/apps?dry_run=true"] = PLAN
    agent.answers["POST", f"{SHOP}/labels"] = RECORD

    async def created(_: web.Request) -> web.Response:
        agent.answers["GET", SHOP] = RECORD
        return web.json_response(RECORD)

    agent.answers["POST", "/v1/apps"] = created
    done = await rollcall("apply", "-f", str(file), "--yes")

    assert done.status == 0, done.err
    dry, create, label = agent.changes()
    assert "dry_run=true" in dry.path
    assert msgspec.json.decode(create.body)["name"] == "shop"
    assert msgspec.json.decode(label.body) == {"Value": "a:b"}


async def test_nothing_is_changed_where_a_part_of_it_cannot_be_done(
    rollcall: Rollcall, registry: InProcessRegistry, agent: FakeAgent, file: AppsFile
) -> None:
    url = "http://127.0.0.1:1"
    await registry.post("web-0", labels=["service:web"], kv={"agent.url": url})
    file.write(FILE.replace("64", "128"))
    agent.answers["PUT", f"{SHOP}?dry_run=true"] = PLAN
    agent.answers["PUT", SHOP] = RECORD

    done = await rollcall("apply", "-f", str(file), "--yes")

    assert done.status == 3
    assert "nothing was changed" in done.err
    assert [row[1] for row in done.rows()] == ["error", "update"]
    assert all("dry_run=true" in each.path for each in agent.changes())


@pytest.mark.usefixtures("agent")
async def test_all_mistakes_of_a_file_are_reported_with_their_paths(
    rollcall: Rollcall, file: AppsFile
) -> None:
    file.write(
        "apps:\n"
        "  - 7\n"
        "  - {name: Shop, where: {}, image: [x]}\n"
        "  - {name: shop, image: x, where: {hosts: [], label: [a], kv: [rack]}, labels: a}\n"
    )

    done = await rollcall("apply", "-f", str(file), "--yes")

    assert done.status == 2
    for path in (
        *("apps[0]:", "apps[1].name:", "apps[1].image:", "apps[1].where:", "apps[2].labels:"),
        *("apps[2].where.hosts:", "apps[2].where.label:", "apps[2].where.kv:"),
    ):
        assert path in done.err


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apps: {}", "no list of apps"),
        ("app: []", "no list of apps"),
        ("[", "is no YAML"),
        (FILE.replace("64", "48X"), "apps[0].memory: memory '48X' is none, such as 48M or 1G"),
        (FILE.replace("image:", "imagee:"), "is missing; `imagee` may have been meant as `image`"),
        (FILE.replace("service:web", "service:none"), "no node has the label"),
        (FILE.replace("[a:b]", "[a:b, nocolon]"), "'nocolon': write a key, a colon and a value"),
        (FILE.replace("[a:b]", '["a:b\\n"]'), "apps[0].labels: 'a:b\\n': "),
        (FILE + "    memory: 65\n", "`memory` is set twice"),
        (FILE + FILE.removeprefix("apps:\n"), "apps[0] has shop on web-1, too"),
    ],
)
async def test_a_file_that_means_nothing_changes_nothing(
    rollcall: Rollcall, agent: FakeAgent, file: AppsFile, text: str, said: str
) -> None:
    file.write(text)

    done = await rollcall("apply", "-f", str(file), "--yes")

    assert (done.status, said in done.err) == (2, True), done.err
    assert agent.changes() == []


async def test_a_label_that_the_agent_rejects_changes_nothing(
    rollcall: Rollcall, agent: FakeAgent, file: AppsFile
) -> None:
    file.write(FILE.replace("64", "128").replace("[a:b]", "[a:b, c:d]"))
    agent.answers["PUT", f"{SHOP}?dry_run=true"] = PLAN
    agent.answers["POST", f"{SHOP}/labels?dry_run=true"] = rejection(400, "not here")

    done = await rollcall("apply", "-f", str(file), "--yes")

    assert (done.status, "nothing was changed" in done.err) == (2, True)
    assert all("dry_run=true" in each.path for each in agent.changes())


@pytest.mark.parametrize(
    ("rejected", "status"), [(None, 1), (409, 1), (400, 2), (403, 1), (503, 3), (404, 1)]
)
async def test_a_comparison_ends_with_what_a_script_has_to_know(
    rollcall: Rollcall, agent: FakeAgent, file: AppsFile, rejected: int | None, status: int
) -> None:
    file.write(FILE.replace("64", "128"))
    agent.answers["PUT", f"{SHOP}?dry_run=true"] = (
        PLAN if rejected is None else rejection(rejected, "not here")
    )

    assert (await rollcall("diff", "-f", str(file))).status == status


async def test_a_key_that_may_only_read_compares_and_changes_nothing(
    rollcall: Rollcall, agent: FakeAgent, file: AppsFile
) -> None:
    file.write(FILE.replace("64", "128") + FILE.removeprefix("apps:\n").replace("shop", "new", 1))
    for path in (f"{SHOP}?dry_run=true", "/v1/apps?dry_run=true"):
        agent.answers["PUT", path] = agent.answers["POST", path] = rejection(403, "not here")

    compared = await rollcall("diff", "-f", str(file), "-o", "json")
    applied = await rollcall("apply", "-f", str(file), "--yes")

    steps = json.loads(compared.out)
    assert compared.status == 1, compared.err
    assert [(each["step"], each["changes"], each["note"]) for each in steps] == [
        ("update", ["memory: 64 -> 128"], "not checked by the agent: not here"),
        ("create", [], "not checked by the agent: not here"),
    ]
    assert (applied.status, "nothing was changed" in applied.err) == (3, True)
    assert all("dry_run=true" in each.path for each in agent.changes())


async def test_a_host_that_is_not_reached_outweighs_one_that_differs(
    rollcall: Rollcall, registry: InProcessRegistry, agent: FakeAgent, file: AppsFile
) -> None:
    await registry.post("web-0", labels=["service:web"], kv={"agent.url": "http://127.0.0.1:1"})
    file.write(FILE.replace("64", "128"))
    agent.answers["PUT", f"{SHOP}?dry_run=true"] = PLAN

    assert (await rollcall("diff", "-f", str(file))).status == 3


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("where", ["hosts: [web-9]", "labels: [service:none]", "prefixes: [none]"])
async def test_a_file_that_names_hosts_that_are_not_there_cannot_be_used(
    rollcall: Rollcall, file: AppsFile, where: str
) -> None:
    file.write(FILE.replace("labels: [service:web]", where))

    ran = await rollcall("diff", "-f", str(file))

    assert ran.status == 2
    assert "apps[0].where: " in ran.err


async def test_eight_hosts_are_changed_at_once_and_none_after_a_failure(
    rollcall: Rollcall, registry: InProcessRegistry, file: AppsFile, fake_agent: StartAgent
) -> None:
    changing, most, full = 0, 0, asyncio.Event()
    changed: list[str] = []

    async def change(request: web.Request) -> web.Response:
        nonlocal changing, most
        changing, most = changing + 1, max(most, changing + 1)
        if most == 8:
            full.set()
        await full.wait()
        # A ninth would come meanwhile.
        await asyncio.sleep(0.2)
        changing -= 1
        changed.append(request.host)
        return web.json_response({"message": "not here"}, status=409)

    file.write(FILE.replace("64", "128"))
    agent = await fake_agent()
    agent.answers["GET", SHOP] = RECORD
    agent.answers["PUT", f"{SHOP}?dry_run=true"] = PLAN
    agent.answers["PUT", SHOP] = change
    for number in range(10):
        await registry.post(f"web-{number}", ["service:web"], {"agent.url": agent.url})

    ran = await rollcall("apply", "-f", str(file), "--yes")

    assert (ran.status, most, len(changed)) == (1, 8, 8)
    assert "web-0/shop: not here\n" in ran.err
    assert "0 of 10 steps are done; apply again to go on\n" in ran.err


async def test_the_apps_of_a_host_are_changed_in_the_order_of_the_file(
    rollcall: Rollcall, agent: FakeAgent, file: AppsFile
) -> None:
    names = ("one", "two", "three")
    order: list[str] = []

    async def change(request: web.Request) -> web.Response:
        if "dry_run" in request.query:
            return web.json_response(PLAN)
        order.append(request.path.rpartition("/")[2])
        return web.json_response(RECORD)

    for name in names:
        agent.answers["GET", f"/v1/apps/{name}"] = RECORD | {"name": name}
        agent.answers["PUT", f"/v1/apps/{name}"] = change
    one = FILE.replace("64", "128").removeprefix("apps:\n")
    file.write("apps:\n" + "".join(one.replace("name: shop", f"name: {name}") for name in names))

    ran = await rollcall("apply", "-f", str(file), "--yes")

    assert ran.status == 0, ran.err
    assert order == list(names)


@pytest.mark.usefixtures("agent")
async def test_a_label_in_a_file_that_looks_misspelt_is_a_warning(
    rollcall: Rollcall, file: AppsFile
) -> None:
    file.write(FILE.replace("[a:b]", "[a:b, 'Prometheus:shop']"))

    ran = await rollcall("diff", "-f", str(file))

    assert ran.status == 1
    assert ran.err == (
        "warning: label Prometheus:shop: it is no directive; did you mean prometheus:shop?\n"
    )
