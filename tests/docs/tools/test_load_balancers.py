"""The page about load balancers: its recipes, and both over three hosts under a load."""

import http.client
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import pytest

from cli.render.file import RenderError, TemplateNode
from cli.render.template import NodeTemplate
from dev.images import import_busybox
from dev.waiting import until
from tests.support.agent.engines.dockerd import Dockerd
from tests.support.cli.agents import advertised_agent
from tests.support.cli.process import CommandLine
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.e2e.commands import nodes
from tests.support.pages import Page
from tests.support.requirements import need_root

pytestmark = pytest.mark.page("docs/load-balancers.md")
SOON = 90.0
HOSTS = ("web-1.example.com", "web-2.example.com", "web-3.example.com")
OLD, NEW = "rollcall-test-shop-old", "rollcall-test-shop-new"
SAYS_HELLO = "wget -q -O - http://127.0.0.1:8000/ | busybox grep -q Hello"
HEALTH = f'health={{command: [sh, -c, "{SAYS_HELLO}"], interval_seconds: 1, retries: 2}}'
DRAIN_SECONDS = 10
MOST_REQUESTS = 50_000
SBIN = os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
HAPROXY = """
global
    stats socket {folder}/admin.sock expose-fd listeners
defaults
    mode http
    retries 0
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend shop
    bind 127.0.0.1:{port}
    default_backend shop
"""
NGINX = """
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
access_log off;
include {folder}/shop.cfg;
proxy_next_upstream off;
server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://shop; }} }}
}}
"""


def node(
    hostname: str, *labels: str, address: str = "192.0.2.1", stale: bool = False
) -> TemplateNode:
    return TemplateNode(hostname=hostname, address=address, labels=labels, kv={}, stale=stale)


def recipe(page: Page, language: str, folder: Path) -> NodeTemplate:
    (folder / "shop.j2").write_text(page.blocks(language)[0].text)
    return NodeTemplate(folder / "shop.j2")


SERVING = [
    node("web-1.example.com", "serving:shop:20080", "serving:blog:20081"),
    node("web-2.example.com", "serving:shop:20082", address="2001:db8::7"),
    node("web-3.example.com", "serving:shop:20083", stale=True),
    node("web-4.example.com", "serving:shop:1 weight 256"),
    node("db-1.example.com", "serving:shop:20084"),
]


@pytest.mark.parametrize(
    ("language", "servers"),
    [
        (
            "haproxy",
            [
                "web-1.example.com 192.0.2.1:20080 check",
                "web-2.example.com 2001:db8::7:20082 check",
            ],
        ),
        ("nginx", ["192.0.2.1:20080;", "[2001:db8::7]:20082;"]),
    ],
)
def test_a_recipe_takes_fresh_hosts_that_it_trusts_and_words_alone(
    page: Page, tmp_path: Path, language: str, servers: list[str]
) -> None:
    template = recipe(page, language, tmp_path)
    lines = map(str.strip, template.render(SERVING).splitlines())

    found = [line.removeprefix("server ") for line in lines if line.startswith("server ")]
    assert found == servers
    with pytest.raises(RenderError, match="'no_host_serves' is undefined"):
        template.render(SERVING[2:])


