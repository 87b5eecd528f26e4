"""A host or a service that the registry does not know is told, with those alike."""

import pytest

from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, StartAgent
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
async def test_a_host_that_is_not_known_is_told_with_those_alike(
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
async def test_an_app_in_the_place_of_a_host_is_told_as_one_with_its_hosts(
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
async def test_a_host_that_does_not_pass_the_filters_is_told_so(rollcall: Rollcall) -> None:
    ran = await rollcall("apps", "web-10", "--label", "service:database")

    assert ran.status == 1
    assert ran.err == (
        "rollcall: no node 'web-10' is known, or it does not pass the filters\n"
        "  next: rollcall node web-10\n"
    )


@pytest.mark.usefixtures("nodes")
async def test_a_service_that_no_node_offers_is_told_with_those_alike(
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
