"""`apps` and `app`: what is asked of agents, and what is reported their answers."""

import time
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from aiohttp import web

from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, FakeAgent, rejection
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow

PLAN = {
    "app": APP_RECORD,
    "replaces_container": True,
    "seconds_without_service": 11,
    "message": "shop:1 would be pulled",
}
SHOP = "/v1/apps/shop"


async def test_hosts_without_an_agent_are_rows_only_where_they_are_named(
    rollcall: Rollcall, registry: InProcessRegistry, agent: FakeAgent
) -> None:
    agent.answers["GET", "/v1/apps"] = [APP_RECORD]
    await registry.post("switch-1", kv={})

    everywhere = await rollcall("apps", "-o", "name")
    named = await rollcall("apps", "switch-1", "web-1")

    assert (everywhere.status, everywhere.out) == (0, "web-1/shop\n")
    assert named.status == 1
    assert named.rows()[0][:2] == ["switch-1/", "error"]
    assert "it reports no agent" in named.out
    assert named.rows()[1][:2] == ["web-1/shop", "running"]

    names = await rollcall("apps", "switch-1", "web-1", "-o", "name")
    assert (names.status, names.out) == (1, "web-1/shop\n")
    assert names.err.startswith("switch-1: ")


async def test_each_row_has_the_same_keys_for_programs(
    rollcall: Rollcall, registry: InProcessRegistry, agent: FakeAgent
) -> None:
    agent.answers["GET", "/v1/apps"] = [APP_RECORD, APP_RECORD | {"name": "blog", "more": 1}]
    await registry.post("switch-1", kv={})

    ran = await rollcall("apps", "switch-1", "web-1", "-o", "json")

    silent, *found = msgspec.json.decode(ran.out)
    assert ran.status == 1
    assert {tuple(each) for each in found} == {tuple(silent)}
    assert {"error": None, "app": "web-1/shop", "more": None}.items() <= found[0].items()
    assert (silent.pop("app"), silent.pop("host")) == ("switch-1/", "switch-1")
    assert "it reports no agent" in silent.pop("error")
    assert set(silent.values()) == {None}

    alone = msgspec.json.decode((await rollcall("apps", "switch-1", "-o", "json")).out)
    assert {"name", "image", "state", "healthy"} <= alone[0].keys()


async def test_an_app_that_crashes_in_a_loop_is_shown_so_while_it_runs(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    ends = {"crashing": True, "restarts": 4, "exit_code": 3, "finished_at": "2026-01-31T12:00:00Z"}
    agent.answers["GET", "/v1/apps"] = [APP_RECORD | ends]

    assert (await rollcall("apps")).rows()[0][:2] == ["web-1/shop", "crashing"]

    (item,) = msgspec.json.decode((await rollcall("apps", "-o", "json")).out)
    assert {"state": "running", **ends}.items() <= item.items()


async def test_a_log_is_read_since_some_time_ago_by_the_clock_of_its_host(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    async def log(_: web.Request) -> web.Response:
        return web.Response(text="")

    async def record(_: web.Request) -> web.Response:
        ahead = formatdate(time.time() + 7200, usegmt=True)
        return web.json_response(APP_RECORD, headers={"Date": ahead})

    agent.answers["GET", f"{SHOP}/logs"] = log
    agent.answers["GET", SHOP] = record
    before = time.time() + 7200

    ran = await rollcall("app", "logs", "web-1/shop", "--since", "10m")

    since = float(parse_qs(urlsplit(agent.asked[-1].path).query)["since"][0])
    assert before - 602 <= since <= time.time() + 7200 - 598
    assert ran.err == "the container of web-1/shop has written nothing in the last 10m\n"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("app", "show", "web-2/shop"), 3),
        (("app", "delete", "web-2/shop", "--yes"), 3),
        (("update", "shop", "--set", "memory=101", "--all"), 3),
        (("apps", "web-2"), 1),
    ],
)
async def test_a_registry_in_place_of_an_agent_is_named_and_nothing_is_changed(
    rollcall: Rollcall,
    registry: InProcessRegistry,
    agent: FakeAgent,
    command: tuple[str, ...],
    status: int,
) -> None:
    agent.answers["GET", SHOP] = APP_RECORD
    url = f"http://{registry.address[0]}:{registry.address[1]}"
    for hostname, agent_url in (("web-1", agent.url), ("web-2", url)):
        await registry.post(hostname, ["app:shop"], kv={"agent.url": agent_url})

    ran = await rollcall(*command)

    assert (ran.status, agent.changes()) == (status, [])
    assert "a registry answers there, not an agent" in ran.out + ran.err


