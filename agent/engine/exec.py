"""Runs a command in a container with a time limit, which docker-py lacks."""

import os
import socket
import threading
import time
from contextlib import suppress

import requests
from docker.errors import APIError, create_api_error_from_http_exception

from agent.engine.commands import Client
from agent.engine.errors import CommandTimeout
from agent.engine.models import ExecResult
from agent.engine.streams import LogFrames

OUTPUT = 4096
POLL_SECONDS = 0.05
NOT_RUNNABLE = 127
UPGRADE_HEADERS = {"Connection": "Upgrade", "Upgrade": "tcp"}


def execute(
    client: Client,
    container_id: str,
    command: list[str],
    stdin: bytes,
    seconds: float,
    *,
    user: str,
) -> ExecResult:
    """Run a command, send it its input, and read the beginning of its output.

    ``user`` is empty for the container's own.

    Raises:
        CommandTimeout: it did not end in ``seconds``. It is a program of the app, which may hang or
            write without end; this thread must not wait for it.

    """
    exec_id = str(client.exec_create(container_id, command, stdin=True, user=user)["Id"])
    deadline = time.monotonic() + seconds
    try:
        response = _start(client, exec_id)
    except APIError as error:
        if "executable file not found" in str(error) or "no such file" in str(error):
            return ExecResult(exit_code=NOT_RUNNABLE, output=str(error.explanation or ""))
        raise
    # docker-py's own way to this socket is a private attribute of Python's, and sets no timeout.
    with response, socket.socket(fileno=os.dup(response.raw.fileno())) as connection:
        output = _converse(connection, stdin, deadline)
    return ExecResult(exit_code=_exit_code(client, exec_id, deadline), output=output)


def _start(client: Client, exec_id: str) -> requests.Response:
    response: requests.Response = client.post(
        f"{client.base_url}/v{client.api_version}/exec/{exec_id}/start",
        json={"Detach": False, "Tty": False},
        headers=UPGRADE_HEADERS,
        stream=True,
        timeout=client.timeout,
    )
    try:
        response.raise_for_status()
    except requests.HTTPError as error:
        with response:
            create_api_error_from_http_exception(error)
    return response


def _converse(connection: socket.socket, stdin: bytes, deadline: float) -> str:
    output = b""
    # The command may end without reading its input, or not end at all; its exit code says so.
    with suppress(BrokenPipeError, TimeoutError):
        connection.settimeout(max(0.1, deadline - time.monotonic()))
        connection.sendall(stdin)
        connection.shutdown(socket.SHUT_WR)
        while time.monotonic() < deadline and (chunk := connection.recv(OUTPUT)):
            output = (output + chunk)[:OUTPUT]
            connection.settimeout(max(0.1, deadline - time.monotonic()))
    # Only that part is decoded: the stream has frames, since the command has no terminal.
    return b"".join(LogFrames().contents(output)).decode("utf-8", "replace")


def _exit_code(client: Client, exec_id: str, deadline: float) -> int:
    waiting = threading.Event()
    while (code := client.exec_inspect(exec_id)["ExitCode"]) is None:
        if time.monotonic() > deadline:
            raise CommandTimeout("the command does not end")
        waiting.wait(POLL_SECONDS)
    return int(code)
