"""The labels of containers and volumes: whose they are, and the app that a container runs."""

import secrets
from collections.abc import Iterable
from typing import Any

import msgspec

from agent.apps.errors import InvalidApp
from agent.engine.models import InspectedContainer
from agent.model import FIELD_KINDS, App, FieldKind

APP_LABEL = "rollcall.app"
AGENT_LABEL = "rollcall.agent"
OPERATION_LABEL = "rollcall.change"
PATH_LABEL = "rollcall.path"
NOTE_LABEL = "rollcall.note"
# A container that only serves to read volumes has it with this value.
HELPER_LABEL = "rollcall.reads"
HELPS = "yes"
# Random, so that no image has the same: a container inherits each label of its image that it is
# not given.
MARK_LABEL = "rollcall.mark"
SPEC_LABEL = "rollcall.spec"
MAX_SPEC_BYTES = 65_536
# The fields of an app in the label of its container. Live ones are in the container's own settings,
# and so are the values of `env`: the engine publishes labels in its events, so none is secret.
LABELLED_FIELDS = (
    *(
        field
        for field, kind in FIELD_KINDS.items()
        if kind in (FieldKind.REPLACING, FieldKind.METADATA)
    ),
    "created_at",
    "labels",
    "volumes",
)
# The engine escapes these in JSON: each as six bytes.
ESCAPED_BY_ENGINE = "<>&\u2028\u2029"


def container_labels(
    *,
    agent: str,
    app: str = "",
    operation: str = "",
    spec: str = "",
    note: str = "",
    helps: bool = False,
) -> dict[str, str]:
    """Return all labels of a container, also the empty ones: none may come from its image.

    ``agent`` and ``operation`` are the ids of what makes it; ``helps`` says that it only serves to
    read volumes.
    """
    return {
        APP_LABEL: app,
        AGENT_LABEL: agent,
        OPERATION_LABEL: operation,
        SPEC_LABEL: spec,
        NOTE_LABEL: note,
        HELPER_LABEL: HELPS if helps else "",
        MARK_LABEL: secrets.token_hex(16),
    }


def encode_label(app: App) -> str:
    """Return the label from which ``app_from_label`` reads the app."""
    values: dict[str, Any] = {field: getattr(app, field) for field in LABELLED_FIELDS}
    return msgspec.json.encode({**values, "env": tuple(app.env)}).decode()


def app_from_label(container: InspectedContainer, **fields: Any) -> App:
    """Return the app of a container: its labelled fields, its environment, and these fields.

    Raises:
        msgspec.MsgspecError: the label cannot be read.

    """
    label = msgspec.json.decode(container.labels.get(SPEC_LABEL, ""), type=dict[str, Any])
    values = {field: label[field] for field in LABELLED_FIELDS if field in label}
    names = msgspec.convert(label.get("env"), tuple[str, ...])
    values["env"] = {name: container.env[name] for name in names if name in container.env}
    return msgspec.convert({**values, **fields}, App)


def engine_bytes(texts: Iterable[str]) -> int:
    """Return how many bytes texts take in the JSON of the engine, without their quotes."""
    return sum(
        len(msgspec.json.encode(text))
        - 2
        + sum(text.count(each) * (6 - len(each.encode())) for each in ESCAPED_BY_ENGINE)
        for text in texts
    )


def check_label_size(app: App) -> None:
    """Reject an app whose label would be too large; InvalidApp.

    The volumes do not count: their paths have a limit of their own.
    """
    size = engine_bytes([encode_label(msgspec.structs.replace(app, volumes={}))])
    if size > MAX_SPEC_BYTES:
        raise InvalidApp(
            f"the labels, `command`, `health`, `description`, `data` and the names in `env` of app"
            f" `{app.name}` take {size} bytes together in the engine's lists and events, and may"
            f" take {MAX_SPEC_BYTES}; < > & and characters that are escaped take up to 7 bytes"
        )
