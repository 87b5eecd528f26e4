"""What the README tells to type works, in the order in which it stands there."""

import re
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import docker.errors
import msgspec
import pytest
import yaml

from dev.waiting import until
from tests.conftest import FreePort, StartPrometheus
from tests.support.e2e.make_run import running_make_run

TOP = Path(__file__).parents[2]
README = (TOP / "README.md").read_text()
SOON_SECONDS = 10.0
# An error status fails; an app may need a moment until it listens.
CURL = 'curl() { command curl -sS --fail-with-body --retry 3 --retry-all-errors "$@"; echo; }'


@dataclass(frozen=True)
class Example:
    """A block of commands, and the JSON block below it, if there is one."""

    commands: str
    answer: str | None


def section(title: str) -> str:
    """Give one section of the README."""
    return re.split(r"^## ", README.partition(f"\n## {title}\n")[2], flags=re.MULTILINE)[0]


def examples(text: str) -> list[Example]:
    """Give the examples in a section."""
    blocks = re.findall(r"```sh\n(.*?)```(?:\n+```json\n(.*?)```)?", text, re.DOTALL)
    return [Example(commands, answer or None) for commands, answer in blocks]


@pytest.fixture
def app(docker_client: docker.APIClient) -> Iterator[str]:
    """Give a name for the app, which is taken away afterwards should an example fail."""
    name = f"readme-{secrets.token_hex(4)}"
    yield name
    with suppress(docker.errors.NotFound):
        docker_client.remove_container(name, force=True)
    with suppress(docker.errors.NotFound):
        docker_client.remove_volume(f"rollcall-{name}")
    with suppress(docker.errors.NotFound):
        docker_client.remove_image(f"rollcall-{name}", force=True)


@pytest.mark.real
def test_each_example_of_the_api_works(tmp_path: Path, free_port: FreePort, app: str) -> None:
    found = examples(section("The API by example"))
    assert len(found) > 2
    ports = {port: str(free_port()) for port in ("7655", "7656", "20080")}
    with running_make_run(
        tmp_path / "var", app=app, registry_port=ports["7655"], agent_port=ports["7656"]
    ) as run:
        run.wait_until_ready()
        until(lambda: run.paste(run.curl_lines()[0]), "the node", within=SOON_SECONDS)
        for example in found:
            output = _type(_elsewhere(example.commands, ports, app), tmp_path)
            if example.answer:
                actual = msgspec.json.decode(output.strip().rpartition("\n")[2])
                _assert_alike(msgspec.json.decode(example.answer), actual, "$")


@pytest.mark.real
def test_a_prometheus_pointed_at_it_as_told_scrapes_the_agent(
    tmp_path: Path, free_port: FreePort, app: str, prometheus: StartPrometheus
) -> None:
    (told,) = re.findall(r"```yaml\n(.*?)```", section("Pointing a Prometheus at it"), re.DOTALL)
    registry, agent = str(free_port()), str(free_port())
    var = tmp_path / "var"
    with running_make_run(var, app=app, registry_port=registry, agent_port=agent) as run:
        run.wait_until_ready()
        told = told.replace("127.0.0.1:7655", f"127.0.0.1:{registry}").replace("30s", "1s")
        told = told.replace("/etc/prometheus/rollcall.key", str(var / "scraper.key"))
        server = prometheus({"global": {"scrape_interval": "1s"}} | yaml.safe_load(told))
        up = until(lambda: server.query("up == 1"), "up == 1", within=60.0)
        assert [sample["metric"]["job"] for sample in up] == ["rollcall"]
        assert run.screen.press_ctrl_c() == 0


def _elsewhere(commands: str, ports: dict[str, str], app: str) -> str:
    """Aim the commands at this test's own daemons and app."""
    for port, ours in ports.items():
        commands = commands.replace(f"127.0.0.1:{port}", f"127.0.0.1:{ours}")
        commands = commands.replace(f'_port": {port}', f'_port": {ours}')
    commands = commands.replace('"rollcall-hello"', f'"rollcall-{app}"')
    return re.sub(r'(/v1/apps/|"name": ")web\b', rf"\g<1>{app}", commands)


def _type(commands: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-euc", f"{CURL}\n{commands}"],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _assert_alike(sample: Any, actual: Any, where: str) -> None:
    """Assert that what the sample shows is there, of its type; `…` stands for anything."""
    assert type(actual) is type(sample), where
    if isinstance(sample, dict):
        for name in sample.keys() - {"…"}:
            assert name in actual, f"{where}.{name}"
            _assert_alike(sample[name], actual[name], f"{where}.{name}")
    if isinstance(sample, list):
        for index, item in enumerate(sample):
            _assert_alike(item, actual[index], f"{where}[{index}]")
