"""What is missing at an engine of another address than the default one."""

import socket
from pathlib import Path
from threading import Thread

import pytest

from dev.run.missing import Missing, missing


@pytest.mark.parametrize("answer", [b"", b"no HTTP", b"HTTP/1.1 500 Broken\r\n\r\n"])
def test_what_does_not_answer_as_an_engine_is_none(tmp_path: Path, answer: bytes) -> None:
    path = tmp_path / "docker.sock"

    def answer_once(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        answering = Thread(target=answer_once, args=[listener])
        answering.start()
        found = missing(f"unix://{path}")
        answering.join()

    why = f"what listens at unix://{path} does not answer as a Docker Engine"
    assert found == Missing(why)


def test_a_socket_that_nobody_listens_at_is_reported_by_its_address(tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/docker.sock"

    assert missing(url) == Missing(f"no Docker Engine runs at {url}")
