"""Turns agent.yml into the values and collaborators that the daemon is built from."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from agent.apps.admission.fields import is_path
from agent.apps.containers.spec import is_user_name
from agent.apps.containers.volumes import is_data_path
from agent.apps.defaults import AppDefaults
from agent.engine.logins import ImageRegistryLogin, is_image_prefix
from agent.registries import plain_registries, registry_checks, registry_groups
from agent.reporting.facts import host_facts, system_hostname
from agent.reporting.heartbeat import AGENT_KV_KEYS, AgentAddress, Host
from agent.reporting.label_files import LabelFiles
from clients.message import Heartbeat, HostnameInvalid, label_error, normalise_hostname
from config import VERSION
from config.address import DEFAULT_PORTS, listen_address
from config.agent import AgentSettings, AppsSettings, NodeSettings, RegistryGroupParts
from config.load import (
    ConfigError,
    InvalidSetting,
    Loaded,
    changed_settings,
    load_sound,
    mistakes_of,
    raise_invalid,
    raise_mistakes,
)
from config.secrets import SecretReader
from config.server import Secret, missing_folder
from httpd.auth import Caller, fingerprint
from httpd.clients import TrustedProxies
from httpd.server.tls import ServerTls, server_tls, tls_checks
from runtime.certificates import CertificateFiles, settings_faults

RELOADED = (
    "keys",
    "node.labels",
    "node.labels_dir",
    "node.kv",
    "node.advertise",
    "docker.registries",
)
DEFAULT_SETTINGS_FILE = "/etc/rollcall/agent.yml"
SQLITE_PREFIX = "sqlite:///"
MAX_REQUEST_SECONDS = 10.0


class AgentConfiguration:
    """The settings of one file, checked, with all other files that they name.

    Raises:
        ConfigError: a setting or file is missing or wrong; the text names the file and the path,
            and says what would be right.

    """

    def __init__(self, file: Path, environ: Mapping[str, str] = os.environ) -> None:
        self.file = file
        loaded = load_sound(file, AgentSettings)
        self.settings = loaded.settings
        self._secrets = SecretReader(settings_file=file, environ=environ)
        mistakes = [*loaded.mistakes, *self._mistakes(loaded)]
        if mistakes:
            raise_mistakes(mistakes + ([] if "store" in loaded.faulty else self.warnings()))
        self.callers = self._load_callers()
        self.database = _database(self.settings.store)
        self.tls = self._load_tls()
        self.address = _address(self.settings, system_hostname=system_hostname())
        self.registry_groups = registry_groups(
            self.settings.registries,
            self._secrets,
            timeout_seconds=min(MAX_REQUEST_SECONDS, self.settings.heartbeat_seconds),
        )

    def _mistakes(self, loaded: Loaded[AgentSettings]) -> list[str]:
        """Return what is wrong with the values and files, as far as they have the right form."""
        settings, faulty = self.settings, loaded.faulty
        checks: list[tuple[str, Callable[[], object]]] = [
            ("keys", partial(self._secrets.keys, settings.keys)),
            ("store", partial(_database, settings.store)),
            ("apps", partial(_check_apps, settings.apps)),
            ("tls", self._load_tls),
            ("node", partial(_check_node, settings.node)),
            ("node", partial(_check_capacity, settings.node)),
            ("node", partial(_hostname, settings.node, system_hostname())),
            ("node", partial(_check_advertise, settings.node)),
        ]
        found = [check for name, check in checks if name not in faulty - {"apps", "node", "tls"}]
        if "keys" in faulty:
            found += self._secrets.key_checks(loaded.sound_parts("keys", Secret))
        if "tls" in faulty:
            found += tls_checks(loaded, file=self.file, find=self._secrets.path)
        groups = loaded.sound_parts("registries", RegistryGroupParts)
        found += registry_checks(groups, self._secrets)
        return mistakes_of(self.file, found)

    def warnings(self) -> list[str]:
        """Return what is no mistake in the file, but keeps the agent from its work here."""
        found = self.certificate_faults()
        with suppress(InvalidSetting):  # which is a mistake of its own
            missing = missing_folder(_database(self.settings.store).parent, daemon="agent")
            found += [] if missing is None else [f"store: {missing}"]
        return [f"{self.file}: {warning}" for warning in found]

    def unsafe_settings(self) -> list[str]:
        """Return what is no mistake, but gives keys away."""
        passwords = {
            f"docker.registries[{index}].password_file": login.password_file
            for index, login in enumerate(self.settings.docker.registries)
        }
        found = [
            *self.settings.open_listeners("listen"),
            *plain_registries(self.settings.registries),
            *self._secrets.exposed(passwords | self.settings.tls_key()),
            *self.proxies.warnings(),
        ]
        return [f"{self.file}: {each}" for each in found]

    @property
    def proxies(self) -> TrustedProxies:
        """The proxies whose word on a client's address counts."""
        return TrustedProxies(self.settings.trusted_proxies)

    def certificate_faults(self) -> list[str]:
        """Return which certificates peers reject now, because of their dates."""
        tls = self.settings.tls
        named = [
            CertificateFiles(f"registries[{index}]", group.certificate, group.ca)
            for index, group in enumerate(self.settings.registries)
        ]
        if tls is not None:
            named.append(CertificateFiles("tls", tls.certificate, tls.client_ca))
        return settings_faults(named, self._secrets.path)

    def _load_tls(self) -> ServerTls | None:
        return server_tls(self.settings.tls, file=self.file, find=self._secrets.path)

    @property
    def state_directory(self) -> Path:
        """The directory of everything that must outlive the process: that of the database."""
        return self.database.parent

    def _load_callers(self) -> list[tuple[bytes, Caller]]:
        """Return each API key's fingerprint and permissions; the settings then hold no key."""
        keys = self.settings.keys
        texts = self._secrets.keys(keys)
        self.settings = msgspec.structs.replace(self.settings, keys=())
        return [
            (fingerprint(text), Caller(key.name, frozenset(key.allow), apps=key.apps))
            for text, key in zip(texts, keys, strict=True)
        ]

    def host(
        self,
        node: NodeSettings,
        *,
        agent_id: str | None,
        agent_instance: str | None,
        label_files: LabelFiles,
        warn: Callable[[str], None],
        port: int | None = None,
    ) -> Host:
        """Return the host as it is reported; ``port`` is the one that is really listened on.

        ``agent_id`` and ``agent_instance`` are None where they are not known, and left out then.
        ``node`` may come from newer settings. Hostname, port and TLS stay as they were at start.
        """
        known = {"agent.id": agent_id, "agent.instance": agent_instance}
        node = msgspec.structs.replace(node, hostname=self.address.hostname)
        settings = msgspec.structs.replace(self.settings, node=node)
        return Host(
            address=_address(settings, system_hostname=self.address.hostname, port=port),
            labels=node.labels,
            file_labels=partial(label_files.read, self._secrets.path(node.labels_dir)),
            kv={
                **node.kv,
                **host_facts(),
                **{key: value for key, value in known.items() if value is not None},
                "agent.version": VERSION,
            },
            warn=warn,
        )

    def logins(self) -> list[ImageRegistryLogin]:
        """Return the logins at image registries."""
        return [
            ImageRegistryLogin(
                server=login.server,
                user=login.user,
                password_file=self._secrets.path(login.password_file),
            )
            for login in self.settings.docker.registries
        ]

    def app_defaults(self) -> AppDefaults:
        """Return the defaults and limits of apps."""
        apps = self.settings.apps
        same = {each.name for each in fields(AppDefaults)} - {"ports"}
        return AppDefaults(ports=apps.port_range(), **{name: getattr(apps, name) for name in same})


