"""The rules and the dashboard of deploy/monitoring, and what their expressions ask for."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import promql_parser
import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "monitoring"
RULES = FOLDER / "rules.yml"
VARIABLE = re.compile(r"\$(\w+)")
LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


class Expression(NamedTuple):
    """An expression, where it stands, and the labels that its result is shown with."""

    place: str
    text: str
    shown: frozenset[str]


def rules() -> list[dict[str, Any]]:
    """Return all rules, as they stand in the file."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """Return the alerts by their names."""
    found = [rule for rule in rules() if "alert" in rule]
    assert len({rule["alert"] for rule in found}) == len(found)
    return {rule["alert"]: rule for rule in found}


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    found: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
    return found


def panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard, but not its rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[Expression]:
    """Yield each expression; one of the dashboard has all that its variables may choose."""
    for rule in rules():
        text = json.dumps(rule.get("annotations", {}))
        shown = frozenset(re.findall(r"\$labels\.(\w+)", text))
        yield Expression(rule.get("alert") or rule["record"], rule["expr"], shown)
    for panel in panels():
        for target in panel["targets"]:
            shown = frozenset(LEGEND.findall(target["legendFormat"]))
            yield Expression(panel["title"], _with_all(target["expr"]), shown)
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            series, _, label = variable["definition"][len("label_values(") : -1].rpartition(", ")
            yield Expression(variable["name"], series, frozenset({label}))


def _with_all(text: str) -> str:
    return VARIABLE.sub(".*", text)


def selectors_in(text: str) -> list[promql_parser.VectorSelector]:
    """Return the selectors of series in an expression. Raises ValueError if it is none."""
    return [each for each in _parts(text) if isinstance(each, promql_parser.VectorSelector)]


def labels_in(text: str) -> set[str]:
    """Return the labels by which an expression groups and matches."""
    found: set[str] = set()
    for part in _parts(text):
        if isinstance(part, promql_parser.AggregateExpr) and part.modifier:
            found |= set(part.modifier.labels)
        if isinstance(part, promql_parser.BinaryExpr) and part.modifier and part.modifier.matching:
            found |= set(part.modifier.matching.labels)
    return found


def _parts(text: str) -> list[promql_parser.Expr]:
    parts: list[promql_parser.Expr] = []
    promql_parser.walk(promql_parser.parse(text), pre_visit=parts.append)
    return parts


def matched(
    selector: promql_parser.VectorSelector, label: str
) -> Mapping[str, promql_parser.MatchOp]:
    """Return the values that a selector compares a label with."""
    return {each.value: each.op for each in selector.matchers.matchers if each.name == label}
