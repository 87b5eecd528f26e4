"""Looking at an app's container behind the agent's back."""

from typing import Any

import docker


def limits(client: docker.APIClient, record: dict[str, Any]) -> tuple[int, int, int, int]:
    """Return the limits of an app in the engine: period, quota, memory, memory and swap."""
    host = client.inspect_container(record["container_id"])["HostConfig"]
    return host["CpuPeriod"], host["CpuQuota"], host["Memory"], host["MemorySwap"]


def containers_of(client: docker.APIClient, name: str) -> list[dict[str, Any]]:
    """List the containers of an app, as the engine has them."""
    found: list[dict[str, Any]] = client.containers(
        all=True, filters={"label": f"rollcall.app={name}"}
    )
    return found


def write_file(client: docker.APIClient, record: dict[str, Any], text: str) -> None:
    """Write a file into an app's volume."""
    run_in_container(client, record, f"printf %s {text} > /srv/file")


def read_file(client: docker.APIClient, record: dict[str, Any]) -> str:
    """Read the file in an app's volume."""
    return run_in_container(client, record, "cat /srv/file")


def run_in_container(client: docker.APIClient, record: dict[str, Any], script: str) -> str:
    """Run a script in an app's container; return its output."""
    made = client.exec_create(record["container_id"], ["/bin/sh", "-c", script])
    output: bytes = client.exec_start(made["Id"])
    assert client.exec_inspect(made["Id"])["ExitCode"] == 0, output
    return output.decode()
