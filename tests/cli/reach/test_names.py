"""A host, a service or a label that the registry does not know is reported, with those alike."""

import re
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, StartAgent
from tests.support.registry.fake_servers import HttpServer
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow


@pytest.fixture
async def nodes(registry: InProcessRegistry) -> None:
    """Let the registry know some nodes, and a service without targets."""
    await registry.post("web-10", ["prometheus:shop:port:none"])
    await registry.post("db-1", ["service:database"])


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(
    "command",
    ["node {}", "forget {} --yes", "apps {}", "apps db-1 {}", "app show {}/shop", "start shop {}"],
)
async def test_a_host_that_is_not_known_is_reported_with_those_alike(
    rollcall: Rollcall, command: str
) -> None:
    mistyped = await rollcall(*command.format("web-010").split())
    other = await rollcall(*command.format("web-9").split())

    assert (mistyped.status, mistyped.out, other.status, other.out) == (1, "", 1, "")
    following = "\n  next: rollcall nodes\n"
    assert mistyped.err == (
        f"rollcall: no node 'web-010' is known; did you mean web-10?{following}"
    )
    assert other.err == f"rollcall: no node 'web-9' is known{following}"


@pytest.mark.parametrize("command", ["apps {}", "nodes web-1 {}", "node {}", "app show {}/x"])
async def test_an_app_in_the_place_of_a_host_is_reported_as_one_with_its_hosts(
    rollcall: Rollcall, registry: InProcessRegistry, command: str
) -> None:
    for host in ("web-1", "web-2"):
        await registry.post(host, ["app:shop"])
    await registry.post("shops", ["app:blog"])

    ran = await rollcall(*command.format("shop").split())

    assert (ran.status, ran.out) == (1, "")
    assert ran.err == (
        "rollcall: no node 'shop' is known; it is an app on web-1, web-2\n"
        "  next: rollcall app show web-1/shop\n"
    )


@pytest.mark.usefixtures("nodes")
async def test_a_host_that_does_not_pass_the_filters_is_reported_so(rollcall: Rollcall) -> None:
    ran = await rollcall("apps", "web-10", "--label", "service:database")

    assert ran.status == 1
    assert ran.err == (
        "rollcall: no node 'web-10' is known, or it does not pass the filters\n"
        "  next: rollcall node web-10\n"
    )


