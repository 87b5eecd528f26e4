"""The Swagger document of the agent: valid, complete, and true to the types of what is served."""

from collections.abc import AsyncIterator, Callable
from functools import reduce
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlencode

import msgspec
import pytest
import pytest_asyncio
import structlog
import yaml
from aiohttp.test_utils import make_mocked_request
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest_aiohttp import AiohttpClient
from structlog.testing import LogCapture

from agent.api.changes import LabelBody, RollbackBody
from agent.api.requests import decode_fields, log_window
from agent.apps.admission.fields import check_changes, check_label
from agent.apps.containers.passwords import check_password
from agent.apps.errors import AppError
from agent.apps.metrics.sampler import UsageSamples
from agent.apps.records import AppState, AppView, EventView, PlanView
from agent.apps.service.queries import Stats
from agent.engine.models import Process
from agent.model import AppChanges, NewApp
from agent.state.history import Revision
from httpd.errors import BadInput
from httpd.metrics import new_metrics
from tests.support.agent.engines.fake_engine import FakeEngine
from tests.support.agent.in_process import READER, application
from tests.support.agent.running_apps import AT_ONCE, AskedApps, running_apps
from tests.support.examples import share_of
from tests.support.httpd.swagger import (
    check_document,
    differences,
    documented_operations,
    fits,
    served_operations,
    texts,
)

DOCUMENT = Path(__file__).parents[3] / "agent" / "swagger.yml"
LOG = structlog.wrap_logger(None, processors=[LogCapture()])
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def document() -> Any:
    return yaml.safe_load(DOCUMENT.read_text())


@pytest_asyncio.fixture
async def apps(tmp_path: Path) -> AsyncIterator[AskedApps]:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        yield apps


async def test_it_is_valid_as_it_is_served(apps: AskedApps, aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(application(apps, new_metrics(), LOG))
    response = await client.get("/swagger.json", headers={"Authorization": READER})

    check_document(await response.json())


async def test_it_has_the_operations_of_the_agent_and_no_others(
    apps: AskedApps, document: Any
) -> None:
    app = application(apps, new_metrics(), LOG)

    assert documented_operations(document) == served_operations(app)


@pytest.mark.parametrize(
    ("definition", "kind"),
    [
        ("NewApp", NewApp),
        ("AppChanges", AppChanges),
        ("Label", LabelBody),
        ("Rollback", RollbackBody),
        ("Event", EventView),
        ("Process", Process),
        ("Stats", Stats),
        ("Usage", UsageSamples),
    ],
)
def test_what_is_sent_and_read_is_documented_as_it_is(
    document: Any, definition: str, kind: Any
) -> None:
    assert differences(document, definition, kind) == []


def test_records_are_documented_as_they_are_with_the_nulls_that_are_put_into_them_later(
    document: Any,
) -> None:
    # For a key that may only read, and in the plan of an image that would be pulled.
    env = "env.*: it cannot be null"

    command = "command: it cannot be null"
    assert differences(document, "App", AppView) == [f"App.{env}", f"App.{command}"]
    assert differences(document, "Plan", PlanView) == [
        f"Plan.app.{env}",
        f"Plan.app.{command}",
        "Plan.app.volumes: it cannot be null",
    ]
    revision = differences(document, "Revision", Revision)
    assert revision[:2] == [f"Revision.{env}", f"Revision.{command}"]
    # Not every operation makes a revision.
    assert all(each.startswith("Revision.operation:") for each in revision[2:])


def test_all_states_of_an_app_are_in_it(document: Any) -> None:
    (filtered,) = [
        each
        for each in document["paths"]["/v1/apps"]["get"]["parameters"]
        if each["name"] == "state"
    ]
    shown = document["definitions"]["App"]["properties"]["state"]

    assert filtered["items"]["enum"] == shown["enum"] == list(get_args(AppState))


def test_the_answer_to_a_change_has_the_fields_of_an_app_and_of_a_plan(document: Any) -> None:
    definitions = document["definitions"]
    both = definitions["App"]["properties"] | definitions["Plan"]["properties"]

    assert definitions["AppOrPlan"]["properties"].keys() == both.keys()
    assert set(definitions["AppOrPlan"]["required"]) == set(definitions["App"]["required"]) & set(
        definitions["Plan"]["required"]
    )


def changes(body: Any) -> None:
    check_changes(decode_fields(msgspec.json.encode(body), msgspec.json.Decoder(AppChanges)))


def window(name: str, text: str) -> None:
    log_window(make_mocked_request("GET", f"/?{urlencode({name: text})}"))


FIELDS = ("definitions", "AppChanges", "properties")
LOGS = ("paths", "/v1/apps/{app_name}/logs", "get", "parameters")
KEYS = ("paths", "/v1/apps/{app_name}/keys", "put", "parameters")


@pytest.mark.parametrize(
    ("place", "take"),
    [
        ((*FIELDS, "image"), lambda text: changes({"image": text})),
        ((*FIELDS, "command", "items"), lambda text: changes({"command": [text]})),
        ((*FIELDS, "data", "items"), lambda text: changes({"data": [text]})),
        ((*FIELDS, "env", "additionalProperties"), lambda text: changes({"env": {"A": text}})),
        (
            ("definitions", "HealthCheck", "properties", "path"),
            lambda text: changes({"health": {"path": text}}),
        ),
        (("definitions", "Label", "properties", "Value"), check_label),
        ((*LOGS, 0), lambda text: window("tail", text)),
        ((*KEYS, 0, "schema"), lambda text: check_password(text, min_length=8)),
    ],
    ids=["image", "command", "data", "env", "health", "label", "tail", "password"],
)
@settings(max_examples=share_of(25))
@given(data=st.data())
def test_a_text_is_accepted_if_the_document_allows_it_and_only_then(
    document: Any,
    place: tuple[str | int, ...],
    take: Callable[[str], object],
    data: st.DataObject,
) -> None:
    schema = reduce(lambda found, name: found[name], place, document)
    text = data.draw(texts(schema))

    assert is_accepted(take, text) == fits(schema, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "1770000000.5",
        "2024-02-29",
        "2026-12-31",
        "2026-01-31T12:00",
        "2026-01-31T12:00:00Z",
        "2026-01-31 23:59:59.123456789+02:00",
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_a_time_is_documented_and_accepted(document: Any, text: str) -> None:
    schema = reduce(lambda found, name: found[name], (*LOGS, 1), document)

    assert fits(schema, text)
    assert is_accepted(lambda text: window("since", text), text)


@pytest.mark.parametrize(
    "text",
    ["-1", "yesterday", "2026-02-29", "2026-13-01", "2026-01-31T24:01:00Z", "2026-01-31T12:00:00+"],
)
def test_what_is_no_time_is_neither_documented_nor_accepted(document: Any, text: str) -> None:
    schema = reduce(lambda found, name: found[name], (*LOGS, 1), document)

    assert not fits(schema, text)
    assert not is_accepted(lambda text: window("since", text), text)


@pytest.mark.parametrize("body", [{}, {"interval_seconds": 5}, {"path": "/", "command": ["true"]}])
def test_a_check_has_a_path_or_a_command(document: Any, body: Any) -> None:
    assert not is_accepted(lambda _text: changes({"health": body}), "")
    assert document["definitions"]["HealthCheck"]["minProperties"] == 1
    assert "either `path` or `command`" in document["definitions"]["HealthCheck"]["description"]


def is_accepted(take: Callable[[str], object], text: str) -> bool:
    try:
        take(text)
    except (AppError, BadInput):
        return False
    return True
