"""Hosts that are denied at registries which share a store: each is told of another list."""

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import yaml

from dev.waiting import until
from tests.support.daemons import Daemon

pytestmark = pytest.mark.real
SOON_SECONDS = 180.0
DENIED = ["web-7", "old-*"]
BODY: dict[str, Any] = {"labels": [], "kv": {}}


def differs_from(registry: Daemon) -> int:
    """Return how many other registries have another list, -1 until the other one is known."""
    status = registry.ask("GET", "/status").json()
    return len(status["denied"]["differs_from"]) if len(status["members"]) == 2 else -1


def have(registries: list[Daemon], count: int) -> bool:
    return {differs_from(registry) for registry in registries} == {count}


def test_a_list_that_one_registry_lacks_is_seen_at_each_until_that_has_it(
    start_registry: Callable[..., Daemon],
) -> None:
    here = start_registry(nodes={"denied": DENIED})
    there = start_registry()
    both = [here, there]
    until(partial(have, both, 1), "the difference", within=SOON_SECONDS)
    assert here.ask("POST", "/nodes/web-7", json=BODY).status_code == 403
    assert there.ask("POST", "/nodes/web-7", json=BODY).status_code == 200
    assert here.ask("GET", "/nodes").json() == []

    settings = yaml.safe_load(there.config_path.read_text())
    settings.setdefault("nodes", {})["denied"] = DENIED[::-1]
    there.config_path.write_text(yaml.safe_dump(settings))
    os.kill(there.pid, signal.SIGHUP)

    until(partial(have, both, 0), "the same list", within=SOON_SECONDS)
    assert "restart to apply" not in there.log()
    assert there.ask("GET", "/nodes").json() == []
    assert there.ask("POST", "/nodes/web-7", json=BODY).status_code == 403
