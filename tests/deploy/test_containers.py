"""The page about container images, on this machine's engine; then what the images promise."""

import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest
import requests

from dev.waiting import until
from tests.support.daemons import FreePort
from tests.support.e2e.packages import Packages
from tests.support.e2e.page_runs import environment
from tests.support.e2e.systemd_host import systemd_image
from tests.support.pages import TOP, Page, run
from tests.support.requirements import need_root

pytestmark = [
    pytest.mark.real("docker", "dpkg-deb", "mmdebstrap", "openssl"),
    pytest.mark.long(2),
]
SOON_SECONDS = 60.0
DAEMONS = ("registry", "agent")
HOST = "web-1.example.com"
# Names that no other container or image of this engine has; checks that follow in short intervals.
FUNCTIONS = """
make() { [ "$*" = deb ]; }
docker() {
  local command=$1 names=()
  shift
  for word in "$@"; do
    case $command,$word in
      *,rollcall/*) word=$PREFIX-${word#rollcall/} ;;
      build,*) ;;
      *,registry | *,agent | *,registry-state:* | *,agent-state:*) word=$PREFIX-$word ;;
    esac
    names+=("$word")
  done
  case $command in
    build) names=(--build-arg "BASE=$BASE" "${names[@]}") ;;
    run)
      case ${names[-1]} in *-registry) port=7655 ;; *) port=7656 ;; esac
      names=(--health-interval 1s --health-timeout 2s --health-retries 1 "${names[@]}")
      names=(--env "ROLLCALL_URL=http://127.0.0.1:$port" "${names[@]}")
      ;;
  esac
  command docker "$command" "${names[@]}"
}
"""
# The host has to be registered before its status says so.
REGISTERED = "until docker exec agent rollcall-agent status; do sleep 1; done"
LAST = "Stop and upgrade"


@dataclass(frozen=True)
class Containers:
    """The containers of the page.

    Attributes:
        folder: where the page's commands were run, with the settings of both daemons.
        ports: on 127.0.0.1, by daemon.
        variables: what the commands need: PREFIX of names, BASE of images, DOCKER_HOST.

    """

    client: docker.APIClient
    folder: Path
    ports: Mapping[str, int]
    variables: Mapping[str, str]

    def name(self, daemon: str) -> str:
        """Return the name of a container, which its image has, too."""
        return f"{self.variables['PREFIX']}-{daemon}"

    def run(self, script: str) -> None:
        """Run commands of the page."""
        run(script, folder=self.folder, environment=environment(**self.variables))

    def inspect(self, daemon: str) -> dict[str, Any]:
        """Return what the engine says of a container."""
        found: dict[str, Any] = self.client.inspect_container(self.name(daemon))
        return found

    def until_health(self, daemon: str, health: str) -> None:
        """Wait until the health check has found this."""
        until(
            lambda: self.inspect(daemon)["State"]["Health"]["Status"] == health,
            f"{daemon} is {health}",
            within=SOON_SECONDS,
        )

    def ask(self, daemon: str, method: str, path: str, **options: Any) -> requests.Response:
        """Ask a daemon with the operator's key."""
        key = (self.folder / daemon / "ops.key").read_text().strip()
        url = f"http://127.0.0.1:{self.ports[daemon]}{path}"
        return requests.request(
            method, url, headers={"Authorization": f"Bearer {key}"}, timeout=60, **options
        )

    def nodes(self) -> set[str]:
        """Return the hostnames that the registry lists."""
        return {node["hostname"] for node in self.ask("registry", "GET", "/nodes").json()}


@pytest.fixture(scope="module")
def base(docker_client: docker.APIClient) -> Iterator[str]:
    """Yield an image with Python, from which the images are built without a network."""
    need_root()
    with systemd_image(docker_client) as image:
        yield image


@pytest.fixture(scope="module")
def containers(
    tmp_path_factory: pytest.TempPathFactory,
    docker_client: docker.APIClient,
    engine_url: str,
    base: str,
    packages: Packages,
    free_port: FreePort,
) -> Iterator[Containers]:
    """Do what the page says, and yield what runs then."""
    folder = tmp_path_factory.mktemp("containers") / "top"
    (folder / "dist").mkdir(parents=True)
    shutil.copy(packages.present, folder / "dist")
    shutil.copytree(TOP / "deploy" / "container", folder / "deploy" / "container")
    shutil.copy(TOP / ".dockerignore", folder)
    folder.with_name("machine-id").write_text(f"{secrets.token_hex(16)}\n")
    made = Containers(
        client=docker_client,
        folder=folder,
        ports={daemon: free_port() for daemon in DAEMONS},
        variables={
            "PREFIX": f"rollcall-test-{secrets.token_hex(4)}",
            "BASE": base,
            "DOCKER_HOST": engine_url,
        },
    )
    try:
        _follow_the_page(made, engine_url.removeprefix("unix://"))
        yield made
    finally:
        _remove(made)


