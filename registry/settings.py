"""From the settings to the keys and collaborators that they stand for."""

import os
from collections.abc import Mapping
from pathlib import Path

from config.load import ConfigError, load
from config.registry import RegistrySettings
from config.secrets import Secrets
from httpd.auth import Caller
from httpd.tls import ServerTls, TlsFiles
from registry.access import NodeKeyCallers
from registry.keys import NodeKeys
from registry.prometheus import Rules

SCHEME = "sqlite:///"


class Configuration:
    """One settings file, read, with the secrets that it names. Raises ConfigError."""

    def __init__(self, file: Path, environ: Mapping[str, str] = os.environ) -> None:
        self.file = file
        self.settings = load(file, RegistrySettings)
        self._secrets = Secrets(settings_file=file, environ=environ)

    def validate(self) -> None:
        """Read all that the file names. Raises ConfigError, TlsError."""
        self.callers()
        self.derived()
        self.store_file()
        self.tls()

    def callers(self) -> list[tuple[str, Caller]]:
        """Give each key's text and what it may do."""
        keys = self.settings.keys
        return [
            (text, Caller(key.name, frozenset(key.allow), key.nodes))
            for text, key in zip(self._secrets.keys(keys), keys, strict=True)
        ]

    def node_keys(self) -> NodeKeys | None:
        """Give what makes and knows the keys of hosts, if there is a secret for it."""
        given = self.settings.node_secret
        if given is None:
            return None
        secrets = given if isinstance(given, tuple) else (given,)
        if not secrets:
            raise ConfigError(f"{self.file}: node_secret: the list is empty; leave it out instead")
        return NodeKeys([self._secrets.read("node_secret", secret) for secret in secrets])

    def derived(self) -> NodeKeyCallers | None:
        """Give what recognises the keys of hosts."""
        keys = self.node_keys()
        return NodeKeyCallers(keys) if keys else None

    def store_file(self) -> Path:
        """Give the file of the store."""
        url = self.settings.store
        if not url.startswith(SCHEME) or url == SCHEME:
            raise ConfigError(
                f"{self.file}: store: `{url}` names no store; write sqlite:///PATH, such as"
                " sqlite:////var/lib/rollcall/registry.db or sqlite:///var/lib/rollcall/registry.db"
            )
        return Path("/", url.removeprefix(SCHEME))

    def rules(self) -> Rules:
        """Give how labels become targets."""
        prometheus = self.settings.prometheus
        return Rules(
            default_port=prometheus.default_port,
            ports=prometheus.ports,
            own_only=prometheus.targets == "own",
            allow_labels=frozenset(prometheus.allow_labels),
        )

    def tls(self) -> ServerTls | None:
        """Give the listener's TLS, if there is to be any. Raises TlsError."""
        tls = self.settings.tls
        if tls is None:
            return None
        path = self._secrets.path
        client_ca = path(tls.client_ca) if tls.client_ca else None
        return ServerTls(TlsFiles(path(tls.certificate), path(tls.key), client_ca))
