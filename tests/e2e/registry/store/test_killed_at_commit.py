"""A change whose registry is killed before it could answer: asking again makes all well."""

import sys

import pytest
import requests

from tests.support.daemons import Daemons
from tests.support.registry.replacement_process import replacement_process

BODY = {"labels": ["service:web"], "kv": {"agent.id": "i", "seq": "7"}}


@pytest.mark.real
@pytest.mark.parametrize(("moment", "known"), [("before", []), ("after", ["web-1"])])
def test_a_change_that_is_cut_off_is_unknown_and_harmless_to_repeat(
    daemons: Daemons, moment: str, known: list[str]
) -> None:
    registry = daemons.registry()
    dying = (
        sys.executable,
        "-m",
        "tests.support.registry.stores.killed_at_commit",
        str(registry.config_path),
        moment,
    )
    with replacement_process(registry, *dying) as process:
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
