"""An operator at the work machine, with the files that docs/rollout.md makes there."""

import json
import ssl
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
        status, nodes = self._ask(REGISTRY, "/nodes")
        return {node["hostname"]: node for node in nodes} if status == HTTPStatus.OK else {}

    def fresh(self, seconds: int) -> set[str]:
        """Return the hosts that the registry has seen within a time."""
        status, nodes = self._ask(REGISTRY, f"/nodes?max_age={seconds}")
        return {node["hostname"] for node in nodes} if status == HTTPStatus.OK else set()

    def create_app(self, host: str, app: Mapping[str, Any]) -> None:
        """Let a host run an app."""
        status, answer = self._ask(host, "/v1/apps", app)
        assert status == HTTPStatus.CREATED, answer

    def report(self, host: str, node_key: str) -> int:
        """Send the last heartbeat of a host again, with a node key of it; return the status."""
        node = self.nodes()[host]
        message = {"labels": node["labels"], "kv": node["kv"]}
        return self._send(REGISTRY, f"/nodes/{host}", node_key, host, message)[0]

    def certificate(self, host: str) -> str:
        """Return the certificate that the daemon of a host shows."""
        return ssl.get_server_certificate((self._addresses[host], _port(host)), timeout=30)

    def _ask(self, host: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask with the operator's key and certificate."""
        folder = "registry" if host == REGISTRY else host
        key = (self._work / folder / "ops").read_text().strip()
        return self._send(host, path, key, "operator", body)

    def _send(
        self, host: str, path: str, key: str, certificate: str, body: object
    ) -> tuple[int, Any]:
        """Return the status and the JSON of an answer, 0 if there was none."""
        port = _port(host)
        own = self._work / certificate
        header = f"Authorization: {key}\n"
        command = ["curl", "--silent", "--max-time", "30", "--noproxy", "*"]
        command += ["--header", "@-", "--write-out", "\n%{http_code}"]
        command += ["--resolve", f"{host}:{port}:{self._addresses[host]}"]
        command += ["--cacert", str(self._work / "ca.crt"), "--cert", str(own / "tls.crt")]
        command += ["--key", str(own / "tls.key"), f"https://{host}:{port}{path}"]
        if body is not None:
            command += ["--header", "Content-Type: application/json", "--data", json.dumps(body)]
        done = subprocess.run(command, input=header, capture_output=True, text=True, check=False)
        answer, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(answer) if done.returncode == 0 else done.stderr


def _port(host: str) -> int:
    return REGISTRY_PORT if host == REGISTRY else AGENT_PORT