@pytest.mark.parametrize(
    ("status", "message", "ended"),
    [
        (400, "`cpu` is 9999999", 2),
        (403, "the image `x` is not allowed; `apps.allowed_images` of this agent allows y", 1),
        (403, "port 1 is none of 20000-29999 (`apps.ports`)", 1),
        (403, "the key `ops` allows read, which is not enough", 3),
    ],
)
async def test_only_what_another_key_may_do_is_reported_as_a_matter_of_the_key(
    rollcall: Rollcall, agent: FakeAgent, status: int, message: str, ended: int
) -> None:
    agent.answers["POST", "/v1/apps"] = rejection(status, message)

    ran = await rollcall("app", "create", "web-1/shop", "--image", "x")

    assert (ran.status, message in ran.err) == (ended, True), ran.err
    assert ("--agent-secret-file" in ran.err) == (ended == 3)


@pytest.mark.parametrize(
    "command", [("logs",), ("show",), ("create", "--image", "shop:1"), ("delete", "--yes")]
)
async def test_an_app_on_a_host_without_an_agent_leads_to_the_host(
    rollcall: Rollcall, registry: InProcessRegistry, command: tuple[str, ...]
) -> None:
    await registry.post("switch-1")
    action, *options = command

    ran = await rollcall("--context", "test", "app", action, "SWITCH-1/shop", *options)

    assert (ran.status, ran.out) == (3, "")
    assert ran.err == (
        "rollcall: switch-1 has no agent: its kv has no agent.url\n"
        "  next: rollcall --context test node switch-1\n"
    )


