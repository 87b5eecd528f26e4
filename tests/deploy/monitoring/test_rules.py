"""The rules for Prometheus: each alert fires when it should, and somebody is told what to do."""

import re
import subprocess
from collections import defaultdict
from typing import get_args

import promql_parser
import pytest
import yaml

from agent.apps.views.apps import AppState
from tests.support.monitoring import FOLDER, RULES, alerts, expressions, matched, selectors_in
from tests.support.pages import FENCED, Page

CASES = FOLDER / "rules_test.yml"
SEVERITIES = {"critical", "warning", "info"}


@pytest.mark.real("promtool")
@pytest.mark.parametrize("command", [["check", "rules", RULES], ["test", "rules", CASES]])
def test_promtool_finds_no_fault(command: list[str]) -> None:
    done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_cases_in_which_it_fires_and_in_which_it_does_not() -> None:
    cases = defaultdict(set)
    for group in yaml.safe_load(CASES.read_text())["tests"]:
        for case in group.get("alert_rule_test", []):
            cases[case["alertname"]].add(bool(case.get("exp_alerts")))

    assert cases == {name: {True, False} for name in alerts()}


@pytest.mark.page("docs/runbooks.md")
def test_each_alert_has_its_section_in_the_runbooks_and_each_section_its_alert() -> None:
    headings = re.findall(r"^## (.*)$", FENCED.sub("", Page("docs/runbooks.md").text), re.MULTILINE)

    assert sorted(headings) == sorted(alerts())
    for name, alert in alerts().items():
        assert alert["annotations"].keys() == {"summary", "runbook"}
        assert alert["annotations"]["runbook"] == f"docs/runbooks.md#{name.lower()}"
        assert alert["labels"]["severity"] in SEVERITIES


def test_only_states_that_there_are_are_asked_for() -> None:
    asked: set[str] = set()
    for expression in expressions():
        for selector in selectors_in(expression.text):
            if selector.name == "rollcall_app_state":
                for value, op in matched(selector, "state").items():
                    regular = op is promql_parser.MatchOp.Re
                    asked |= set(value.split("|")) if regular else {value}

    assert {"running", "updating"} <= asked <= set(get_args(AppState))


def test_the_page_names_each_alert_with_its_severity() -> None:
    rows = re.findall(
        r"^\| (`Rollcall.*`) \| `(\w+)` \|$", Page("docs/prometheus.md").text, re.MULTILINE
    )
    told = {name: severity for names, severity in rows for name in re.findall(r"`(\w+)`", names)}

    assert told == {name: alert["labels"]["severity"] for name, alert in alerts().items()}
