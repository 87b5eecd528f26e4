"""From the settings under ``registries`` to the clients that this host reports with."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from config.address import is_loopback
from config.agent import AgentSettings, RegistryConnectionSettings
from config.load import ConfigError
from config.secrets import SecretReader
from registry.client.client import BadFile, ClientTls, RegistryClient

MAX_ATTEMPT_SECONDS = 10.0


class RegistriesInvalid(Exception):
    """A registry cannot be reported to as it is set; the text begins with the path."""


@dataclass(frozen=True)
class RegistryConnection:
    """The line to one registry: its client, and the key and the certificates that go with it."""

    url: str
    client: RegistryClient
    key: Callable[[], str]
    client_tls: ClientTls


def registry_connections(
    settings: AgentSettings, *, secrets: SecretReader, user_agent: str
) -> list[RegistryConnection]:
    """Give a line for each registry, to be opened; no request is sent yet.

    Raises:
        RegistriesInvalid: an address or a certificate cannot be used, or one is set twice.
        ConfigError: a key cannot be used.

    """
    urls = [registry.url.rstrip("/") for registry in settings.registries]
    for index, url in enumerate(urls):
        if url in urls[:index]:
            raise RegistriesInvalid(f"registries[{index}].url: `{url}` is set twice")
    seconds = min(MAX_ATTEMPT_SECONDS, settings.heartbeat_seconds)
    return [
        _connection(
            f"registries[{index}]", registry, secrets, seconds=seconds, user_agent=user_agent
        )
        for index, registry in enumerate(settings.registries)
    ]


def unencrypted_registries(settings: AgentSettings) -> Iterable[str]:
    """Give the registries to which the key travels unencrypted over a network."""
    for registry in settings.registries:
        parts = urlsplit(registry.url)
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            yield registry.url


def _connection(
    where: str,
    registry: RegistryConnectionSettings,
    secrets: SecretReader,
    *,
    seconds: float,
    user_agent: str,
) -> RegistryConnection:
    url = registry.url.rstrip("/")
    _check_address(f"{where}.url", url)

    def read_key() -> str:
        return secrets.read_file(f"{where}.key_file", registry.key_file)

    def key() -> str:
        try:
            return read_key()
        except ConfigError as error:
            raise BadFile(str(error)) from error

    client_tls = ClientTls(
        ca=secrets.path(registry.ca) if registry.ca else None,
        certificate=secrets.path(registry.certificate) if registry.certificate else None,
        key=secrets.path(registry.certificate_key) if registry.certificate_key else None,
    )
    read_key()
    try:
        client_tls.context()
    except BadFile as error:
        raise RegistriesInvalid(f"{where}: {error}") from error
    client = RegistryClient(
        url=url, key=key, client_tls=client_tls, timeout_seconds=seconds, user_agent=user_agent
    )
    return RegistryConnection(url=url, client=client, key=key, client_tls=client_tls)


def _check_address(where: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise RegistriesInvalid(f"{where}: `{url}`: {error}") from error
    if not usable or parts.username is not None or parts.query or parts.fragment:
        raise RegistriesInvalid(
            f"{where}: is no address of a registry; write http://HOST:PORT or https://HOST:PORT, "
            "and the key into `key_file`"
        )
