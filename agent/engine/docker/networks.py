"""Networks of the engine."""

import secrets

import msgspec

from agent.engine.api.client import EngineClient, escaped
from agent.engine.api.responses import ApiObject
from agent.engine.api.translation import well_formed
from agent.engine.docker.commands import Client, Commands
from agent.engine.errors import ObjectNotFound
from agent.engine.models import InspectedContainer, Network

DRIVER = "bridge"
INTERFACE = "com.docker.network.bridge.name"
REACHABLE = "com.docker.network.bridge.enable_icc"
MASQUERADE = "com.docker.network.bridge.enable_ip_masquerade"
MTU = "com.docker.network.driver.mtu"


class _Subnet(ApiObject):
    subnet: str = ""


class _Ipam(ApiObject):
    config: list[_Subnet] | None = None


class _Inspected(ApiObject):
    name: str
    driver: str
    options: dict[str, str] | None = None
    ipam: _Ipam = msgspec.field(name="IPAM", default_factory=_Ipam)
    enable_ipv6: bool = msgspec.field(name="EnableIPv6", default=False)


_NETWORK = msgspec.json.Decoder(_Inspected)


async def find_network(client: EngineClient, name: str) -> Network | None:
    """Return a network, None if there is none of that name."""
    try:
        return await client.get(f"/networks/{escaped(name)}", network)
    except ObjectNotFound:
        return None


async def create_network(commands: Commands, wanted: Network) -> None:
    """Create a bridge network; EngineConflict if there is one of that name."""
    options = {INTERFACE: wanted.interface, REACHABLE: str(wanted.reachable).lower()}
    if wanted.mtu:
        options[MTU] = str(wanted.mtu)
    ipam = {"Driver": "default", "Config": [{"Subnet": each} for each in wanted.subnets]}

    def work(client: Client) -> None:
        client.create_network(
            wanted.name,
            driver=DRIVER,
            options=options,
            ipam=ipam if wanted.subnets else None,
            enable_ipv6=wanted.ipv6,
            check_duplicate=True,
        )

    await commands.call(work)


async def connect(commands: Commands, container_id: str, name: str) -> None:
    """Connect a container to a network; the ports of one that runs are published again."""
    await commands.call(lambda client: client.connect_container_to_network(container_id, name))


async def remove_endpoint(commands: Commands, container: InspectedContainer) -> None:
    """Remove what a container that does not run has left in its network.

    The engine fails to remove it while its disk is full. It removes it by a name that is no
    container's, so the container has another one meanwhile; what renames containers of apps
    knows it as that of a replacement.
    """
    name, meanwhile = container.name, f"{container.name}.NEXT-{secrets.token_hex(4)}"

    def work(client: Client) -> None:
        client.rename(container.id, meanwhile)
        try:
            client.disconnect_container_from_network(name, container.own_network, force=True)
        finally:
            client.rename(container.id, name)

    await commands.call(work)


def network(answer: bytes) -> Network:
    """Return the network that was inspected."""
    with well_formed():
        entry = _NETWORK.decode(answer)
        options = entry.options or {}
        return Network(
            name=entry.name,
            interface=options.get(INTERFACE, ""),
            reachable=entry.driver != DRIVER or options.get(REACHABLE, "true") != "false",
            masquerade=options.get(MASQUERADE, "true") != "false",
            mtu=int(options.get(MTU, 0)),
            ipv6=entry.enable_ipv6,
            subnets=tuple(each.subnet for each in entry.ipam.config or () if each.subnet),
        )