@pytest.mark.real("nginx")
def test_nginx_takes_the_file_of_its_recipe(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "nginx.conf"
    file.write_text(NGINX.format(folder=tmp_path, port=8080))
    (tmp_path / "shop.cfg").write_text(recipe(page, "nginx", tmp_path).render(SERVING))

    command = ["nginx", "-t", "-e", "stderr", "-c", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=SBIN)

    assert ran.returncode == 0, ran.stderr


class Load:
    """Sends requests one after the other, each over a connection of its own."""

    def __init__(self, port: int) -> None:
        self.answers: list[str] = []
        self.failures: list[str] = []
        self._port = port
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ended.is_set() and len(self.answers) < MOST_REQUESTS:
            try:
                self.answers.append(self._ask())
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
            time.sleep(0.01)

    def _ask(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise http.client.HTTPException(f"{answer.status}: {text}")
        return text

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()


class Site:
    """Three hosts with an engine each, behind a load balancer with the page's recipe.

    Attributes:
        addresses: Where the apps of each host are reached.

    """

    def __init__(
        self,
        registry: Daemon,
        agents: list[Daemon],
        command: CommandLine,
        addresses: dict[str, str],
    ) -> None:
        self.addresses = addresses
        self.registry = registry
        self.agents = agents
        self.command = command
        self.file = command.contexts.parent / "shop.cfg"

    def serves(self, hostname: str) -> bool:
        labels = nodes(self.registry)[hostname]["labels"]
        return any(label.startswith("serving:shop:") for label in labels)

    def instance(self, hostname: str) -> str:
        instance: str = nodes(self.registry)[hostname]["kv"]["agent.instance"]
        return instance

    def is_listed(self, hostname: str) -> bool:
        return f" {self.addresses[hostname]}:" in self.file.read_text()


@contextmanager
def connected(engine: Dockerd, number: int) -> Iterator[str]:
    """Connect the network of an engine with this one; yield its address."""
    _, network = engine.inside()
    outside, inside, net = f"rclb{number}", f"rclb{number}p", f"198.18.{number}"
    pid = network.removeprefix("--net=/proc/").removesuffix("/ns/net")
    into = [*engine.inside(), "ip"]
    try:
        for command in (
            ["ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", pid],
            ["ip", "addr", "add", f"{net}.1/30", "dev", outside],
            ["ip", "link", "set", outside, "up"],
            [*into, "addr", "add", f"{net}.2/30", "dev", inside],
            [*into, "link", "set", inside, "up"],
        ):
            subprocess.run(command, check=True)
        yield f"{net}.2"
    finally:
        subprocess.run(["ip", "link", "del", outside], check=False)


def add_image(engine: Dockerd, repository: str, *, page: str) -> None:
    client = engine.client()
    import_busybox(client, repository, page=page)
    client.close()


@contextmanager
def running(
    command: list[str], log: Path, environment: dict[str, str] | None = None
) -> Iterator[int]:
    """Run a program while the context is open; yield its process id."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        yield process.pid
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(SOON)


@pytest.fixture
def hosts(daemons: Daemons, tmp_path: Path) -> Iterator[Site]:
    """Yield three hosts with the app."""
    need_root()
    rollcall = CommandLine(tmp_path)
    with ExitStack() as closing:
        registry, agents, addresses = daemons.registry(), [], {}
        for number, hostname in enumerate(HOSTS, 1):
            engine = closing.enter_context(Dockerd())
            engine.start()
            add_image(engine, OLD, page="Hello")
            add_image(engine, NEW, page="Hello again")
            addresses[hostname] = closing.enter_context(connected(engine, number))
            agents.append(
                advertised_agent(
                    daemons,
                    registry,
                    hostname=hostname,
                    engine=engine.url,
                    apps={"bind": "0.0.0.0"},
                )
            )
        rollcall.login(registry)
        until(lambda: len(nodes(registry)) == len(HOSTS), "three nodes", within=SOON)
        fields = ("--image", OLD, "--set", HEALTH, "--set", f"drain_seconds={DRAIN_SECONDS}")
        for hostname in HOSTS:
            rollcall.ok("app", "create", f"{hostname}/shop", *fields)
        made = Site(registry, agents, rollcall, addresses)
        until(lambda: all(map(made.serves, HOSTS)), "three that serve", within=SOON)
        yield made


@contextmanager
def balanced(page: Page, hosts: Site, port: int, balancer: str) -> Iterator[None]:
    """Run a load balancer on a port with its recipe, which `render` keeps, while it is open."""
    folder = hosts.file.parent
    text = page.blocks(balancer)[0].text
    assert "node.address" in text
    # All agents of this machine report from one address, and each engine has another.
    text = text.replace("node.address", f"{hosts.addresses}[node.hostname]")
    (folder / "shop.j2").write_text(text)
    settings, signal = {"haproxy": (HAPROXY, "USR2"), "nginx": (NGINX, "HUP")}[balancer]
    own = folder / "own.cfg"
    own.write_text(settings.format(folder=folder, port=port))
    render = ["render", str(folder / "shop.j2"), str(hosts.file)]
    hosts.command.ok(*render)
    command = {
        "haproxy": ["haproxy", "-W", "-db", "-f", str(own), "-f", str(hosts.file)],
        "nginx": ["nginx", "-e", "stderr", "-g", "daemon off;", "-c", str(own)],
    }[balancer]
    with running(command, folder / f"{balancer}.log", SBIN) as master:
        follow = [*render, "--watch", "--on-change", f"kill -{signal} {master}"]
        words, environment = [str(hosts.command.program), *follow], hosts.command.environment
        with running(words, folder / "render.log", environment):
            yield


@pytest.mark.real("dockerd", "haproxy", "nginx")
@pytest.mark.long(1)
@pytest.mark.release("three engines; test_drain.py holds what an agent does")
@pytest.mark.parametrize("balancer", ["haproxy", "nginx"])
def test_a_rollout_loses_no_request_and_a_killed_agent_keeps_its_label_away(
    page: Page, hosts: Site, free_port: FreePort, balancer: str
) -> None:
    port = free_port()
    with balanced(page, hosts, port, balancer):
        rollout_without_a_lost_request(hosts, port)
        kill_while_draining(hosts, hosts.agents[0], HOSTS[0])


def rollout_without_a_lost_request(hosts: Site, port: int) -> None:
    with Load(port) as load:
        until(lambda: len(load.answers) > 10, "answers", within=SOON)
        load.failures.clear()  # the load balancer was starting
        rollout = ("update", "shop", "--image", NEW, "--label", "service:web", "--batch", "1")
        done = hosts.command.json(*rollout)
        until(lambda: load.answers[-20:] == ["Hello again"] * 20, "new pages", within=SOON)
    assert [each["state"] for each in done] == ["done"] * 3
    assert load.failures == []
    assert set(load.answers) == {"Hello", "Hello again"}


def kill_while_draining(hosts: Site, agent: Daemon, hostname: str) -> None:
    assert agent.ask("PUT", "/v1/apps/shop", json={"drain_seconds": 3600}).ok
    answer = agent.ask("PUT", "/v1/apps/shop/restart", headers={"Prefer": "respond-async"})
    assert answer.status_code == http.HTTPStatus.ACCEPTED
    until(lambda: not hosts.is_listed(hostname), "the withdrawal", within=SOON)
    before = hosts.instance(hostname)
    agent.kill()
    agent.start()

    until(lambda: hosts.instance(hostname) != before, "the next agent", within=SOON)
    assert not hosts.serves(hostname)
    assert agent.ask("GET", "/v1/apps/shop").json()["progress"]["step"] == "draining"
    assert agent.ask("PUT", "/v1/apps/shop/restart?drain=0").ok
    until(lambda: hosts.is_listed(hostname), "the way back", within=SOON)
