"""From the settings to the keys and collaborators that they stand for."""

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import msgspec

from config.load import ConfigError, load
from config.registry import RegistrySettings
from config.secrets import SecretReader
from httpd.auth import Caller, fingerprint
from httpd.server.tls import ServerTls, server_tls
from registry.api.access import NodeKeyCallers, NodeKeys
from registry.prometheus.targets import TargetOptions
from registry.store.protocol import StoreBackend
from registry.store.urls import backend_of


class RegistryConfiguration:
    """One settings file, with the secrets that it names. Raises ConfigError."""

    def __init__(self, file: Path, environ: Mapping[str, str] = os.environ) -> None:
        self.file = file
        self.settings = load(file, RegistrySettings)
        self._secrets = SecretReader(settings_file=file, environ=environ)

    def validate(self) -> None:
        """Read everything that the file names. Raises ConfigError."""
        _ = self.callers
        self.derived()
        self.store()
        self.tls()

    @cached_property
    def callers(self) -> list[tuple[bytes, Caller]]:
        """Each key's fingerprint and what it may do; from then on the settings hold no key."""
        keys = self.settings.keys
        texts = self._secrets.keys(keys)
        self.settings = msgspec.structs.replace(self.settings, keys=())
        return [
            (fingerprint(text), Caller(key.name, frozenset(key.allow), key.nodes))
            for text, key in zip(texts, keys, strict=True)
        ]

    def node_keys(self) -> NodeKeys | None:
        """Return what makes and recognises the keys of hosts; None if there is no secret for it."""
        given = self.settings.node_secret
        if given is None:
            return None
        secrets = given if isinstance(given, tuple) else (given,)
        if not secrets:
            raise ConfigError(f"{self.file}: node_secret: the list is empty; leave it out instead")
        return NodeKeys([self._secrets.read("node_secret", secret) for secret in secrets])

    def derived(self) -> NodeKeyCallers | None:
        """Return what turns the keys of hosts into callers; None if there is no secret for it."""
        keys = self.node_keys()
        return NodeKeyCallers(keys) if keys else None

    def store(self) -> StoreBackend:
        """Return the place of the store. Raises ConfigError."""
        try:
            return backend_of(self.settings.store)
        except ValueError as error:
            raise ConfigError(f"{self.file}: store: {error}") from error

    def target_options(self) -> TargetOptions:
        """Return how labels become targets."""
        prometheus = self.settings.prometheus
        return TargetOptions(
            default_port=prometheus.default_port,
            ports=prometheus.ports,
            own_only=prometheus.targets == "own",
            allow_labels=frozenset(prometheus.allow_labels),
        )

    def tls(self) -> ServerTls | None:
        """Return the listener's TLS, None if there is to be none. Raises ConfigError."""
        return server_tls(self.settings.tls, file=self.file, find=self._secrets.path)
