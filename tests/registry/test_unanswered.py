"""A change whose registry is killed before it could answer: asking again makes all well."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from dev.waiting import until
from tests.daemons import Daemon, Daemons

TOP = Path(__file__).parents[2]
BODY = {"labels": ["service:web"], "kv": {"agent.id": "i", "seq": "7"}}


@contextmanager
def dying(registry: Daemon, moment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a registry in the place of one that has ended, to be killed amid its first change."""
    command = [sys.executable, "-m", "tests.registry.dying", str(registry.config_path), moment]
    process = subprocess.Popen(command, cwd=TOP)

    def listens() -> bool:
        try:
            return requests.get(f"{registry.base_url}/healthz", timeout=5).ok
        except requests.ConnectionError:
            assert process.poll() is None
            return False

    try:
        until(listens, "an answer", within=30)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.real
@pytest.mark.parametrize(("moment", "known"), [("before", []), ("after", ["web-1"])])
def test_a_change_that_is_cut_off_is_unknown_and_harmless_to_repeat(
    daemons: Daemons, moment: str, known: list[str]
) -> None:
    registry = daemons.registry()
    registry.terminate()
    with dying(registry, moment) as process:
        with pytest.raises(requests.ConnectionError):
            registry.ask("POST", "/nodes/web-1", json=BODY)
        assert process.wait(30) == -9

    registry.start()
    assert [node["hostname"] for node in registry.ask("GET", "/nodes").json()] == known
    assert [registry.ask("POST", "/nodes/web-1", json=BODY).status_code for _ in "ab"] == [200, 200]

    (node,) = registry.ask("GET", "/nodes").json()
    assert (node["hostname"], node["labels"], node["kv"]) == ("web-1", BODY["labels"], BODY["kv"])
    assert registry.log().count("node added") == (0 if known else 1)
    assert "node changed" not in registry.log()
