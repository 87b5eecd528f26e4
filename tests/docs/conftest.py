"""What the tests that run the pages' commands share."""

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import docker
import docker.errors
import pytest

from dev.waiting import until
from tests.support.daemons import FreePort
from tests.support.e2e.make_run import forked_make_run, running_make_run
from tests.support.e2e.page_runs import MakeRun
from tests.support.pages import Page

SOON = 120.0


@pytest.fixture
def page(request: pytest.FixtureRequest) -> Page:
    """Return the page that the test's mark ``page`` names."""
    mark = request.node.get_closest_marker("page")
    assert mark is not None, "the test has no mark that names a page"
    return Page(mark.args[0])


@pytest.fixture
def app(docker_client: docker.APIClient) -> Iterator[str]:
    """Yield a name for an app, which is removed afterwards, should a page fail."""
    name = f"page-{secrets.token_hex(4)}"
    yield name
    with suppress(docker.errors.NotFound):
        docker_client.remove_container(name, force=True)
    for volume in docker_client.volumes(filters={"label": f"rollcall.app={name}"})["Volumes"] or ():
        docker_client.remove_volume(volume["Name"])
    with suppress(docker.errors.NotFound):
        docker_client.remove_image(f"rollcall-{name}", force=True)


@pytest.fixture
def make_run(
    request: pytest.FixtureRequest, tmp_path: Path, free_port: FreePort, app: str
) -> Iterator[MakeRun]:
    """Start what ``make run`` starts, and wait until the host is registered.

    For a test with the mark ``console_script``, it is typed in a terminal of its own.
    """
    folder = tmp_path / "top"
    folder.mkdir()
    typed = request.node.get_closest_marker("console_script") is not None
    registry, agent = str(free_port()), str(free_port())
    start = running_make_run if typed else forked_make_run
    with start(folder / "var", app=app, registry_port=registry, agent_port=agent):
        until(lambda: _has_a_node(registry, folder / "var/ops.header"), "the node", within=SOON)
        words = {
            "127.0.0.1:7655": f"127.0.0.1:{registry}",
            "127.0.0.1:7656": f"127.0.0.1:{agent}",
            "127.0.0.1:9090": f"127.0.0.1:{free_port()}",
            "20080": str(free_port()),
            "rollcall-hello": f"rollcall-{app}",
            "shop": app,
        }
        yield MakeRun(folder, words)


def _has_a_node(port: str, header: Path) -> bool:
    command = ["curl", "-sf", "--noproxy", "*", "-H", f"@{header}", f"127.0.0.1:{port}/nodes"]
    return subprocess.run(command, capture_output=True, check=False).stdout.strip() not in (
        b"",
        b"[]",
    )
