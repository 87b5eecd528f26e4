"""Network addresses in settings: HOST:PORT, with brackets around an IPv6 host."""

import ipaddress

MAX_PORT = 65535
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
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


def proxy_network(text: str) -> Network:
    """Return the network that a text such as ``192.0.2.0/28`` or ``192.0.2.10`` means.

    Raises:
        ValueError: it is none, or all addresses; the message shows a correct one.

    """
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"`{text}` is no network, such as 192.0.2.10/32: {error}") from error
    if network.prefixlen == 0:
        raise ValueError(f"`{text}` would trust every client; write the addresses of the proxies")
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped:
        raise ValueError(f"`{text}`: write IPv4 addresses as such, without ::ffff:")
    return network
