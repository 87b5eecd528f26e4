from typing import Any

import msgspec
import pytest

from agent.reload import needing_restart
from config.agent import AgentSettings

LINE = {"url": "https://registry:7655", "key_file": "node.key"}


def settings(**given: Any) -> AgentSettings:
    return msgspec.convert(given, AgentSettings)


def test_keys_labels_and_kv_need_no_restart() -> None:
    key = {"name": "ops", "file": "ops.key", "allow": ["read"]}
    node = {"labels": ["a:b"], "labels_dir": "elsewhere", "kv": {"rack": "r12"}}

    assert needing_restart(settings(), settings(keys=[key], node=node)) == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"node": {"hostname": "web-2"}}, "node"),
        ({"heartbeat_seconds": 5}, "heartbeat_seconds"),
        ({"registries": [LINE]}, "registries"),
        ({"listen": "127.0.0.1:1"}, "listen"),
        ({"apps": {"cpu": 50}}, "apps"),
    ],
)
def test_what_needs_a_restart_is_named(change: dict[str, Any], name: str) -> None:
    assert needing_restart(settings(), settings(**change)) == [name]
