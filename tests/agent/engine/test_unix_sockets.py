"""No socket is left behind where nobody answers."""

import gc
import warnings
from pathlib import Path

import pytest
import requests
from agent.engine.unix_sockets import UnixAdapter
from docker import APIClient


def test_a_call_that_finds_nobody_leaves_no_socket_behind(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    client = APIClient(base_url=f"unix://{path}", version="1.41")
    client.mount("http+docker://", UnixAdapter(str(path)))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(requests.ConnectionError):
            client.ping()
        gc.collect()
    client.close()
