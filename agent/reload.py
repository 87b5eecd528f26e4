"""What a hangup makes the agent read again."""

from collections.abc import Callable

import msgspec
from structlog.typing import FilteringBoundLogger

from agent.reporting.group import HeartbeatBuilder, ReporterGroup
from agent.reporting.heartbeat import Host
from agent.settings import AgentConfiguration
from config.agent import AgentSettings, NodeSettings
from httpd.auth import Keyring


class AgentReloader:
    """Reads the settings again: keys, labels and kv count at once, and are told at once.

    Whatever else was changed is named in the log, since it counts only after a restart. Raises
    ConfigError where the settings cannot be used; then all stays as it was.
    """

    def __init__(
        self,
        *,
        configuration: AgentConfiguration,
        host: Callable[[NodeSettings], Host],
        keyring: Keyring,
        heartbeat_builder: HeartbeatBuilder,
        reporter_group: ReporterGroup,
        log: FilteringBoundLogger,
    ) -> None:
        self._configuration = configuration
        self._host = host
        self._keyring = keyring
        self._heartbeat_builder = heartbeat_builder
        self._reporter_group = reporter_group
        self._log = log

    def __call__(self) -> None:
        """Take over what the settings file and the key files say now."""
        fresh = AgentConfiguration(self._configuration.file)
        self._heartbeat_builder.host = self._host(fresh.settings.node)
        self._keyring.replace(fresh.callers)
        self._reporter_group.request_report()
        for name in needing_restart(self._configuration.settings, fresh.settings):
            self._log.warning("changed, but counts only after a restart", setting=name)


def needing_restart(before: AgentSettings, after: AgentSettings) -> list[str]:
    """Give the settings that differ and are not read again while the agent runs."""
    node = msgspec.structs.replace(
        after.node,
        labels=before.node.labels,
        labels_dir=before.node.labels_dir,
        kv=before.node.kv,
        advertise=before.node.advertise,
    )
    rest = msgspec.structs.replace(after, keys=before.keys, node=node)
    names = AgentSettings.__struct_fields__
    return [name for name in names if getattr(rest, name) != getattr(before, name)]
