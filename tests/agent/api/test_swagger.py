"""The Swagger document has every field of AppSpec where a client sends or reads it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.apps.views.apps import AppView
from agent.model import FIELD_KINDS, FieldKind
from agent.state.history import Revision

DOCUMENT = Path(__file__).parents[3] / "agent" / "swagger.yml"


@pytest.fixture
def definitions() -> Any:
    """Return the definitions of the document."""
    return yaml.safe_load(DOCUMENT.read_text())["definitions"]


@pytest.mark.slow
def test_a_new_app_may_have_every_field(definitions: Any) -> None:
    new_app = definitions["NewApp"]

    assert new_app["properties"].keys() == set(FIELD_KINDS)
    assert new_app["additionalProperties"] is False
    assert new_app["properties"]["ssh_port"]["minimum"] == 0


@pytest.mark.slow
def test_a_change_may_have_every_field_that_is_not_fixed(definitions: Any) -> None:
    changes = definitions["AppChanges"]
    changeable = {name for name, kind in FIELD_KINDS.items() if kind is not FieldKind.FIXED}

    assert changes["properties"].keys() == changeable
    assert changes["additionalProperties"] is False
    assert changes["properties"]["ssh_port"]["minimum"] == 0


@pytest.mark.slow
def test_an_app_has_every_field_of_a_view(definitions: Any) -> None:
    app = definitions["App"]

    assert app["properties"].keys() == set(AppView.__struct_fields__)
    assert set(app["required"]) <= app["properties"].keys()
    assert app["properties"]["env"]["additionalProperties"]["x-nullable"]


@pytest.mark.slow
def test_a_revision_has_every_field_of_the_history(definitions: Any) -> None:
    revision = definitions["Revision"]

    assert revision["properties"].keys() == set(Revision.__struct_fields__)
    assert set(revision["required"]) <= revision["properties"].keys()
    assert revision["properties"]["env"]["additionalProperties"]["x-nullable"]
