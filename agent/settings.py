"""From the settings to the values and collaborators that they stand for."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import msgspec

from agent import node
from agent.apps import AppDefaults, is_data_path, is_user_name
from agent.engine import ImageRegistryLogin
from agent.reporting import connections
from agent.reporting.facts import host_facts, system_hostname
from agent.reporting.heartbeat import Host
from agent.reporting.label_files import LabelFiles
from config import VERSION
from config.agent import AgentSettings, NodeSettings
from config.load import ConfigError, load
from config.secrets import SecretReader
from httpd.auth import Caller, fingerprint
from httpd.server.tls import server_tls

SQLITE_PREFIX = "sqlite:///"


class AgentConfiguration:
    """One settings file, read, with all that it names, and found to make sense.

    Raises:
        ConfigError: something is missing or wrong; the text gives file, path and remedy.

    """

    def __init__(self, file: Path, environ: Mapping[str, str] = os.environ) -> None:
        self.file = file
        self.settings = load(file, AgentSettings)
        self._secrets = SecretReader(settings_file=file, environ=environ)
        self.callers = self._load_callers()
        self.database = self._database()
        self._check_apps()
        self.tls = server_tls(self.settings.tls, file=file, find=self._secrets.path)
        try:
            node.check_node(self.settings)
            self.address = node.address(self.settings, system_hostname=system_hostname())
            self.registry_connections = connections.registry_connections(
                self.settings, secrets=self._secrets, user_agent=f"rollcall-agent/{VERSION}"
            )
        except (node.NodeInvalid, connections.RegistriesInvalid) as error:
            raise ConfigError(f"{file}: {error}") from error

    @property
    def state_directory(self) -> Path:
        """The directory that holds all that must outlive the process."""
        return self.database.parent

    def _load_callers(self) -> list[tuple[bytes, Caller]]:
        """Give each key's fingerprint and what it may do; the settings forget the keys."""
        keys = self.settings.keys
        texts = self._secrets.keys(keys)
        self.settings = msgspec.structs.replace(self.settings, keys=())
        return [
            (fingerprint(text), Caller(key.name, frozenset(key.allow)))
            for text, key in zip(texts, keys, strict=True)
        ]

    def _database(self) -> Path:
        path = self.settings.store.removeprefix(SQLITE_PREFIX)
        if path == self.settings.store or not path.strip("/"):
            raise ConfigError(
                f"{self.file}: store: `{self.settings.store}` names no database; "
                "write sqlite:///PATH, such as sqlite:///var/lib/rollcall/agent.db"
            )
        return Path("/", path.lstrip("/"))

    def _check_apps(self) -> None:
        apps, where = self.settings.apps, f"{self.file}: apps"
        try:
            ip_address(apps.bind)
        except ValueError as error:
            raise ConfigError(
                f"{where}.bind: `{apps.bind}` is no address; write such as 0.0.0.0 or 127.0.0.1"
            ) from error
        if not is_data_path(apps.data):
            raise ConfigError(
                f"{where}.data: `{apps.data}` is no place for a volume; write such as /srv"
            )
        if not is_user_name(apps.ssh_user):
            raise ConfigError(
                f"{where}.ssh_user: `{apps.ssh_user}` is no user's name; write such as app"
            )

    def host(
        self,
        node_settings: NodeSettings,
        *,
        agent_id: str,
        label_files: LabelFiles,
        warn: Callable[[str], None],
        port: int | None = None,
    ) -> Host:
        """Make the host that the registries are told of; ``port`` is the one listened on.

        ``node_settings`` may be newer than these settings; the host's name, its port and whether
        that speaks TLS are as they were at the start.
        """
        node_settings = msgspec.structs.replace(node_settings, hostname=self.address.hostname)
        settings = msgspec.structs.replace(self.settings, node=node_settings)
        return node.build_host(
            settings,
            agent_address=node.address(settings, system_hostname=self.address.hostname, port=port),
            file_labels=partial(label_files.read, self._secrets.path(node_settings.labels_dir)),
            facts={**host_facts(), "agent.id": agent_id, "agent.version": VERSION},
            warn=warn,
        )

    def logins(self) -> list[ImageRegistryLogin]:
        """Give the logins at servers of images."""
        return [
            ImageRegistryLogin(
                server=login.server,
                user=login.user,
                password_file=self._secrets.path(login.password_file),
            )
            for login in self.settings.docker.registries
        ]

    def app_defaults(self) -> AppDefaults:
        """Give what apps get where they do not say otherwise."""
        apps = self.settings.apps
        return AppDefaults(
            cpu=apps.cpu,
            memory=apps.memory,
            ports=apps.port_range(),
            bind=apps.bind,
            ssh_port=apps.ssh_port,
            http_port=apps.http_port,
            data=apps.data,
            ssh_user=apps.ssh_user,
            stop_seconds=apps.stop_seconds,
            password_min=apps.password_min,
            pids=apps.pids,
            log_mib=apps.log_mib,
            min_free_percent=apps.min_free_percent,
            no_new_privileges=apps.no_new_privileges,
        )
