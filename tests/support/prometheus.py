"""A real Prometheus, for as long as a test needs it."""

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import requests
import yaml

from dev.waiting import until

READY_SECONDS = 60.0
STOP_SECONDS = 30.0
HOSTNAME = "__meta_rollcall_hostname"


class Prometheus:
    """How to ask a running Prometheus."""

    def __init__(self, *, base_url: str, log_path: Path, pid: int) -> None:
        self.base_url = base_url
        self.log_path = log_path
        self.pid = pid

    def get(self, path: str, **parameters: str) -> Any:
        """Return the ``data`` of an answer of its HTTP API, such as ``targets``."""
        answer = requests.get(f"{self.base_url}/api/v1/{path}", params=parameters, timeout=30)
        answer.raise_for_status()
        return answer.json()["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return an instant query's samples: ``[{"metric": {...}, "value": [time, "1"]}]``."""
        samples: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return samples

    def hostnames(self) -> set[str]:
        """Return of which hosts a registry has named targets, as it knows them now."""
        active = self.get("targets", state="active")["activeTargets"]
        labels = (target["discoveredLabels"] for target in active)
        return {each[HOSTNAME] for each in labels if HOSTNAME in each}

    def discovery_failures(self) -> float:
        """Return how many fetches of targets have failed."""
        text = requests.get(f"{self.base_url}/metrics", timeout=10).text
        name = "prometheus_sd_http_failures_total "
        return sum(float(line.split()[1]) for line in text.splitlines() if line.startswith(name))

    def log(self) -> str:
        """Return what it wrote so far."""
        return self.log_path.read_text(errors="replace")

    def ready(self) -> bool:
        """Return whether it serves."""
        try:
            return requests.get(f"{self.base_url}/-/ready", timeout=5).ok
        except requests.RequestException:
            return False


def discovery(registries: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the settings of a Prometheus that asks registries for the targets of `web`.

    `registries` are their base URLs, each with a key.
    """
    fetches = [
        {
            "url": f"{url}/prometheus/web",
            "refresh_interval": "1s",
            "authorization": {"credentials": key},
        }
        for url, key in registries.items()
    ]
    return {"scrape_configs": [{"job_name": "web", "http_sd_configs": fetches}]}


@contextmanager
def running_prometheus(
    settings: Mapping[str, Any], *, folder: Path, port: int, within: Sequence[str] = ()
) -> Iterator[Prometheus]:
    """Run Prometheus with these settings (what prometheus.yml holds), its data in the folder.

    ``within`` is a command that becomes the one that is given to it as further arguments.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(dict(settings)))
    log_path = folder / "log"
    command = [
        *within,
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    server = Prometheus(base_url=url, log_path=log_path, pid=process.pid)
    try:
        until(lambda: _ready(process, server), "Prometheus", within=READY_SECONDS)
        yield server
    finally:
        _end(process)


def _ready(process: subprocess.Popen[bytes], server: Prometheus) -> bool:
    assert process.poll() is None, f"Prometheus ended:\n{server.log()}"
    return server.ready()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


StartPrometheus: TypeAlias = Callable[[Mapping[str, Any]], Prometheus]
