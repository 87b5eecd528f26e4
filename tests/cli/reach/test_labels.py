"""A label that no node has is told, with those that may have been meant."""

import re
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.cli.command import Rollcall
from tests.support.registry.fake_servers import HttpServer
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow


@pytest.fixture
async def nodes(registry: InProcessRegistry) -> None:
    """Let the registry know some nodes."""
    await registry.post("web-1", ["service:web", "rack:r1", "odd:$(id)"])
    await registry.post("db-1", ["service:database", "rack:r2", "legacy"])


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("command", ["nodes", "apps"])
@pytest.mark.parametrize(
    ("typed", "told", "following"),
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
async def test_a_label_that_no_node_has_is_told_with_those_alike(
    rollcall: Rollcall, command: str, typed: str, told: str, following: str
) -> None:
    ran = await rollcall(command, "--label", typed)

    assert (ran.status, ran.out) == (0, "")
    said = f"no node has the label {typed!a}{told}\n  next: {following}\n"
    assert ran.err == said

    for form, printed in (("json", "[]\n"), ("yaml", "[]\n"), ("name", "")):
        again = await rollcall(command, "--label", typed, "-o", form)
        assert (again.status, again.out, again.err) == (0, printed, said)


@pytest.mark.usefixtures("nodes")
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


@pytest.mark.usefixtures("nodes")
async def test_no_node_with_two_labels_that_exist_is_no_error(rollcall: Rollcall) -> None:
    for filters in (("-l", "service:web", "-l", "rack:r2"), ("-l", "service:web", "--stale")):
        ran = await rollcall("nodes", *filters, "-o", "json")
        assert ran.json() == []


@pytest.mark.usefixtures("nodes")
async def test_a_file_of_apps_tells_where_the_label_is(rollcall: Rollcall, tmp_path: Path) -> None:
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
