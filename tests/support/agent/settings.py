"""Settings of an agent, in a file and read."""

from pathlib import Path
from typing import Any

import yaml

from agent.settings import AgentConfiguration

KEY = "0123456789abcdef0123"


def written(folder: Path, **settings: Any) -> Path:
    """Write settings of an agent with one registry."""
    (folder / "node.key").touch(mode=0o600)
    (folder / "node.key").write_text(KEY)
    (folder / "state").mkdir(exist_ok=True)
    line = {"url": "http://127.0.0.1:7655", "key_file": "node.key"}
    base = {
        "listen": "127.0.0.1:7656",
        "keys": [{"name": "ops", "value": KEY, "allow": ["read", "write"]}],
        "node": {"hostname": "web-1"},
        "registries": [line],
        "store": f"sqlite:///{folder}/state/agent.db",
    }
    file = folder / "agent.yml"
    file.write_text(yaml.safe_dump(base | settings))
    file.chmod(0o600)
    return file


def configuration(folder: Path, **settings: Any) -> AgentConfiguration:
    """Write settings of an agent with one registry, and return what they mean."""
    return AgentConfiguration(written(folder, **settings), environ={})


def group(*urls: str) -> dict[str, Any]:
    """Return the setting of one group of registries."""
    return {"registries": [{"urls": list(urls), "key_file": "node.key"}]}