def state_directory(file: Path) -> Path | None:
    """Return the state directory that a file names, even if it has mistakes.

    None if its `store` cannot be used either.
    """
    with suppress(ConfigError, InvalidSetting):
        loaded = load_sound(file, AgentSettings)
        if "store" not in loaded.faulty:
            return _database(loaded.settings.store).parent
    return None


def changes_needing_restart(before: AgentSettings, after: AgentSettings) -> list[str]:
    """Return the paths of settings that differ and are not applied by a reload."""
    return changed_settings(before, after, except_for=RELOADED)


def _database(store: str) -> Path:
    path = store.removeprefix(SQLITE_PREFIX)
    if path == store or not path.strip("/"):
        raise InvalidSetting(
            f"store: `{store}` names no database; "
            "write sqlite:///PATH, such as sqlite:///var/lib/rollcall/agent.db"
        )
    return Path("/", path.lstrip("/"))


def _check_apps(apps: AppsSettings) -> None:
    raise_invalid(_apps_mistakes(apps))


def _apps_mistakes(apps: AppsSettings) -> Iterator[str]:
    try:
        ip_address(apps.bind)
    except ValueError:
        yield f"apps.bind: `{apps.bind}` is no address; write such as 0.0.0.0 or 127.0.0.1"
    if not is_data_path(apps.data):
        yield f"apps.data: `{apps.data}` is no place for a volume; write such as /srv"
    for index, path in enumerate(apps.allowed_data):
        if path != "/" and not is_path(path):
            yield (
                f"apps.allowed_data[{index}]: `{path}` is no absolute path in normal form; write"
                " such as /var/lib"
            )
    for index, prefix in enumerate(apps.allowed_images or ()):
        if not is_image_prefix(prefix):
            yield (
                f"apps.allowed_images[{index}]: `{prefix}` does not begin with a server, or does"
                " not end in /; write such as registry.example.com/ or docker.io/library/"
            )
    yield from _subnet_mistakes(apps.subnets)
    if not is_user_name(apps.ssh_user):
        yield f"apps.ssh_user: `{apps.ssh_user}` is no user's name; write such as app"