async def test_an_agent_that_does_not_permit_it_is_reported_with_how_to_give_its_key(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    agent.answers["GET", SHOP] = rejection(403, "this key may only read")

    ran = await rollcall("app", "show", "web-1/shop")

    assert ran.status == 3
    assert "the agent: " in ran.err
    assert "advice: use a key of the agent that may do this: rollcall context set" in ran.err


@pytest.mark.parametrize("is_own_file", [False, True])
async def test_an_agent_that_does_not_know_the_key_is_reported_with_the_option_for_keys_of_agents(
    rollcall: Rollcall,
    registry: InProcessRegistry,
    agent: FakeAgent,
    tmp_path: Path,
    *,
    is_own_file: bool,
) -> None:
    message = "a valid key is needed: send the header `Authorization: Bearer KEY`"
    agent.answers["GET", "/v1/apps"] = agent.answers["GET", SHOP] = rejection(401, message)
    key = tmp_path / "web-1.ops"
    key.touch(mode=0o600)
    key.write_text("k" * 40)
    own = str(tmp_path / "{hostname}.ops")
    rollcall.use(
        registry=f"http://127.0.0.1:{registry.address[1]}",
        key_file=str(tmp_path / "ops.key"),
        **({"agent_key_file": own} if is_own_file else {"agent_key": "same"}),
    )

    listed = await rollcall("--context", "test", "apps", "-o", "json")
    shown = await rollcall("--context", "test", "app", "show", "web-1/shop")

    reason = f"the agent does not know the key in {key if is_own_file else tmp_path / 'ops.key'}"
    option = "--agent-key-file" if is_own_file else "--agent-secret-file"
    step = f"rollcall --context test context set {option} FILE"
    assert listed.status == 1
    (row,) = msgspec.json.decode(listed.out)
    assert row["error"] == f"{reason}; set it: {step}"
    assert (shown.status, shown.err) == (3, f"rollcall: {reason}\n  next: {step}\n")


async def test_a_change_that_fails_for_want_of_the_engine_names_doctor(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    away = rejection(503, "the engine cannot be reached")
    agent.answers["POST", "/v1/apps"] = agent.answers["GET", SHOP] = away

    ran = await rollcall("app", "create", "web-1/shop", "--image", "shop:1")

    said = "rollcall: the engine cannot be reached\n  next: rollcall doctor\n"
    assert (ran.status, ran.err) == (1, said)


@pytest.mark.parametrize(
    ("command", "method", "path", "body"),
    [
        (["create", "--image", "shop:1"], "POST", "/v1/apps", {"image": "shop:1", "name": "shop"}),
        (["update", "--memory", "64"], "PUT", SHOP, {"memory": 64}),
        (
            ["create", "--image", "shop:1", "--memory", "1G", "--env", "A=1"],
            "POST",
            "/v1/apps",
            {"image": "shop:1", "memory": 1024, "env": {"A": "1"}, "name": "shop"},
        ),
        (
            ["update", "--env", "A=1", "--unset-env", "B"],
            "PUT",
            SHOP,
            {"env_set": {"A": "1"}, "env_unset": ["B"]},
        ),
        (["start"], "PUT", f"{SHOP}/start", None),
        (["stop"], "PUT", f"{SHOP}/stop", None),
        (["restart"], "PUT", f"{SHOP}/restart", None),
        (["rebuild"], "PUT", f"{SHOP}/rebuild", None),
        (["rollback"], "PUT", f"{SHOP}/rollback", None),
        (["rollback", "--revision", "3"], "PUT", f"{SHOP}/rollback", {"revision": 3}),
        (["delete"], "DELETE", SHOP, None),
        (["label", "a:b"], "POST", f"{SHOP}/labels", {"Value": "a:b"}),
        (["label", "a:b", "--remove"], "DELETE", f"{SHOP}/labels", {"Value": "a:b"}),
    ],
)
async def test_a_dry_run_asks_for_a_dry_run_and_for_nothing_else(
    rollcall: Rollcall, agent: FakeAgent, command: list[str], method: str, path: str, body: Any
) -> None:
    agent.answers[method, path] = PLAN
    action, *options = command

    ran = await rollcall("app", action, "web-1/shop", *options, "--dry-run")

    assert ran.out.splitlines() == [
        "web-1/shop: nothing was changed; the change would",
        "  replace the container",
        "  interrupt it for at most 11 s",
        "  note: shop:1 would be pulled",
    ]
    (asked,) = agent.asked
    assert (asked.method, asked.path) == (method, f"{path}?dry_run=true")
    assert (msgspec.json.decode(asked.body) if asked.body else None) == body
    assert (
        await rollcall("app", action, "web-1/shop", *options, "--dry-run", "-o", "json")
    ).json() == PLAN


@pytest.mark.parametrize(
    ("plan", "reported"),
    [
        ({"app": None}, "remove the container"),
        ({"app": {"container_id": None}}, "make a container"),
        ({"app": {"container_id": "5b25"}}, "keep the container"),
    ],
)
async def test_a_dry_run_shows_what_would_become_of_the_container(
    rollcall: Rollcall, agent: FakeAgent, plan: dict[str, Any], reported: str
) -> None:
    agent.answers["PUT", f"{SHOP}/start"] = {**PLAN, "replaces_container": False, **plan}

    ran = await rollcall("app", "start", "web-1/shop", "--dry-run")

    assert ran.out.splitlines()[1] == f"  {reported}"


async def test_a_stop_is_no_short_interruption(rollcall: Rollcall, agent: FakeAgent) -> None:
    agent.answers["PUT", f"{SHOP}/stop"] = {**PLAN, "seconds_without_service": None}
    agent.answers["DELETE", SHOP] = {**PLAN, "seconds_without_service": None, "app": None}

    stopped = await rollcall("app", "stop", "web-1/shop", "--dry-run")
    deleted = await rollcall("app", "delete", "web-1/shop", "--dry-run")

    assert stopped.out.splitlines()[2] == "  leave the app down until it is started"
    assert deleted.out.splitlines()[2] == "  leave the app down"


async def test_a_change_that_failed_is_reported_with_what_runs_now(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    said = "app `shop` does not stay up: it ended with exit code 7; it wrote:\nbad settings"
    reject = rejection(409, said)
    agent.answers["PUT", SHOP] = reject
    agent.answers["GET", SHOP] = APP_RECORD | {"revision": 2}
    update = ("app", "update", "web-1/shop", "--image", "shop:2")

    ran = await rollcall("--context", "test", *update)

    reason = "app `shop` does not stay up: it ended with exit code 7"
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.splitlines() == [
        f"rollcall: {reason}; now web-1/shop runs (shop:1, revision 2); it wrote:",
        "  | bad settings",
        "  next: rollcall --context test app events web-1/shop",
        "  next: rollcall --context test app logs web-1/shop",
    ]
    assert [each.method for each in agent.asked] == ["GET", "PUT", "GET"]

    agent.answers["GET", SHOP] = APP_RECORD | {"state": "stopped"}
    assert "; now web-1/shop is stopped (shop:1); it wrote:" in (await rollcall(*update)).err

    # The first error is reported where the record cannot be had.
    agent.answers["GET", SHOP] = reject
    assert (await rollcall(*update)).err.startswith(f"rollcall: {reason}; it wrote:\n")


async def test_an_app_that_exists_is_changed_by_an_update(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    said = "there is an app `shop` already; choose another name"
    agent.answers["POST", "/v1/apps"] = rejection(409, said)
    agent.answers["GET", SHOP] = APP_RECORD

    ran = await rollcall("app", "create", "web-1/shop", "--image", "shop:2")

    assert "; now web-1/shop runs (shop:1)\n" in ran.err
    assert ran.err.endswith("  next: rollcall app update --help\n")


async def test_an_app_whose_creation_goes_on_after_an_error_is_no_other_app(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    agent.answers["POST", "/v1/apps"] = rejection(503, "the engine does not answer")
    agent.answers["GET", SHOP] = APP_RECORD | {"state": "creating"}

    ran = await rollcall("app", "create", "web-1/shop", "--image", "shop:2")

    assert ran.err == (
        "rollcall: the engine does not answer; now web-1/shop is creating (shop:1)\n"
        "  next: rollcall app events web-1/shop\n"
        "  next: rollcall app logs web-1/shop\n"
    )


async def test_an_image_that_cannot_be_had_names_no_other_app(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    agent.answers["POST", "/v1/apps"] = rejection(404, "the image `x` cannot be had")
    agent.answers["GET", "/v1/apps"] = [APP_RECORD | {"name": "shop2"}]

    ran = await rollcall("app", "create", "web-1/shop", "--image", "x")

    assert ran.err.startswith("rollcall: the image `x` cannot be had\n")


async def test_the_fields_of_another_app_are_rejected(
    rollcall: Rollcall, agent: FakeAgent, tmp_path: Path
) -> None:
    for method, path in (("POST", "/v1/apps"), ("PUT", SHOP), ("GET", SHOP)):
        agent.answers[method, path] = APP_RECORD
    file = tmp_path / "shop.yml"
    file.write_text("name: other\nimage: shop:1\n")

    for action in ("create", "update"):
        rejected = await rollcall("app", action, "web-1/shop", "-f", str(file))
        assert rejected.status == 2
        assert "'other'" in rejected.err
    assert agent.asked == []

    file.write_text("name: shop\nimage: shop:1\n")
    for action in ("create", "update"):
        assert (await rollcall("app", action, "web-1/shop", "-f", str(file))).status == 0
    assert [msgspec.json.decode(each.body) for each in agent.changes()] == [
        {"name": "shop", "image": "shop:1"},
        {"image": "shop:1"},
    ]


async def test_an_app_is_not_deleted_where_nobody_can_be_asked(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    agent.answers["DELETE", SHOP] = {"message": "app `shop` is deleted"}

    rejected = await rollcall("app", "delete", "web-1/shop")
    assert rejected.status == 2
    assert "--yes" in rejected.err
    assert agent.asked == []

    done = await rollcall("app", "delete", "web-1/shop", "--yes", "--keep-data")
    assert done.out == "web-1/shop: app `shop` is deleted\n"
    assert agent.asked[0].path == f"{SHOP}?keep_data=true"


async def test_people_read_times_to_a_second(rollcall: Rollcall, agent: FakeAgent) -> None:
    event = {"id": "1", "action": "start", "outcome": "ok", "exit_code": None}
    agent.answers["GET", f"{SHOP}/events"] = [event | {"time": "2026-11-26T21:53:08.123Z"}]
    started = {"started_at": "2026-11-26T21:53:08.123456789Z"}
    agent.answers["GET", SHOP] = APP_RECORD | started

    events, record = ("app", "events", "web-1/shop"), ("app", "show", "web-1/shop")

    assert "EXIT CODE" in (await rollcall(*events)).out
    assert (await rollcall(*events)).rows()[0][0] == "2026-11-26T21:53:08Z"
    assert (await rollcall(*events, "-o", "json")).json()[0]["time"].endswith(".123Z")
    assert "started_at: '2026-11-26T21:53:08Z'" in (await rollcall(*record)).out
    assert (await rollcall(*record, "-o", "json")).json()["started_at"] == started["started_at"]


@pytest.mark.parametrize("command", [("show",), ("stats",), ("update", "--memory", "64")])
async def test_the_name_of_one_app_is_its_host_and_its_name(
    rollcall: Rollcall, agent: FakeAgent, command: tuple[str, ...]
) -> None:
    agent.answers["GET", SHOP] = agent.answers["PUT", SHOP] = APP_RECORD
    agent.answers["GET", f"{SHOP}/stats"] = {"cpu_percent": 1.5}
    action, *options = command

    ran = await rollcall("app", action, "web-1/shop", *options, "-o", "name")

    assert (ran.status, ran.out) == (0, "web-1/shop\n")


async def test_an_unknown_app_leads_to_the_list(rollcall: Rollcall, agent: FakeAgent) -> None:
    ran = await rollcall("app", "show", "web-1/shop")

    assert [each.path for each in agent.asked] == [SHOP, "/v1/apps"]
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == "rollcall: there is no such app\n  next: rollcall apps\n"


@pytest.mark.parametrize("command", ["show", "logs", "stop"])
async def test_an_app_that_is_mistyped_is_named(
    rollcall: Rollcall, agent: FakeAgent, command: str
) -> None:
    agent.answers["GET", "/v1/apps"] = [APP_RECORD, APP_RECORD | {"name": "blog"}]

    ran = await rollcall("app", command, "web-1/shp")

    reported = "there is no app web-1/shp; did you mean web-1/shop?"
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == f"rollcall: {reported}\n  next: rollcall app show web-1/shop\n"


async def test_what_an_app_has_not_is_reported_without_another_name(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    agent.answers["GET", "/v1/apps"] = [APP_RECORD, APP_RECORD | {"name": "shop2"}]

    ran = await rollcall("app", "rollback", "web-1/shop", "--revision", "9")

    assert ran.err.startswith("rollcall: there is no such app\n")


@pytest.mark.parametrize(
    ("command", "path"), [("show", SHOP), ("logs", f"{SHOP}/logs"), ("history", f"{SHOP}/history")]
)
async def test_what_an_agent_says_of_its_api_is_reported_as_a_command(
    rollcall: Rollcall, agent: FakeAgent, command: str, path: str
) -> None:
    said = "there is no app `shop`; GET /v1/apps lists those that are"
    agent.answers["GET", path] = rejection(404, said)

    ran = await rollcall("app", command, "web-1/shop")

    reported = "there is no app `shop`; `rollcall apps web-1` lists those that are"
    assert (ran.status, ran.err) == (1, f"rollcall: {reported}\n  next: rollcall apps\n")


async def test_a_table_of_changes_has_the_id_of_an_image_only_where_it_shows_something(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    common = {"created_at": "2026-01-31", "by": "ops", "image": "shop:1", "image_id": "sha256:1"}
    agent.answers["GET", f"{SHOP}/history"] = revisions = [
        {"revision": 3, "operation": "rebuild", "changed": ["image_id"], **common},
        {"revision": 2, "operation": "update", "changed": ["image", "cpu", "image_id"], **common},
        {"revision": 1, "operation": "create", "changed": None, **common},
    ]

    ran = await rollcall("app", "history", "web-1/shop")
    wide = await rollcall("app", "history", "web-1/shop", "-o", "wide")

    assert [row[4:-1] for row in ran.rows()] == [["image_id"], ["image,", "cpu"], ["-"]]
    assert "image, cpu, image_id" in wide.out
    assert (await rollcall("app", "history", "web-1/shop", "-o", "json")).json() == revisions


@pytest.mark.parametrize(
    ("after", "reported", "changed"),
    [
        ({"env": {"A": "1"}, "revision": 2}, "changed env", ["env"]),
        (
            {"env": {"A": "1"}, "cpu": 50, "image_id": "new"},
            "changed cpu, env, image_id",
            ["cpu", "env", "image_id"],
        ),
        ({}, "nothing changed", []),
    ],
)
async def test_an_update_shows_which_fields_it_has_changed(
    rollcall: Rollcall, agent: FakeAgent, after: dict[str, Any], reported: str, changed: list[str]
) -> None:
    before = APP_RECORD | {"env": {"A": "0"}, "cpu": 25, "image_id": "old", "revision": 1}
    agent.answers["GET", SHOP] = before
    agent.answers["PUT", SHOP] = before | after
    update = ("app", "update", "web-1/shop", "--env", "A=1", "--cpu", "50", "--no-wait")

    ran = await rollcall(*update)

    assert ran.out == f"web-1/shop: {reported}, running, http port 20080, ssh port 20022\n"
    assert (await rollcall(*update, "-o", "json")).json()["changed"] == changed


@pytest.mark.parametrize(
    ("changed", "lines"),
    [(["memory", "env"], ["change memory, env"]), ([], ["change no field"]), (None, [])],
)
async def test_a_dry_run_names_the_fields_that_change(
    rollcall: Rollcall, agent: FakeAgent, changed: list[str] | None, lines: list[str]
) -> None:
    agent.answers["PUT", SHOP] = PLAN | {"changed": changed}

    ran = await rollcall("app", "update", "web-1/shop", "--cpu", "50", "--dry-run")

    assert [line.strip() for line in ran.out.splitlines() if "  change" in line] == lines


async def test_a_dry_run_on_many_hosts_names_the_fields_that_change(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    agent.answers["GET", SHOP] = APP_RECORD
    agent.answers["PUT", SHOP] = PLAN | {"changed": ["image", "env"]}

    ran = await rollcall("update", "shop", "web-1", "--image", "shop:2", "--dry-run")

    assert "image, env" in ran.out


async def test_a_label_that_looks_misspelt_is_added_with_a_warning(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    agent.answers["POST", f"{SHOP}/labels"] = agent.answers["DELETE", f"{SHOP}/labels"] = APP_RECORD
    label = "prometheus:shop:prot:9100"

    added = await rollcall("app", "label", "web-1/shop", label)
    removed = await rollcall("app", "label", "web-1/shop", label, "--remove")
    right = await rollcall("app", "label", "web-1/shop", "prometheus:shop")

    reported = f"warning: label {label}: did you mean prometheus:shop:port:9100?\n"
    assert (added.status, added.err) == (0, reported)
    assert (removed.err, right.err) == ("", "")
