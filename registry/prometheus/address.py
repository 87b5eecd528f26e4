"""From the host and port that a node names to the `host:port` that a scraper can use."""

import ipaddress
import re

from config.address import MAX_PORT

NO_PORT = "-"

_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")
_BRACKETED = re.compile(r"\[([^\[\]]*)\](?::(.*))?", re.DOTALL)


class InvalidTarget(Exception):
    """The host or port cannot be scraped; `reason` is a label of metrics, the text explains it."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def join_target(host: str, port: str) -> str:
    """Join a host with a port; a port that the host already has wins.

    A `port` of `-` means no port. IPv6 comes out in brackets. Raises InvalidTarget.
    """
    name, own_port = split_host_port(host)
    return join_host_port(name, port) if own_port is None else f"{name}:{_port(own_port)}"


def join_host_port(name: str, port: str) -> str:
    """Join a host without a port and a port, or `-` for no port. Raises InvalidTarget."""
    return name if port == NO_PORT else f"{name}:{_port(port)}"


def split_host_port(host: str) -> tuple[str, str | None]:
    """Return the host as it is shown, and the port that it holds, if any. Raises InvalidTarget."""
    if (bracketed := _BRACKETED.fullmatch(host)) is not None:
        return _ipv6(bracketed[1]), bracketed[2]
    if host.count(":") > 1:
        return _ipv6(host), None
    name, colon, port = host.partition(":")
    if _NAME.fullmatch(name) is None:
        raise InvalidTarget("host", f"{host!a} is no host name and no address")
    return name, port if colon else None


def _ipv6(text: str) -> str:
    try:
        if "%" in text:  # a zone means something on one machine alone
            raise InvalidTarget("host", f"{text!a} is an address with a zone")
        return f"[{ipaddress.IPv6Address(text)}]"
    except ValueError as error:
        raise InvalidTarget("host", f"{text!a} is no IPv6 address") from error


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_PORT)):
        number = int(text)
        if 1 <= number <= MAX_PORT:
            return number
    raise InvalidTarget("port", f"{text!a} is no port; a port is 1 to {MAX_PORT}")
