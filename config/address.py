"""Network addresses in settings: HOST:PORT, with brackets around an IPv6 host."""

import ipaddress

MAX_PORT = 65535
# Of URLs without a port, by scheme.
DEFAULT_PORTS = {"http": 80, "https": 443}


def listen_address(text: str) -> tuple[str, int]:
    """Split ``HOST:PORT`` and return both; with port 0 the system chooses a free one.

    Raises:
        ValueError: the text is not such an address; the message shows a correct one.

    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        raise ValueError(f"`{text}` is no address; write HOST:PORT, such as 127.0.0.1:7655")
    if host.startswith("[") and host.endswith("]"):
        host = _ipv6(host[1:-1], text)
    elif ":" in host:
        raise ValueError(f"`{text}`: an IPv6 host needs brackets, such as [::1]:{port}")
    return host, int(port)


def is_local(host: str) -> bool:
    """Return whether what is sent to a host, or listened for there, stays on this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _ipv6(host: str, text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(host))
    except ValueError as error:
        raise ValueError(f"`{text}`: {host} is no IPv6 address") from error
