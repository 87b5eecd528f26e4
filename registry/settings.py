"""From the settings to the keys and collaborators that they stand for."""

import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path

import msgspec

from clients.errors import BadFile
from clients.tls import ClientTls, client_context
from config.load import ConfigError, InvalidSetting, Loaded, load_sound, mistakes_of, raise_mistakes
from config.registry import (
    ALL_NODES,
    CallbackParts,
    NatsLoginSettings,
    NatsSettings,
    NatsTlsSettings,
    RegistrySettings,
)
from config.secrets import SecretReader
from config.server import Secret
from httpd.auth import Caller, fingerprint
from httpd.clients import TrustedProxies
from httpd.server.tls import ServerTls, server_tls, tls_checks
from registry.api.access import NodeKeys
from registry.callbacks.receiver import Callback
from registry.nodes.search import Filters
from registry.prometheus.targets import TargetOptions
from registry.store.backend import backend_of
from registry.store.options import NatsLogin, NatsOptions
from registry.store.protocol import StoreBackend
from runtime.certificates import CertificateFiles, expiries, settings_faults, validities_of


class RegistryConfiguration:
    """One settings file, with the secrets that it names. Raises ConfigError."""

    def __init__(self, file: Path, environ: Mapping[str, str] = os.environ) -> None:
        self.file = file
        loaded = load_sound(file, RegistrySettings)
        self.settings = loaded.settings
        self._secrets = SecretReader(settings_file=file, environ=environ)
        if loaded.mistakes:
            mistakes = [*loaded.mistakes, *self._mistakes(loaded)]
            raise_mistakes(mistakes + ([] if "store" in loaded.faulty else self.warnings()))

    def validate(self) -> None:
        """Read everything that the file names. Raises ConfigError with all mistakes."""
        mistakes = mistakes_of(self.file, self._checks().values())
        if mistakes:
            raise_mistakes(mistakes + self.warnings())

    def warnings(self) -> list[str]:
        """Return what is no mistake in the file, but keeps the registry from its work here."""
        found = self.certificate_faults()
        with suppress(ConfigError):  # which is a mistake of its own
            warning = self._store(NatsOptions()).warning()
            found += [] if warning is None else [f"store: {warning}"]
        if self.expected is not None and not os.access(self.expected, os.R_OK):
            found.append(f"nodes.expected: {self.expected} cannot be read, so no host expires")
        return [f"{self.file}: {warning}" for warning in found]

    def unsafe_settings(self) -> list[str]:
        """Return what is no mistake, but gives keys away or takes their bounds off."""
        settings, nats = self.settings, self.settings.nats
        credentials = {"nats.credentials": nats.credentials}
        if nats.system is not None:
            credentials["nats.system.credentials"] = nats.system.credentials
        named = {where: name for where, name in credentials.items() if name is not None}
        found = [
            *settings.open_listeners("listen", "shared_listen"),
            *self._secrets.exposed(named | settings.tls_key()),
            *self.proxies.warnings(),
            *(
                f"keys[{index}]: whoever has the key {caller.name} can report and delete every"
                " host; give each host a key of its own (`node_secret`), or name the hosts in"
                " `nodes`"
                for index, (_, caller) in enumerate(self.callers)
                if caller.nodes == ALL_NODES
                and "register" in caller.allow
                and "write" not in caller.allow
            ),
        ]
        return [f"{self.file}: {each}" for each in found]

    @property
    def expected(self) -> Path | None:
        """The file with the hosts that are expected."""
        name = self.settings.nodes.expected
        return None if name is None else self._secrets.path(name)

    @property
    def proxies(self) -> TrustedProxies:
        """The proxies whose word on a client's address counts."""
        return TrustedProxies(self.settings.trusted_proxies)

    def certificate_faults(self) -> list[str]:
        """Return which certificates peers reject now, because of their dates."""
        tls, nats, callbacks = self.settings.tls, self.settings.nats.tls, self.settings.callbacks
        named = [
            CertificateFiles(f"callbacks[{index}]", None, each.ca)
            for index, each in enumerate(callbacks)
        ]
        if tls is not None:
            named.append(CertificateFiles("tls", tls.certificate, tls.client_ca))
        if nats is not None:
            named.append(CertificateFiles("nats.tls", nats.certificate, nats.ca))
        return settings_faults(named, self._secrets.path)

    def _checks(self) -> dict[str, Callable[[], object]]:
        """Return what reads all that the settings name, by their sections."""
        return {
            "callbacks": self.callbacks,
            "keys": lambda: self.callers,
            "nats": self.nats_options,
            "node_secret": self.node_keys,
            "store": lambda: self._store(NatsOptions()),
            "tls": self.tls,
        }

    def _mistakes(self, loaded: Loaded[RegistrySettings]) -> list[str]:
        """Return what is wrong with what the settings name, as far as these are sound."""
        unreadable = loaded.faulty & {"callbacks", "keys", "node_secret", "store"}
        checks = [check for name, check in self._checks().items() if name not in unreadable]
        if "keys" in loaded.faulty:
            checks += self._secrets.key_checks(loaded.sound_parts("keys", Secret))
        if "node_secret" in loaded.faulty:
            checks += self._secrets.checks(loaded.sound_parts("node_secret", Secret))
        if "callbacks" in loaded.faulty:
            for where, parts in loaded.sound_parts("callbacks", CallbackParts):
                checks += self._callback_checks(where, parts)
        if "tls" in loaded.faulty:
            checks += tls_checks(loaded, file=self.file, find=self._secrets.path)
        return mistakes_of(self.file, checks)

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

    def callbacks(self) -> list[Callback]:
        """Return the receivers of changes, with their keys. Raises ConfigError."""
        named = [(f"callbacks[{i}]", each) for i, each in enumerate(self.settings.callbacks)]
        checks = [check for where, each in named for check in self._callback_checks(where, each)]
        raise_mistakes(mistakes_of(self.file, checks))
        return [
            Callback(
                url=each.url,
                key=self._secrets.read_file(f"{where}.key_file", each.key_file).encode(),
                filters=Filters(labels=tuple(dict.fromkeys(each.labels))),
                ca=None if each.ca is None else self._secrets.path(each.ca),
            )
            for where, each in named
        ]

    def _callback_checks(self, where: str, parts: CallbackParts) -> list[Callable[[], object]]:
        """Return functions that read the files of a callback."""
        checks: list[Callable[[], object]] = []
        if parts.key_file is not None:
            checks.append(partial(self._secrets.read_file, f"{where}.key_file", parts.key_file))
        if parts.ca is not None:
            checks.append(partial(_check_authorities, f"{where}.ca", self._secrets.path(parts.ca)))
        return checks

    def store(self) -> StoreBackend:
        """Return the place of the store. Raises ConfigError."""
        return self._store(self.nats_options())

    def _store(self, options: NatsOptions) -> StoreBackend:
        try:
            return backend_of(self.settings.store, options)
        except ValueError as error:
            raise ConfigError(f"{self.file}: store: {error}") from error

    def store_at(self, url: str) -> StoreBackend:
        """Return the place of another store. Raises ConfigError."""
        try:
            return backend_of(url, self.nats_options())
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def nats_options(self) -> NatsOptions:
        """Return the options of a store in NATS. Raises ConfigError with all mistakes."""
        nats = self.settings.nats
        raise_mistakes(mistakes_of(self.file, self._nats_checks(nats)))
        return NatsOptions(
            login=self._nats_login("nats", nats, nats.tls),
            replicas=nats.replicas,
            placement_cluster=nats.placement_cluster,
            placement_tags=nats.placement_tags,
            monitoring=nats.monitoring,
            system=(
                self._nats_login("nats.system", nats.system, nats.tls) if nats.system else None
            ),
            accept_loss=nats.accept_loss,
        )

    def _nats_checks(self, nats: NatsSettings) -> Iterator[Callable[[], object]]:
        """Yield what reads each file and secret that the section names."""
        yield partial(self._nats_login, "nats", nats, None)
        if nats.system is not None:
            yield partial(self._nats_login, "nats.system", nats.system, None)
        if nats.tls is not None:
            yield partial(self._nats_tls, nats.tls)

    def _nats_login(
        self, where: str, login: NatsLoginSettings, tls: NatsTlsSettings | None
    ) -> NatsLogin:
        read = self._secrets.read
        return NatsLogin(
            user=login.user,
            password=read(f"{where}.password", login.password) if login.password else None,
            nkey=read(f"{where}.nkey", login.nkey) if login.nkey else None,
            credentials=self._nats_credentials(where, login.credentials),
            tls=self._nats_tls(tls) if tls else None,
        )

    def _nats_credentials(self, where: str, name: str | None) -> str | None:
        if name is None:
            return None
        path = self._secrets.path(name)
        try:
            return path.read_text("ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{self.file}: {where}.credentials: {path} cannot be read: {error}"
            ) from error

    def _nats_tls(self, tls: NatsTlsSettings) -> ssl.SSLContext:
        named = {"ca": tls.ca, "certificate": tls.certificate, "key": tls.key}
        paths = {name: self._secrets.path(file) for name, file in named.items() if file is not None}
        checks = [partial(self._check_readable, f"nats.tls.{name}", paths[name]) for name in paths]
        raise_mistakes(mistakes_of(self.file, checks))
        ca, certificate, key = map(paths.get, named)
        files = " and ".join(str(path) for path in (ca, certificate, key) if path is not None)
        try:
            return client_context(ca=ca, certificate=certificate, key=key)
        except OSError as error:
            raise ConfigError(f"{self.file}: nats.tls: {files} cannot be used: {error}") from error

    def nats_expiries(self) -> dict[Path, float]:
        """Return when the certificates of `nats.tls` expire, as Unix times."""
        tls = self.settings.nats.tls
        if tls is None:
            return {}
        certificate, authorities = (
            None if name is None else self._secrets.path(name) for name in (tls.certificate, tls.ca)
        )
        return expiries(validities_of(certificate=certificate, authorities=authorities))

    def _check_readable(self, where: str, path: Path) -> None:
        try:
            path.open("rb").close()
        except OSError as error:
            raise ConfigError(
                f"{self.file}: {where}: {path} cannot be read: {error.strerror}"
            ) from error

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


def _check_authorities(where: str, file: Path) -> None:
    """Raise InvalidSetting if a file holds no certificates."""
    try:
        ClientTls(ca=file).context()
    except BadFile as error:
        raise InvalidSetting(f"{where}: cannot be used: {error}") from error
