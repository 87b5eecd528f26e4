"""Agents that an operator's command reaches by what they tell the registry."""

from collections.abc import Mapping
from typing import Any

import yaml

from tests.support.daemons import Daemon, Daemons


def advertised_agent(
    daemons: Daemons,
    registry: Daemon,
    *,
    hostname: str,
    engine: str,
    apps: Mapping[str, Any],
    **settings: Any,
) -> Daemon:
    """Start an agent with the label `service:web`, and with the key of the registry's operator."""
    agent = daemons.agent(
        registries=[registry],
        engine=engine,
        node={"hostname": hostname, "labels": ["service:web"]},
        apps=apps,
        **settings,
        # The command has one key for all.
        keys=[{"name": "ops", "file": str(registry.key_path), "allow": ["read", "write"]}],
    )
    agent.key = registry.key
    agent.terminate()
    written = yaml.safe_load(agent.config_path.read_text())
    written["node"]["advertise"] = agent.base_url
    agent.config_path.write_text(yaml.safe_dump(written))
    agent.start()
    return agent
