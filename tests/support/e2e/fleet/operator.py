"""An operator at the work machine, with the files that docs/rollout.md makes there."""

import json
import subprocess
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.support.e2e.rollout_page import REGISTRY

REGISTRY_PORT, AGENT_PORT = 7655, 7656


class Operator:
    """Asks the registry and the agents over TLS, with the operator's keys and certificate."""

    def __init__(self, work: Path, addresses: Mapping[str, str]) -> None:
        self._work = work
        self._addresses = addresses

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return all nodes that the registry knows, by hostname; none if it does not answer."""
        status, nodes = self._ask(REGISTRY, REGISTRY_PORT, "/nodes")
        return {node["hostname"]: node for node in nodes} if status == HTTPStatus.OK else {}

    def fresh(self, seconds: int) -> set[str]:
        """Return the hosts that the registry has heard of within a time."""
        status, nodes = self._ask(REGISTRY, REGISTRY_PORT, f"/nodes?max_age={seconds}")
        return {node["hostname"] for node in nodes} if status == HTTPStatus.OK else set()

    def create_app(self, host: str, app: Mapping[str, Any]) -> None:
        """Let a host run an app."""
        status, answer = self._ask(host, AGENT_PORT, "/v1/apps", app)
        assert status == HTTPStatus.CREATED, answer

    def _ask(self, host: str, port: int, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status and the JSON of an answer, 0 if there was none."""
        work, key = self._work, "registry" if host == REGISTRY else host
        header = f"Authorization: {(work / key / 'ops').read_text().strip()}\n"
        command = ["curl", "--silent", "--max-time", "30", "--noproxy", "*"]
        command += ["--header", "@-", "--write-out", "\n%{http_code}"]
        command += ["--resolve", f"{host}:{port}:{self._addresses[host]}"]
        command += ["--cacert", str(work / "ca.crt"), "--cert", str(work / "operator/tls.crt")]
        command += ["--key", str(work / "operator/tls.key"), f"https://{host}:{port}{path}"]
        if body is not None:
            command += ["--header", "Content-Type: application/json", "--data", json.dumps(body)]
        done = subprocess.run(command, input=header, capture_output=True, text=True, check=False)
        answer, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(answer) if done.returncode == 0 else done.stderr
