from pathlib import Path

import pytest

from tests.support.daemons import Daemons
from tests.support.run.answers import FILE, Answer, recorded
from tests.support.run.coverage import all_documented, documented, problems

OK = Answer("registry", "GET", "/nodes/{}", 200)
UNKNOWN = Answer("registry", "GET", "/nodes/{}", 404)
LONG_LINE = Answer("registry", "other", "unmatched", 414)
DOCUMENT = {
    "paths": {
        "/nodes/{hostname}": {
            "parameters": [],
            "get": {"responses": {200: {}, 404: {}, 414: {}}},
        }
    }
}


def test_each_answer_of_a_document_is_expected_and_one_before_the_path_is_known_once() -> None:
    assert documented("registry", DOCUMENT) == {OK, UNKNOWN, LONG_LINE}
    assert OK in all_documented()


def test_an_answer_that_no_test_got_is_a_problem_unless_it_is_an_exception() -> None:
    expected = {OK, UNKNOWN}

    assert problems(expected, expected, {}) == []
    assert problems(expected, {OK}, {}) == ["no test got registry GET /nodes/{} 404"]
    assert problems(expected, {OK}, {"none is unknown": ["* GET /nodes/{} 404"]}) == []


@pytest.mark.parametrize("pattern", ["registry GET /nodes/{} 404", "registry GET /nodes/{} 5*"])
def test_an_exception_for_what_a_test_got_or_no_document_has_is_a_problem(pattern: str) -> None:
    expected = {OK, UNKNOWN}

    assert problems(expected, expected, {"a reason": [pattern]}) == [
        f"{pattern} needs no exception"
    ]


@pytest.mark.real
def test_daemons_that_are_processes_record_heartbeats_other_requests_and_malformed_ones(
    daemons: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "answers"
    monkeypatch.setenv(FILE, str(file))
    registry, agent = daemons.registry(), daemons.agent()
    for _ in range(2):
        assert registry.ask("POST", "/nodes/web-1", json={"labels": [], "kv": {}}).ok
    assert agent.ask("GET", "/v1/apps/none/stats").status_code == 404
    assert registry.ask("GET", "/nodes?" + "x" * 20_000).status_code == 414

    assert recorded(file) >= {
        Answer("registry", "POST", "/nodes/{}", 200),
        Answer("agent", "GET", "/v1/apps/{}/stats", 404),
        LONG_LINE,
    }
