"""The labels of containers and volumes, which say whose they are."""

import secrets

from agent.apps.app_label import SPEC_LABEL

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
