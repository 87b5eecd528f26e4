"""An agent with a group of registries: which of them it uses, and when it moves."""

from collections.abc import Sequence
from typing import Any

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.e2e.commands import SOON_SECONDS, change_settings, nodes, registry_statuses
from tests.support.e2e.reporting import log_lines

# Of a registry's settings: the key of the group's agents, beside the registry's own.
GROUP_KEY = "the-key-of-the-group-of-registries"
GROUP_KEYS: Sequence[dict[str, Any]] = [
    {"name": "ops", "file": "ops.key", "allow": ["read", "write"]},
    {"name": "hosts", "value": GROUP_KEY, "allow": ["register"]},
]
MOVED = "moved to another registry"


class GroupAgent:
    """An agent, `web-1`, that uses one of several registries, which have GROUP_KEYS."""

    def __init__(self, daemons: Daemons, registries: Sequence[Daemon]) -> None:
        self.registries = {each.base_url: each for each in registries}
        self.agent = daemons.agent(node={"hostname": "web-1"}, heartbeat_seconds=3)
        self.agent.terminate()
        self.folder = self.agent.config_path.parent
        (self.folder / "group.key").write_text(GROUP_KEY)
        group = {"urls": list(self.registries), "key_file": "group.key"}
        change_settings(self.agent, registries=[group])
        self.agent.start()
        self.until_reported("site:first", *self.registries.values())

    @property
    def used(self) -> Daemon:
        """The registry that the agent uses."""
        (url,) = [url for url, each in registry_statuses(self.agent).items() if each["current"]]
        return self.registries[url]

    def until_reported(
        self, label: str, *registries: Daemon, within: float = SOON_SECONDS
    ) -> Daemon:
        """Change the host's label; return which of the registries knows it, once one does."""
        (self.folder / "labels.d").mkdir(exist_ok=True)
        (self.folder / "labels.d" / "site").write_text(f"{label}\n")

        def look() -> Daemon | None:
            for registry in registries:
                if label in nodes(registry).get("web-1", {"labels": []})["labels"]:
                    return registry
            return None

        return until(look, f"a registry knows {label}", within=within)

    def moves(self) -> list[str]:
        """Return the lines of the log about moves."""
        return log_lines(self.agent, MOVED)
