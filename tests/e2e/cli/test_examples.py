"""The examples of the help, run as they are written, where there is what they name."""

import os
import re
import shlex
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import docker
import docker.errors
import pytest

from cli.reach.contexts import Context, state_folder
from cli.rollout.rollout import Bounds, HostProgress, Rollout, RolloutChange, StateFile
from dev.waiting import until
from tests.support.agent.containers import derived_image
from tests.support.certificates import Authority
from tests.support.cli.agents import advertised_agent
from tests.support.cli.examples import examples
from tests.support.cli.process import CommandLine
from tests.support.daemons import Daemon, Daemons
from tests.support.forks import start_program

pytestmark = [pytest.mark.real, pytest.mark.long(1)]
SOON = 60.0
PLAIN, OVER_TLS = "http://127.0.0.1:7655", "https://registry:7655"
LOGIN_OVER_TLS = f"login {OVER_TLS} --ca ca.crt --key-file ops"
FILES = {
    "shop.yml": "image: shop:1.4\nmemory: 256\n",
    "apps.yml": "apps: [{name: shop, where: {hosts: [web-1]}, image: 'shop:1.5', memory: 96}]",
    "upstreams.j2": "{% for node in nodes %}server {{ node.hostname }};\n{% endfor %}",
    "password.txt": "a good password",
    "expected": "web-1\nweb-2\ndb-1\n",
    "bin/systemctl": "#!/bin/sh\necho $* > reloaded\n",
    "bin/ssh": '#!/bin/sh\nexec sh -c "$4"\n',
}
# It has a page for the check, a line in its log, and a place for passwords.
SHOP = """\
RUN busybox cp /www/index.html /www/healthz && mkdir -p /usr/sbin && \
    printf '#!/bin/sh\\ncat >/given\\n' >/usr/sbin/chpasswd && busybox chmod 755 /usr/sbin/chpasswd
LABEL rollcall.user=root
CMD ["/bin/sh", "-c", "echo hello; httpd -f -p 8000 -h /www"]
"""
# What each one leaves shows in its output, or in that of those behind it.
OUTCOMES = {
    f"{LOGIN_OVER_TLS} --agent-secret-file": "the context default is in use",
    f"{LOGIN_OVER_TLS} --agent-key-file": "the context default is in use",
    "context set --agent-secret-file": "default is changed",
    "agent-key web-1.example.com": "",
    "login http://127.0.0.1:7655": "the context default is in use",
    "context set --ca": "default is changed",
    "context set --allow-plain": "may be sent to loopback addresses, 10.0.0.0/24",
    "completion bash": "_rollcall",
    "nodes web-1 web-2": "web-2",
    "nodes --stale": "db-1",
    "roll-call": "db-1",
    "nodes --label service:web -o wide": "web-1",
    "node web-1": "service:web",
    "targets rollcall": "web-1",
    "watch": "web-1",
    "app create web-1/shop -f shop.yml --dry-run": "web-1/shop",
    "app create web-1/shop --image": "web-1/shop",
    "app label web-1/shop prometheus:shop": "web-1/shop",
    "app label web-1/shop prometheus:shop --remove": "web-1/shop",
    "apps --label": "shop:1.4",
    "apps web-1 web-2 -o json": '"memory": 256',
    "inventory --list": '"rollcall_app_shop": {"hosts": ["web-1"]}',
    "inventory --host web-1": "rollcall_labels",
    "why web-1": "1 app, all well",
    "why web-1/shop": "running, unchecked",
    "top": "web-1/shop",
    "top --label": "256.0 MiB",
    "rollouts": "rollcall rebuild shop --resume",
    "rollouts --forget": "forgotten: rebuild shop",
    "rebuild shop": "done",
    "update shop --image shop:1.5 --label": "done",
    "update shop --set cpu=75 --all": "done",
    "restart shop": "done",
    "rollback shop": "done",
    "app update web-1/shop --memory": "web-1/shop",
    "app update web-1/shop --env": "web-1/shop",
    "app rollback": "nothing was changed",
    "logs shop -n": "web-1 | hello",
    "logs shop web-1 web-2": "web-2: there is no app",
    "logs shop --label": "web-1 | hello",
    "app logs web-1/shop -n": "hello",
    "app logs web-1/shop --since": "hello",
    "app logs web-1/shop --follow": "hello",
    "app shell web-1/shop": "",
    "app shell web-1/shop -- ls /": "www",
    "app shell web-1/shop --print": "docker exec -it",
    "app password": "web-1/shop",
    "app backup web-1/shop shop.tar": "shop.tar",
    "app backup web-1/shop -": "in the pipe",
    "stop shop": "done",
    "app restore web-1/shop shop.tar": "start the app",
    "app restore web-1/shop -": "start the app",
    "start shop": "done",
    "diff": "memory",
    "apply": "web-1/shop",
    "render upstreams.j2 upstreams.conf --watch": "",
    "render upstreams.j2 upstreams.conf --label": "",
    "app delete": "web-1/shop",
    "forget --held": "no node is held",
    "forget db-1": "db-2 is forgotten",
}
# `diff` has found a difference, web-2 has no such app, and db-1 is stale.
FAILING = {"diff", "logs shop web-1 web-2", "roll-call"}
# They go on until Ctrl-C.
ENDLESS = re.compile("rollcall watch|--watch|--follow")
OF_A_SHELL = re.compile("[|<>$]")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder in which the examples run, with the files that they name."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for program in (tmp_path / "bin").iterdir():
        program.chmod(0o755)
    return tmp_path


