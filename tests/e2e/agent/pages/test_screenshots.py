"""The picture of the agent's page in docs/, which `make screenshots` makes anew."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from playwright.sync_api import Route, expect

from tests.support.browser.agent_page import log_in
from tests.support.browser.tabs import Tabs
from tests.support.daemons import Daemons

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = [
    pytest.mark.real("chromium-headless-shell"),
    pytest.mark.release("makes pictures for the docs"),
]
STEPS = 60
MIB = 2**20
MAX_BYTES = 150 * 1024
# No image of anybody has this name, whichever engine it is.
REPOSITORY, TAG = "registry.example.com/shop", "1.4"
LINES = "\n".join(f"GET /cart/{number} 200" for number in range(1, 9))


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Return the folder for the pictures: ROLLCALL_PICTURES, or one that is removed."""
    return Path(os.environ.get("ROLLCALL_PICTURES", tmp_path))


@pytest.fixture
def image(docker_client: docker.APIClient, busybox_image: str) -> Iterator[str]:
    """Yield an image with a name that suits a picture."""
    docker_client.tag(busybox_image, REPOSITORY, TAG)
    yield f"{REPOSITORY}:{TAG}"
    docker_client.remove_image(f"{REPOSITORY}:{TAG}")


def with_an_hour(route: Route) -> None:
    """Answer the usage with a history, which would take an hour to make."""
    answer = route.fetch()
    usage = answer.json()
    for number, app in enumerate(usage["apps"]):
        wave = [math.sin(step / 5 + number) for step in range(STEPS)]
        gap = range(20, 24) if number else range(0)
        app["cpu_percent"] = [
            None if step in gap else 9 + 6 * value for step, value in enumerate(wave)
        ]
        app["memory_bytes"] = [
            None if step in gap else int((90 + 8 * value) * MIB) for step, value in enumerate(wave)
        ]
    route.fulfill(response=answer, body=json.dumps(usage))


def test_pictures_are_made(
    daemons: Daemons, tabs: Tabs, engine_url: str, image: str, pictures: Path
) -> None:
    agent = daemons.agent(engine=engine_url, node={"hostname": "web-05.example.com"})
    names = ("web-mail", "web-shop")
    try:
        for name in names:
            app = {
                "name": name,
                "image": image,
                "pull": "never",
                "command": ["sh", "-c", f"echo '{LINES}'; exec sleep 1000"],
                "description": f"The {name.partition('-')[2]} of the example",
                "stop_seconds": 1,
            }
            assert agent.ask("POST", "/v1/apps", json=app).status_code == 201
        page = log_in(tabs, agent, viewport={"width": 1280, "height": 960})
        page.route("**/v1/usage", with_an_hour)
        page.get_by_role("link", name=names[1]).click()
        expect(page.get_by_role("log")).to_contain_text("GET /cart/8")
        page.get_by_role("img", name="Memory").wait_for()
        page.get_by_role("button", name="Rebuild", exact=True).click()
        expect(page.get_by_role("button", name="Rebuild now")).to_be_visible()
        path = pictures / "agent-app.png"
        page.screenshot(path=path)
        assert path.stat().st_size < MAX_BYTES
    finally:
        for name in names:
            agent.ask("DELETE", f"/v1/apps/{name}")
