"""The calls that docker-py would let wait for ever, or read without a bound."""

import io
import socket
import tarfile
import threading
import time
from contextlib import closing, suppress

import requests
from docker.errors import APIError, create_api_error_from_http_exception

from agent.engine.connection import Client
from agent.engine.protocol import CommandTimeout, EngineConflict, EngineRefused, ExecResult
from agent.engine.translation import understood

OUTPUT = 4096
SMALL_FILE = 1 << 20
POLL_SECONDS = 0.05
NOT_RUNNABLE = 127


def url(client: Client, path: str) -> str:
    """Give the address of a path in the version of the interface that the client speaks."""
    return f"{client.base_url}/v{client.api_version}{path}"


def checked(response: requests.Response) -> requests.Response:
    """Raise docker-py's error for a response that is one."""
    try:
        response.raise_for_status()
    except requests.HTTPError as error:
        create_api_error_from_http_exception(error)
    return response


def execute(
    client: Client, container_id: str, command: list[str], stdin: bytes, seconds: float
) -> ExecResult:
    """Run a command as root, send it its input, and read the beginning of its output.

    Raises:
        CommandTimeout: it did not end in ``seconds``. It is the app's own program, which may hang,
            or write for ever: neither may keep this thread.

    """
    made = client.exec_create(container_id, command, stdin=True, user="0")
    with understood():
        exec_id = str(made["Id"])
    try:
        stream = client.exec_start(exec_id, socket=True)
    except APIError as error:
        if "executable file not found" in str(error) or "no such file" in str(error):
            return ExecResult(exit_code=NOT_RUNNABLE, output="")
        raise
    deadline = time.monotonic() + seconds
    connection = getattr(stream, "_sock", stream)
    with closing(stream), closing(connection):
        output = _converse(connection, stdin, deadline)
    return ExecResult(exit_code=_exit_code(client, exec_id, deadline), output=output)


def _converse(connection: socket.socket, stdin: bytes, deadline: float) -> str:
    output = b""
    # It may end without reading, and may not end at all; its exit code tells.
    with suppress(BrokenPipeError, TimeoutError):
        connection.settimeout(max(0.1, deadline - time.monotonic()))
        connection.sendall(stdin)
        connection.shutdown(socket.SHUT_WR)
        while time.monotonic() < deadline and (chunk := connection.recv(OUTPUT)):
            output = (output + chunk)[:OUTPUT]
            connection.settimeout(max(0.1, deadline - time.monotonic()))
    return output.decode("utf-8", "replace")


def _exit_code(client: Client, exec_id: str, deadline: float) -> int:
    waiting = threading.Event()
    while True:
        told = client.exec_inspect(exec_id)
        with understood():
            if told["ExitCode"] is not None:
                return int(told["ExitCode"])
        if time.monotonic() > deadline:
            raise CommandTimeout("the command does not end")
        waiting.wait(POLL_SECONDS)


def read_file(client: Client, container_id: str, path: str) -> bytes:
    """Read a small regular file, as the engine packs it: a tar of one member."""
    response = checked(
        client.get(
            url(client, f"/containers/{container_id}/archive"),
            params={"path": path},
            headers={"Accept-Encoding": "identity"},
            stream=True,
            timeout=client.timeout,
        )
    )
    with response:
        packed = response.raw.read(SMALL_FILE)
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
            member = archive.next()
            content = archive.extractfile(member) if member and member.isreg() else None
            if content is not None:
                return content.read(SMALL_FILE)
    except tarfile.TarError as error:
        raise EngineRefused(f"{path} in the container cannot be read") from error
    raise EngineConflict(f"{path} in the container is no regular file")