@pytest.mark.usefixtures("nodes")
async def test_a_service_that_no_node_offers_is_reported_with_those_alike(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    following = "\n  next: rollcall services\n"
    # The registry lists it, since it was asked for.
    await registry.get("/prometheus/shpo?format=http_sd")
    assert {each["service"] for each in await registry.get("/services")} == {"shop", "shpo"}

    ran = await rollcall("targets", "shpo")

    assert (ran.status, ran.out) == (1, "")
    assert ran.err == f"rollcall: no node offers the service 'shpo'; did you mean shop?{following}"
    for form, printed in (("json", "[]\n"), ("name", "")):
        again = await rollcall("targets", "zzz", "-o", form)
        assert (again.status, again.out) == (1, printed)
        assert again.err == f"rollcall: no node offers the service 'zzz'{following}"


@pytest.mark.usefixtures("nodes")
async def test_a_service_without_targets_is_no_error(rollcall: Rollcall) -> None:
    ran = await rollcall("targets", "shop")

    assert ran.status == 0
    assert ran.err.startswith(
        "shop has no targets; `rollcall node HOST` says why\n  next: rollcall services\n"
    )


async def test_a_name_that_would_be_an_option_is_not_printed_alone(
    rollcall: Rollcall, registry: InProcessRegistry, fake_agent: StartAgent
) -> None:
    agent = await fake_agent()
    agent.answers["GET", "/v1/apps"] = [APP_RECORD]
    for hostname in ("--all", "web-1"):
        await registry.post(hostname, kv={"agent.url": agent.url})

    for command, printed in (
        ("nodes -o name", "web-1\n"),
        ("apps -o name", "web-1/shop\n"),
        ("node -o name -- --all", ""),
    ):
        ran = await rollcall(*command.split())

        assert (ran.status, ran.out) == (0, printed), ran.err
        assert "left out, since a command would take it for an option: --all" in ran.err


@pytest.fixture
async def labelled(registry: InProcessRegistry) -> None:
    """Let the registry know some nodes."""
    await registry.post("web-1", ["service:web", "rack:r1", "odd:$(id)"])
    await registry.post("db-1", ["service:database", "rack:r2", "legacy"])


@pytest.mark.usefixtures("labelled")
@pytest.mark.parametrize("command", ["nodes", "apps"])
@pytest.mark.parametrize(
    ("typed", "reported", "following"),
    [
        ("service:wbe", "; did you mean service:web?", "rollcall nodes --label service:web"),
        ("servcie:web", "; did you mean service:web?", "rollcall nodes --label service:web"),
        ("lgacy", "; did you mean legacy?", "rollcall nodes --label legacy"),
        (
            "service=web",
            ": it is KEY:VALUE; did you mean service:web?",
            "rollcall nodes --label service:web",
        ),
        ("service=wbe", "; did you mean service:web?", "rollcall nodes --label service:web"),
        (
            "service:mail",
            "; this key has labels such as service:database, service:web",
            "rollcall nodes",
        ),
        ("nothing:alike", "", "rollcall nodes"),
        # A shell would run it.
        ("odd:$(di)", "", "rollcall nodes"),
    ],
)
async def test_a_label_that_no_node_has_is_reported_with_those_alike(
    rollcall: Rollcall, command: str, typed: str, reported: str, following: str
) -> None:
    ran = await rollcall(command, "--label", typed)

    assert (ran.status, ran.out) == (0, "")
    said = f"no node has the label {typed!a}{reported}\n  next: {following}\n"
    assert ran.err == said

    for form, printed in (("json", "[]\n"), ("yaml", "[]\n"), ("name", "")):
        again = await rollcall(command, "--label", typed, "-o", form)
        assert (again.status, again.out, again.err) == (0, printed, said)


@pytest.mark.usefixtures("labelled")
@pytest.mark.parametrize("command", ["nodes", "apps"])
async def test_a_host_that_is_named_beside_an_unknown_label_is_an_error(
    rollcall: Rollcall, command: str
) -> None:
    ran = await rollcall(command, "web-1", "--label", "service:wbe", "-o", "json")

    assert (ran.status, ran.out) == (1, "[]\n")
    assert ran.err.startswith("rollcall: no node has the label 'service:wbe'; did you mean")


async def test_a_few_of_many_labels_with_the_key_are_named(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    await registry.post("web-1", [f"shard:{number}" for number in range(100, 140)])

    ran = await rollcall("nodes", "--label", "shard:other")

    named = ", ".join(f"shard:{number}" for number in range(100, 105))
    assert f"; this key has labels such as {named}, and 35 more\n" in ran.err


@pytest.mark.usefixtures("labelled")
async def test_no_node_with_two_labels_that_exist_is_no_error(rollcall: Rollcall) -> None:
    for filters in (("-l", "service:web", "-l", "rack:r2"), ("-l", "service:web", "--stale")):
        ran = await rollcall("nodes", *filters, "-o", "json")
        assert ran.json() == []


@pytest.mark.usefixtures("labelled")
async def test_a_file_of_apps_shows_where_the_label_is(rollcall: Rollcall, tmp_path: Path) -> None:
    file = tmp_path / "apps.yml"
    file.write_text(
        "apps: [{name: shop, image: 'shop:1', where: {labels: ['service:wbe']}}]",
    )

    ran = await rollcall("diff", "-f", str(file))

    assert ran.status == 2
    assert "apps[0].where: no node has the label 'service:wbe'; did you mean" in ran.err


async def test_a_guess_asks_for_a_bounded_number_of_nodes(
    rollcall: Rollcall, http_server: HttpServer
) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.query_string)
        return web.json_response([])

    rollcall.use(registry=await http_server(answer), allow_plain=["127.0.0.1"])
    rollcall.environment |= {"ROLLCALL_KEY": "a-key-of-the-operator"}
    ran = await rollcall("apps", "--label", "service=wbe")

    assert ran.status == 0
    assert asked[0] == "label=service%3Dwbe"
    assert len(asked) == 7
    assert all(re.search(r"limit=(1|500)$", each) for each in asked[1:])
