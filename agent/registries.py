"""The groups of registries in the settings: checked, and with their clients."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from urllib.parse import SplitResult, urlsplit

from agent.reporting.connections import RegistryGroup
from clients.errors import BadFile
from clients.registry import RegistryClient, Timeouts
from clients.tls import ClientTls
from config import VERSION
from config.address import DEFAULT_PORTS, is_local
from config.agent import HTTP_SCHEMES, RegistryGroupParts, RegistryGroupSettings
from config.load import ConfigError, InvalidSetting, raise_invalid
from config.secrets import SecretReader

USER_AGENT = f"rollcall-agent/{VERSION}"


def registry_checks(
    groups: Sequence[tuple[str, RegistryGroupParts]], secrets: SecretReader
) -> Iterator[Callable[[], object]]:
    """Yield functions that check the values and files of groups, and raise InvalidSetting.

    Each group has its path in the settings. What is not set, or has the wrong form, is left out.
    """
    yield partial(_check_distinct_urls, groups)
    for where, group in groups:
        for setting, url in _named_urls(group):
            yield partial(_check_registry_url, f"{where}.{setting}", url)
        yield partial(_check_alternatives, where, group)
        if group.key_file is not None:
            yield partial(secrets.read_file, f"{where}.key_file", group.key_file)
        yield partial(_client_tls, where, group, secrets)


def _named_urls(group: RegistryGroupParts) -> list[tuple[str, str]]:
    """Return the URLs of HTTP, without a slash at the end, with the names of their settings."""
    named = group.named_urls()
    return [(setting, url.rstrip("/")) for setting, url in named if url.startswith(HTTP_SCHEMES)]


def _check_distinct_urls(groups: Sequence[tuple[str, RegistryGroupParts]]) -> None:
    """Raise InvalidSetting if two groups, or one group twice, name the same registry."""
    named = [
        (f"{where}.{setting}", url)
        for where, group in groups
        for setting, url in _named_urls(group)
    ]
    endpoints = [_endpoint(url) for _, url in named]
    raise_invalid(
        f"{where}: `{url}` is set twice"
        for index, (where, url) in enumerate(named)
        if endpoints[index] in endpoints[:index]
    )


def _endpoint(url: str) -> object:
    """Return what a URL names, however it is written; the URL itself if it is malformed."""
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return url
    return parts.scheme, parts.hostname, port, parts.path


def _check_alternatives(where: str, group: RegistryGroupParts) -> None:
    """Check that the URLs of a group differ in host and port alone; ignore malformed ones."""
    parts = list[SplitResult]()
    for _, url in _named_urls(group):
        with suppress(ValueError):
            parts.append(urlsplit(url))
    if len({each.scheme for each in parts}) > 1:
        raise InvalidSetting(
            f"{where}.urls: http and https are mixed; with http the key would travel unencrypted "
            "as soon as TLS fails"
        )
    paths = sorted({each.path for each in parts})
    if len(paths) > 1:
        shown = ", ".join(f"`{path}`" for path in paths)
        raise InvalidSetting(f"{where}.urls: the paths {shown} differ; write the same for each")


def plain_registries(groups: Sequence[RegistryGroupSettings]) -> Iterator[str]:
    """Yield to which registries the key is sent where others can read it, with the remedy."""
    for index, group in enumerate(groups):
        for setting, url in _named_urls(group):
            parts = urlsplit(url)
            if parts.scheme == "http" and not is_local(parts.hostname or ""):
                yield (
                    f"registries[{index}].{setting}: everybody on the way to {url} can read the"
                    " key, which is sent without TLS; set `tls` at the registry, and write"
                    f" https://{parts.netloc}"
                )


def _check_registry_url(where: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise InvalidSetting(f"{where}: `{url}`: {error}") from error
    if not usable or parts.username is not None or parts.query or parts.fragment:
        raise InvalidSetting(
            f"{where}: is no address of a registry; write http://HOST:PORT or https://HOST:PORT, "
            "and the key into `key_file`"
        )


def registry_groups(
    groups: Sequence[RegistryGroupSettings], secrets: SecretReader, *, timeout_seconds: float
) -> list[RegistryGroup]:
    """Return the groups with clients, which are not open; ``timeout_seconds`` is of each request.

    Raises:
        InvalidSetting: the TLS files of a group cannot be used.

    """
    return [
        _registry_group(f"registries[{index}]", group, secrets, timeout_seconds=timeout_seconds)
        for index, group in enumerate(groups)
    ]


def _registry_group(
    where: str,
    group: RegistryGroupSettings,
    secrets: SecretReader,
    *,
    timeout_seconds: float,
) -> RegistryGroup:
    def read_key() -> str:
        return secrets.read_file(f"{where}.key_file", group.key_file)

    def key() -> str:
        try:
            return read_key()
        except ConfigError as error:
            raise BadFile(str(error)) from error

    client_tls = _client_tls(where, group, secrets)

    clients = [
        RegistryClient(
            url=url,
            key=key,
            client_tls=client_tls,
            timeouts=Timeouts(timeout_seconds),
            user_agent=USER_AGENT,
        )
        for _, url in _named_urls(group)
    ]
    return RegistryGroup(clients=clients, key=key, client_tls=client_tls)


def _client_tls(where: str, group: RegistryGroupParts, secrets: SecretReader) -> ClientTls | None:
    """Return the TLS files of a group, which are read; None if it has no TLS and names none.

    Without TLS, the system's CAs are not read: that takes some 30 ms.
    """
    is_plain = all(url.startswith("http:") for _, url in _named_urls(group))
    pair = group.certificate, group.certificate_key
    certificate, key = pair if all(pair) else (None, None)
    if is_plain and group.ca is None and certificate is None:
        return None
    client_tls = ClientTls(
        ca=secrets.path(group.ca) if group.ca else None,
        certificate=secrets.path(certificate) if certificate else None,
        key=secrets.path(key) if key else None,
    )
    try:
        client_tls.context()
    except BadFile as error:
        raise InvalidSetting(f"{where}: {error}") from error
    return client_tls
