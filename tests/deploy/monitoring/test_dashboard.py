"""The dashboard, as far as it can be checked without Grafana."""

from itertools import combinations
from typing import Any

from tests.support.monitoring import dashboard, expressions, panels, selectors_in

WIDTH = 24
KINDS = {"row", "stat", "timeseries"}
PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}


def overlap(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Return whether two panels lie on each other."""
    return all(
        first[start] < second[start] + second[length]
        and second[start] < first[start] + first[length]
        for start, length in (("x", "w"), ("y", "h"))
    )


def test_it_has_the_form_of_a_dashboard() -> None:
    found = dashboard()

    assert (found["title"], found["uid"], found["schemaVersion"]) == ("Rollcall", "rollcall", 39)
    # Whoever imports it has no dashboard with this number.
    assert "id" not in found


def test_its_panels_have_numbers_of_their_own_and_fill_rows_without_overlapping() -> None:
    every = dashboard()["panels"]
    places = [panel["gridPos"] for panel in every]

    assert len({panel["id"] for panel in every}) == len(every)
    assert {panel["type"] for panel in every} == KINDS
    assert all(panel["title"] for panel in every)
    assert not [pair for pair in combinations(places, 2) if overlap(*pair)]
    area = sum(place["w"] * place["h"] for place in places)
    assert area == WIDTH * max(place["y"] + place["h"] for place in places)
    assert all(0 <= place["x"] <= WIDTH - place["w"] for place in places)


def test_whoever_imports_it_chooses_the_prometheus() -> None:
    first, *others = dashboard()["templating"]["list"]

    assert (first["name"], first["type"], first["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    for asking in (*others, *panels(), *(each for panel in panels() for each in panel["targets"])):
        assert asking["datasource"] == PROMETHEUS


def test_each_query_of_a_panel_has_a_letter_and_a_selector() -> None:
    for panel in panels():
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == [chr(ord("A") + number) for number in range(len(letters))]
    assert all(selectors_in(expression.text) for expression in expressions())
