"""The rules for Prometheus: each alert fires when it should, and says what to do."""

import re
import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import promql_parser
import pytest
import yaml

from agent.apps.records import AppState
from tests.support.monitoring import FOLDER, RULES, alerts, expressions, matched, selectors_in
from tests.support.pages import FENCED, Page

CASES = FOLDER / "rules_test.yml"
SEVERITIES = {"critical", "warning", "info"}


@pytest.mark.real("promtool")
def test_promtool_finds_no_fault_in_the_rules() -> None:
    assert_promtool_finds_no_fault("check", "rules", RULES)


@pytest.mark.release("each case with all rules; the next test has those that a case needs")
@pytest.mark.real("promtool")
def test_promtool_finds_no_fault_in_the_cases_with_all_rules() -> None:
    assert_promtool_finds_no_fault("test", "rules", CASES)


@pytest.mark.real("promtool")
def test_promtool_finds_no_fault_in_the_cases(tmp_path: Path) -> None:
    """Test each case by the rules of its alerts: all would take five times the processor time."""
    rules = yaml.safe_load(RULES.read_text())
    # As text: promtool reads `0x4` as four zeros.
    head, *cases = re.split(r"^(?=  - name: )", CASES.read_text(), flags=re.MULTILINE)
    assert len(cases) == len(yaml.safe_load(CASES.read_text())["tests"])
    by_alerts = defaultdict(list)
    for case in cases:
        by_alerts[frozenset(re.findall(r"alertname: (\w+)", case))].append(case)
    files = []
    for number, (names, texts) in enumerate(by_alerts.items()):
        groups = [{**group, "rules": needed(group["rules"], names)} for group in rules["groups"]]
        (tmp_path / f"{number}-rules.yml").write_text(yaml.safe_dump({"groups": groups}))
        files.append(tmp_path / f"{number}.yml")
        own = head.replace("[rules.yml]", f"[{number}-rules.yml]")
        files[-1].write_text(own + "".join(texts))

    assert_promtool_finds_no_fault("test", "rules", *files)


def needed(rules: Iterable[Mapping[str, Any]], alerts: Collection[str]) -> list[Mapping[str, Any]]:
    """Return the rules of alerts, and those that record what alerts look at."""
    return [rule for rule in rules if "record" in rule or rule["alert"] in alerts]


def assert_promtool_finds_no_fault(*command: str | Path) -> None:
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
    reported = {
        name: severity for names, severity in rows for name in re.findall(r"`(\w+)`", names)
    }

    assert reported == {name: alert["labels"]["severity"] for name, alert in alerts().items()}