def _subnet_mistakes(subnets: Sequence[str]) -> Iterator[str]:
    versions = set[int]()
    for subnet in subnets:
        try:
            version = ip_network(subnet).version
        except ValueError:
            yield f"apps.subnet: `{subnet}` is no network; write such as 10.213.0.0/16"
        else:
            if version in versions:
                yield f"apps.subnet: there is more than one network of IPv{version}"
            versions.add(version)


def _node_mistakes(node: NodeSettings) -> Iterator[str]:
    for index, label in enumerate(node.labels):
        fault = label_error(label)
        if fault is not None:
            yield f"node.labels[{index}]: {fault}"
    for key in node.kv:
        if key in AGENT_KV_KEYS:
            yield f"node.kv: `{key}` is set by the agent itself; choose another key"


def _check_node(node: NodeSettings) -> None:
    """Check each label, and the names of the kv."""
    raise_invalid(_node_mistakes(node))


def _check_capacity(node: NodeSettings) -> None:
    """Check the kv, and the labels that are valid, against the limits of a registry."""
    labels = [label for label in node.labels if label_error(label) is None]
    kv = {**node.kv, **dict.fromkeys(AGENT_KV_KEYS, "")}
    try:
        msgspec.convert({"labels": labels, "kv": kv}, Heartbeat)
        msgspec.json.encode([labels, node.kv])
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise InvalidSetting(f"node: {error}") from error


def _address(
    settings: AgentSettings, *, system_hostname: str, port: int | None = None
) -> AgentAddress:
    """Return the URL of this host; ``port`` is the port that the agent listens on, if known."""
    node = settings.node
    hostname = _hostname(node, system_hostname)
    port = port or listen_address(settings.listen)[1]
    scheme = "https" if settings.tls else "http"
    url = node.advertise or f"{scheme}://{hostname}:{port}"
    return AgentAddress(hostname, url, _port_of(url), tls=urlsplit(url).scheme == "https")


def _hostname(node: NodeSettings, system_hostname: str) -> str:
    try:
        return normalise_hostname(node.hostname or system_hostname)
    except HostnameInvalid as error:
        given = node.hostname or f"not set, and the system calls itself {system_hostname}"
        raise InvalidSetting(f"node.hostname: is `{given}`; {error}") from error


def _check_advertise(node: NodeSettings) -> None:
    if node.advertise:
        _port_of(node.advertise)


def _port_of(url: str) -> int:
    """Return the port that an agent's URL names. Raises InvalidSetting if it is no such URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise InvalidSetting(f"node.advertise: `{url}`: {error}") from error
    if not port or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise InvalidSetting(
            f"node.advertise: `{url}` is no address of an agent; "
            "write http://HOST:PORT, such as http://web-1.example.com:7656"
        )
    return port