@pytest.fixture
def shop(docker_client: docker.APIClient, busybox_image: str) -> Iterator[None]:
    """Make the images of the app; remove them and the app afterwards."""
    with derived_image(docker_client, busybox_image, SHOP) as image:
        for version in ("1.4", "1.5"):
            docker_client.tag(image, "shop", version)
        yield
        with suppress(docker.errors.NotFound):
            docker_client.remove_container("shop", force=True, v=True)
        kept = docker_client.volumes(filters={"label": "rollcall.app=shop"})["Volumes"] or ()
        for volume in kept:
            docker_client.remove_volume(volume["Name"])
        for version in ("1.4", "1.5"):
            docker_client.remove_image(f"shop:{version}")


def put_key(registry: Daemon, *files: Path) -> None:
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(registry.key)


@pytest.fixture
def registries(daemons: Daemons, folder: Path, engine_url: str) -> dict[str, str]:
    """Return where the registries are; one knows web-1, web-2, and two hosts that are stale."""
    authority = Authority(folder / "authority")
    (folder / "ca.crt").write_bytes(authority.ca.read_bytes())
    pair = authority.issue("127.0.0.1")
    over_tls = daemons.registry(
        tls={"certificate": str(pair.certificate), "key": str(pair.key)},
        trust=(str(authority.ca), None),
    )
    put_key(over_tls, folder / "ops", folder / "secret")
    plain = daemons.registry(nodes={"stale_after_seconds": 5, "expected": str(folder / "expected")})
    for hostname in ("db-1", "db-2"):
        plain.ask("POST", f"/nodes/{hostname}", json={"labels": [], "kv": {}}).raise_for_status()
    put_key(plain, folder / "var" / "ops.key")
    for hostname in ("web-1", "web-2"):
        advertised_agent(
            daemons, plain, hostname=hostname, engine=engine_url, apps={}, heartbeat_seconds=1
        )
    until(lambda: len(plain.ask("GET", "/nodes").json()) == 4, "four nodes", within=SOON)
    until(lambda: "db-1" in plain.ask("GET", "/nodes?stale=true").text, "a stale one", within=SOON)
    return {PLAIN: plain.base_url, OVER_TLS: over_tls.base_url}


@pytest.mark.usefixtures("shop")
def test_each_does_what_the_help_says(
    registries: dict[str, str],
    folder: Path,
    rollcall: CommandLine,
    engine_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    programs = f"{folder / 'bin'}:{rollcall.program.parent}:{os.environ['PATH']}"
    environment = {**rollcall.environment, "PATH": programs, "DOCKER_HOST": engine_url}
    keep_rollout(environment, registries[PLAIN])
    left = examples()

    for beginning, outcome in OUTCOMES.items():
        example = min(each for each in left if each.startswith(f"rollcall {beginning}"))
        left.remove(example)
        command = example
        for url, real in registries.items():
            command = command.replace(url, real)
        status, said = run(command, folder, environment, until_said=outcome)
        assert status == int(beginning in FAILING), (example, said)
        assert outcome in said, (example, said)
        # The agents of the other hosts report each second.
        assert beginning != "nodes --stale" or "fresh" not in said

    assert left == []
    assert (folder / "upstreams.conf").read_text() == "server web-1;\nserver web-2;\n"
    assert (folder / "reloaded").read_text() == "reload nginx\n"
    assert (folder / "web-1.key").read_text().startswith("ak1.web-1.example.com.")
    assert rollcall.json("apps", "web-1") == []


def keep_rollout(environment: Mapping[str, str], registry: str) -> None:
    """Keep a rollout of the app that is not done."""
    file = StateFile(
        state_folder("rollouts", environment, "default", Context(registry=registry)), "shop"
    )
    change, hosts = RolloutChange(action="rebuild", app="shop"), [HostProgress(host="web-1")]
    with file.locked():
        file.save(Rollout(change=change, bounds=Bounds(), hosts=hosts))


def run(
    command: str, folder: Path, environment: dict[str, str], *, until_said: str
) -> tuple[int, str]:
    """Run a line of a shell; return its status and what it said. An endless one gets Ctrl-C."""
    output = folder / "output"
    output.write_text("")
    is_alone = OF_A_SHELL.search(command) is None
    process = start_program(
        shlex.split(command) if is_alone else ["sh", "-c", command],
        stdout=output,
        stderr=output,
        environment=environment,
        forked=is_alone,
    )
    try:
        if ENDLESS.search(command):
            until(lambda: is_reached(command, until_said, folder), command, within=SOON)
            process.send_signal(signal.SIGINT)
            process.wait(SOON)
            return 0, output.read_text()
        return process.wait(SOON), output.read_text()
    finally:
        process.kill()
        process.wait()


def is_reached(command: str, until_said: str, folder: Path) -> bool:
    """Return whether an endless command has done what it is for."""
    if "--on-change" in command:
        return (folder / "reloaded").exists()
    return until_said in (folder / "output").read_text()
