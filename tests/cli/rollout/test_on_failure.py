"""`--on-failure rollback` and `--soak`: an app that is not well after its change."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from tests.support.cli.fake_app import PATH
from tests.support.cli.fleet_of_three import Fleet

pytestmark = pytest.mark.slow

UPDATE = ("update", "shop", "web-0", "--set", "image=shop:2", "--check-time", "0s", "-o", "json")
UNHEALTHY = {"healthy": False, "message": "GET / answered 500"}


def after_update(fleet: Fleet, *looks: Callable[[], web.Response]) -> None:
    """Let the app of web-0 look so, one after the other, once it was updated; then as it is."""
    app, left = fleet.apps[0], list(looks)

    async def show(_: web.Request) -> web.Response:
        if app.record["revision"] == 4 and left:
            return left.pop(0)()
        return web.json_response(app.record)

    async def roll_back(request: web.Request) -> web.Response:
        assert await request.json() == {"revision": 3}
        app.record |= {"image": "shop:1", "revision": 5, "healthy": None, "message": None}
        return web.json_response(app.record)

    fleet.agents[0].answers["GET", PATH] = show
    fleet.agents[0].answers["PUT", f"{PATH}/rollback"] = roll_back


def look(fleet: Fleet, **fields: Any) -> Callable[[], web.Response]:
    return lambda: web.json_response(fleet.apps[0].record | fields)


def away() -> web.Response:
    return web.json_response({"message": "the engine is away"}, status=503)


async def test_an_app_that_fails_the_check_is_rolled_back(fleet: Fleet) -> None:
    after_update(fleet, *[look(fleet, **UNHEALTHY)] * 2)

    ran = await fleet.run(*UPDATE, "--on-failure", "rollback")

    (row,) = json.loads(ran.stdout)
    assert ran.returncode == 1
    assert row["message"].startswith("rolled back to revision 3; after 0 s: it is unhealthy")
    assert (row["changed"], row["image"], row["revision"]) == (False, "shop:1", 5)
    assert fleet.changes == [2, 0, 0]


async def test_without_the_option_it_is_kept(fleet: Fleet) -> None:
    after_update(fleet, *[look(fleet, **UNHEALTHY)] * 2)

    ran = await fleet.run(*UPDATE)

    (row,) = json.loads(ran.stdout)
    assert (ran.returncode, row["changed"], row["revision"]) == (1, True, 4)


async def test_an_app_that_is_unhealthy_while_it_soaks_is_rolled_back(fleet: Fleet) -> None:
    well = look(fleet)
    after_update(fleet, well, well, look(fleet, **UNHEALTHY))

    ran = await fleet.run(*UPDATE, "--soak", "60s", "--on-failure", "rollback")

    (row,) = json.loads(ran.stdout)
    assert ran.returncode == 1
    assert row["message"].startswith("rolled back to revision 3; ")
    assert "s after the check: it is unhealthy: GET / answered 500" in row["message"]


async def test_an_app_that_stays_well_and_an_agent_that_is_away_for_a_moment_are_done(
    fleet: Fleet,
) -> None:
    after_update(fleet, look(fleet), away, look(fleet))

    ran = await fleet.run(*UPDATE, "--soak", "2s", "--on-failure", "rollback")

    assert ran.returncode == 0, ran.stdout
    assert fleet.changes == [1, 0, 0]


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        (
            lambda fleet: [look(fleet, **UNHEALTHY), look(fleet, **UNHEALTHY, revision=9)],
            "not rolled back, since revision 9 is not that of this rollout; ",
        ),
        (
            lambda fleet: [look(fleet, **UNHEALTHY), away],
            "unknown, and not rolled back: the engine is away; ",
        ),
    ],
)
async def test_what_another_has_changed_or_nobody_sees_is_not_touched(
    fleet: Fleet, looks: Callable[[Fleet], list[Any]], said: str
) -> None:
    after_update(fleet, *looks(fleet))

    ran = await fleet.run(*UPDATE, "--on-failure", "rollback")

    (row,) = json.loads(ran.stdout)
    assert (ran.returncode, fleet.changes) == (1, [1, 0, 0])
    assert row["message"].startswith(said)
