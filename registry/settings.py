"""From the settings to the keys and collaborators that they stand for."""

import os
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path

import msgspec

from config.load import ConfigError, load_sound, mistakes_of, raise_mistakes
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
        loaded = load_sound(file, RegistrySettings)
        self.settings = loaded.settings
        self._secrets = SecretReader(settings_file=file, environ=environ)
        if loaded.mistakes:
            raise_mistakes([*loaded.mistakes, *self._mistakes(loaded.faulty)])

    def validate(self) -> None:
        """Read everything that the file names. Raises ConfigError with all mistakes."""
        raise_mistakes(self._mistakes(set()))

    def _mistakes(self, faulty: set[str]) -> list[str]:
        """Return what is wrong with what the settings name, except in faulty sections."""
        checks: dict[str, Callable[[], object]] = {
            "keys": lambda: self.callers,
            "node_secret": self.derived,
            "store": self.store,
            "tls": self.tls,
        }
        return mistakes_of(
            self.file, [check for name, check in checks.items() if name not in faulty]
        )

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
        many = len(secrets) > 1
        reads = [
            partial(self._secrets.read, f"node_secret[{index}]" if many else "node_secret", secret)
            for index, secret in enumerate(secrets)
        ]
        raise_mistakes(mistakes_of(self.file, reads))
        return NodeKeys([read() for read in reads])

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
