"""The real parts that tests share, and what becomes of a test whose part is missing."""

import fcntl
import gc
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from ssl import SSLContext
from typing import Any

import docker
import docker.errors
import pytest
from hypothesis import HealthCheck, settings
from pytest_aiohttp import AiohttpServer

from dev import engine
from dev.debian import SSH_SERVER, debian_tree
from dev.images import build_busybox, find_static_busybox
from tests.support.daemons import Daemons, FreePort
from tests.support.e2e.installation import install
from tests.support.images import HELLO_PAGE, build_ssh, imported
from tests.support.machine.ports import FreePorts
from tests.support.prometheus import Prometheus, StartPrometheus, running_prometheus
from tests.support.registry.fake_servers import Handler, HttpServer, one_handler_app
from tests.support.requirements import FAST, is_left_out, need, need_root
from tests.support.run import coverage, release, reports

TOP = Path(__file__).parents[1]

# How long an example takes is the machine's, and fails no test. `make test-fast` tries 20 examples,
# `make test` 25, `make test-all` 100, or what a test says.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", UNTIMED, max_examples=20)
settings.register_profile("some", UNTIMED, max_examples=25)
settings.register_profile("all", UNTIMED, max_examples=100)
settings.load_profile("some")

# Tests make many objects, and little garbage: by default, each worker spends a twelfth of its
# processor time on the search for it.
gc.set_threshold(20_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugins; pytest adds none of a plugin that is registered later."""
    release.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins of this suite, and choose how many examples are tried."""
    for plugin in (release, reports, coverage):
        config.pluginmanager.register(plugin)
    if config.getoption(release.OPTION):
        settings.load_profile("all")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore each file of which `make test-fast` runs no test: to import them takes seconds.

    Such a file has the mark ``real`` or ``slow`` as a whole.
    """
    is_fast = config.getoption("markexpr") == FAST
    return True if is_fast and is_left_out(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that at the end no worker is waited for long.

    Among files that take as long, the order is that of their names without their folders. Tests of
    one folder need the same, such as a processor or an answer that comes late. So those that run
    side by side are of several folders.
    """
    items.sort(key=_position)


def _position(item: pytest.Item) -> tuple[int, bool, str]:
    """Return something that is less for a test that begins earlier."""
    long = item.get_closest_marker("long")
    minutes = 0 if long is None else long.args[0]
    return -minutes, item.get_closest_marker("real") is None, item.path.name


def pytest_collection_finish() -> None:
    """Keep the collector of garbage from looking at modules and tests again and again."""
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose mark names a program that is not here: ``@pytest.mark.real("etcd")``."""
    for mark in item.iter_markers("real"):
        for program in mark.args:
            need(program)


@pytest.fixture(scope="session")
def free_port() -> FreePort:
    """Return a function that finds a TCP port of 127.0.0.1 that nobody listens on."""
    return FreePorts()


@pytest.fixture(scope="session")
def engine_url() -> Iterator[str]:
    """Yield the address of a real Docker Engine, started for this session if none answers.

    It may be one that others use too: never expect it empty.
    """
    url = engine.url(os.environ)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "test")
    log = TOP / "var" / f"dockerd-{worker}.log"
    log.parent.mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(engine.running(url, log=log))
        except engine.EngineError as error:
            pytest.skip(f"needs a Docker Engine: {error}")
        yield url


@pytest.fixture(scope="session")
def run_label() -> dict[str, str]:
    """Return the label by which the images of this run of the tests are known."""
    return {"rollcall.test": secrets.token_hex(8)}


@pytest.fixture(scope="session")
def docker_client(engine_url: str, run_label: Mapping[str, str]) -> Iterator[docker.APIClient]:
    """Yield docker-py's low-level client, to look behind the agent's back."""
    client = docker.APIClient(base_url=engine_url, version="auto", timeout=120)
    yield client
    # An image whose tag was taken away while an app still ran from it has stayed.
    marks = [f"{name}={value}" for name, value in run_label.items()]
    for image in client.images(filters={"dangling": True, "label": marks}):
        client.remove_image(image["Id"], force=True)
    client.close()


@pytest.fixture(scope="session")
def busybox_image(docker_client: docker.APIClient, run_label: Mapping[str, str]) -> Iterator[str]:
    """Yield an image with a page on port 8000, sh and ps, but neither user `app` nor chpasswd."""
    if find_static_busybox() is None:
        pytest.skip("needs a static busybox, which is not installed")
    with _tagged(docker_client, "rollcall-test-busybox") as tag:
        build_busybox(docker_client, tag, page=HELLO_PAGE, labels=run_label)
        yield tag


@pytest.fixture(scope="session")
def ssh_image(docker_client: docker.APIClient) -> Iterator[str]:
    """Yield an image with user `app`, chpasswd, an SSH server on 22 and a page on port 8000."""
    if find_static_busybox() is None:
        pytest.skip("needs a static busybox, which is not installed")
    need("mmdebstrap")
    need_root()
    with ExitStack() as stack:
        base = f"rollcall-test-debian:{secrets.token_hex(4)}"
        stack.enter_context(imported(docker_client, debian_tree(*SSH_SERVER), base))
        tag = stack.enter_context(_tagged(docker_client, "rollcall-test-ssh"))
        build_ssh(docker_client, tag, base=base, page=HELLO_PAGE)
        yield tag


@pytest.fixture(scope="session")
def destdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which ``make install`` laid out all files, as for a package.

    It is a copy: to install takes long, so it is done once for all workers.
    """
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # which the workers of a run share
    installed = base / "installed"
    with installed.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.exists():
            install(base / "installing")
            (base / "installing").rename(installed)
    folder = tmp_path_factory.mktemp("destdir")
    shutil.copytree(installed, folder, symlinks=True, dirs_exist_ok=True)
    folder.chmod(0o755)  # a root folder
    return folder


@pytest.fixture
def daemons(
    request: pytest.FixtureRequest, tmp_path: Path, free_port: FreePort
) -> Iterator[Daemons]:
    """Yield what starts registries and agents as processes, and ends them after the test."""
    forked = request.node.get_closest_marker("console_script") is None
    with Daemons(folder=tmp_path / "daemons", free_port=free_port, forked=forked) as started:
        yield started


@pytest.fixture
def prometheus(tmp_path: Path, free_port: FreePort) -> Iterator[StartPrometheus]:
    """Yield a function from the content of prometheus.yml to a running Prometheus."""
    need("prometheus")
    with ExitStack() as stack:

        def start(settings: Mapping[str, Any]) -> Prometheus:
            port = free_port()
            folder = tmp_path / f"prometheus-{port}"
            return stack.enter_context(running_prometheus(settings, folder=folder, port=port))

        yield start


@pytest.fixture
def http_server(aiohttp_server: AiohttpServer) -> HttpServer:
    """Return a function that serves every path with one handler until the test ends."""

    async def start(
        handler: Handler, *, tls: SSLContext | None = None, daemon: str | None = "registry"
    ) -> str:
        app = one_handler_app(handler, daemon=daemon)
        server = await aiohttp_server(app, ssl=tls, shutdown_timeout=0.1)
        return str(server.make_url(""))

    return start


@contextmanager
def _tagged(client: docker.APIClient, repository: str) -> Iterator[str]:
    """Yield a tag that no other run uses, and take the image away afterwards."""
    tag = f"{repository}:{secrets.token_hex(4)}"
    try:
        yield tag
    finally:
        with suppress(docker.errors.ImageNotFound):
            client.remove_image(tag, force=True)
