"""Why the socket of an engine cannot be connected to, and what helps."""

import errno
import grp
import os
import socket
from pathlib import Path

import pytest

from agent.engine.errors import EngineUnavailable
from agent.engine.http import EngineClient
from agent.engine.translation import from_library


async def failure(path: Path) -> EngineUnavailable:
    """Return the error of a request to the engine at a socket."""
    client = EngineClient(socket_path=str(path), timeout_seconds=10)
    try:
        with pytest.raises(EngineUnavailable) as raised:
            await client.api_version()
    finally:
        await client.close()
    return raised.value


@pytest.mark.parametrize(
    ("exists", "reason"), [(False, "its socket does not exist"), (True, "it does not run")]
)
async def test_the_path_of_a_socket_without_an_engine_is_named_to_the_host_alone(
    tmp_path: Path, *, exists: bool, reason: str
) -> None:
    path = tmp_path / "docker.sock"
    if exists:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))

    error = await failure(path)

    assert str(error) == f"the container engine cannot be reached: {reason}"
    assert str(path) in error.remedy


@pytest.mark.parametrize(
    ("mode", "remedy"),
    [
        (0o660, "add the user of the agent to the group {group}, and restart the agent"),
        (0o600, "run the agent as a user who may use it"),
    ],
)
def test_who_has_no_permission_is_reported_the_group_that_has_it(
    tmp_path: Path, mode: int, remedy: str
) -> None:
    path = tmp_path / "docker.sock"
    path.touch()
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, -1, grp.getgrnam("daemon").gr_gid)

    error = from_library(
        PermissionError(errno.EACCES, os.strerror(errno.EACCES)), socket_path=str(path)
    )

    assert isinstance(error, EngineUnavailable)
    assert str(error) == (
        "the container engine cannot be reached: the agent has no permission to use its socket"
    )
    assert error.remedy == f"{path}: {remedy.format(group=path.group())}"