def _follow_the_page(made: Containers, socket: str) -> None:
    script = Page("docs/containers.md").script(
        before=FUNCTIONS, checks={"An agent": [REGISTERED]}, without=[LAST]
    )
    for words, others in {
        "7655": str(made.ports["registry"]),
        "7656": str(made.ports["agent"]),
        "/run/docker.sock)": f"{socket})",
        "/run/docker.sock:": f"{socket}:",
        "/etc/machine-id:": f"{made.folder.with_name('machine-id')}:",
    }.items():
        assert words in script
        script = script.replace(words, others)
    made.run(script)


def _remove(made: Containers) -> None:
    for daemon in DAEMONS:
        name = made.name(daemon)
        with suppress(docker.errors.NotFound):
            made.client.remove_container(name, force=True)
        with suppress(docker.errors.NotFound):
            made.client.remove_volume(f"{name}-state")
        with suppress(docker.errors.ImageNotFound):
            made.client.remove_image(name, force=True)


@pytest.mark.page("docs/containers.md")
def test_the_page_leads_to_a_registry_and_a_host_that_reports_to_it(
    containers: Containers, docker_client: docker.APIClient, busybox_image: str
) -> None:
    for daemon in DAEMONS:
        containers.until_health(daemon, "healthy")
    until(lambda: HOST in containers.nodes(), "the host is listed", within=SOON_SECONDS)
    for daemon in DAEMONS:  # the image holds the page of its daemon
        shown = containers.ask(daemon, "GET", "/")
        assert f"<title>Rollcall {daemon}</title>" in shown.text
        assert containers.ask(daemon, "GET", f"/pages/{daemon}/main.js").ok

    app = f"contained-{secrets.token_hex(4)}"
    try:
        answer = containers.ask(
            "agent", "POST", "/v1/apps", json={"name": app, "image": busybox_image}
        )
        assert answer.status_code == HTTPStatus.CREATED, answer.text
        assert answer.json()["state"] == "running"
        assert containers.ask("agent", "DELETE", f"/v1/apps/{app}").ok
    finally:
        with suppress(docker.errors.NotFound):
            docker_client.remove_container(app, force=True, v=True)


@pytest.mark.parametrize("daemon", DAEMONS)
def test_a_daemon_is_not_root_and_its_image_is_as_small_as_the_page_says(
    containers: Containers, docker_client: docker.APIClient, daemon: str
) -> None:
    container = containers.inspect(daemon)
    (image,) = docker_client.images(containers.name(daemon))
    (base,) = docker_client.images(containers.variables["BASE"])
    reported = re.search(r"An image has (\d+) MiB over its base", Page("docs/containers.md").text)
    mebibytes = (image["Size"] - base["Size"]) / (1024 * 1024)

    made = docker_client.exec_create(container["Id"], ["cat", "/proc/1/status"])
    status = docker_client.exec_start(made["Id"]).decode()
    assert re.search(r"^Uid:(\t65532){4}$", status, re.MULTILINE), status
    assert re.search(r"^Gid:(\t65532){4}$", status, re.MULTILINE), status
    assert reported is not None
    assert mebibytes == pytest.approx(int(reported[1]), abs=2)


@pytest.mark.parametrize("daemon", DAEMONS)
def test_an_image_says_what_it_is_and_of_which_version(
    containers: Containers, docker_client: docker.APIClient, packages: Packages, daemon: str
) -> None:
    (image,) = docker_client.images(containers.name(daemon))

    version = packages.present.name.split("_")[1]
    assert image["Labels"]["org.opencontainers.image.version"] == version
    assert image["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert image["Labels"]["org.opencontainers.image.title"] == f"Rollcall {daemon}"


def test_a_frozen_registry_is_unhealthy_until_it_goes_on(containers: Containers) -> None:
    name = containers.name("registry")
    containers.until_health("registry", "healthy")

    containers.client.kill(name, "STOP")
    try:
        containers.until_health("registry", "unhealthy")
    finally:
        containers.client.kill(name, "CONT")
    containers.until_health("registry", "healthy")


@pytest.mark.parametrize("daemon", DAEMONS)
def test_a_daemon_ends_in_order_and_keeps_its_state(containers: Containers, daemon: str) -> None:
    name = containers.name(daemon)
    body = {"labels": ["by:hand"], "kv": {}}
    assert containers.ask("registry", "POST", "/nodes/web-2", json=body).ok
    identity = containers.ask("registry", "GET", f"/nodes/{HOST}").json()[0]["kv"]["agent.id"]

    containers.client.stop(name, timeout=60)
    assert containers.inspect(daemon)["State"]["ExitCode"] == 0
    assert b"stopping" in containers.client.logs(name)

    containers.client.start(name)
    containers.until_health(daemon, "healthy")
    assert {HOST, "web-2"} <= containers.nodes()
    (node,) = containers.ask("registry", "GET", f"/nodes/{HOST}").json()
    assert node["kv"]["agent.id"] == identity


def test_the_page_ends_both(containers: Containers) -> None:
    containers.run(Page("docs/containers.md").script(before=FUNCTIONS, only=[LAST]))

    named = {"name": containers.variables["PREFIX"]}
    assert containers.client.containers(all=True, filters=named) == []
    assert len(containers.client.volumes(filters=named)["Volumes"]) == len(DAEMONS)
