"""The network of isolated apps, in which an app reaches only the published ports of others."""

import asyncio
import secrets
from ipaddress import IPv6Network, ip_network
from pathlib import Path

from agent.apps.context import AgentContext
from agent.apps.errors import NetworkUnfit
from agent.engine.errors import EngineRejected
from agent.engine.models import (
    Container,
    EngineInfo,
    Network,
)

NETWORK = "rollcall"
INTERFACE = "rollcall0"
DEFAULT_BRIDGE = "bridge"
KERNEL_SETTINGS = Path("/proc/sys/net")
# Another agent may be making the network: it is not listed at once.
LOOKS = 10
LOOK_SECONDS = 0.1
# From this version on the engine filters IPv6; before, only where experimental features are on.
FILTERS_IPV6 = 27
MOVES_IN = (
    "the app is not isolated from others yet (`apps.isolated`): it is from its next rebuild on, or"
    " any other replacement of its container"
)
OTHERS = (
    "its container was connected to {}, too, where others may reach it; a rebuild leaves it in its"
    " own network alone"
)
MOVES_OUT = (
    "the app is still isolated from others: it is until its next rebuild, or any other replacement"
    " of its container, since `apps.isolated` is off"
)


class AppsNetwork:
    """The network `rollcall`, which all agents on an engine share.

    It takes MTU and IPv6 from the engine's default bridge, to which apps go without isolation.
    ``kernel_settings`` is where the kernel shows its settings of networks.
    """

    def __init__(self, context: AgentContext, *, kernel_settings: Path = KERNEL_SETTINGS) -> None:
        self._context = context
        self._kernel_settings = kernel_settings
        self._logged_faults: set[str] = set()
        self._turn = asyncio.Lock()

    def message(self, container: Container) -> str | None:
        """Return a note if the app's next container will be in other networks, else None."""
        others = (container.networks or frozenset()) - {container.own_network}
        if self._context.defaults.isolated and others and container.lost_network is None:
            return OTHERS.format(" and ".join(f"`{each}`" for each in sorted(others)))
        if (container.network == NETWORK) == self._context.defaults.isolated:
            return None
        return MOVES_IN if self._context.defaults.isolated else MOVES_OUT

    async def prepare(self) -> str | None:
        """Make the network if it is wanted and missing; return its name, None if not wanted.

        Raises:
            NetworkUnfit: there is a network of that name that does not isolate, or the engine
                refuses to make it.
            EngineUnavailable: the engine cannot be asked.

        """
        if not self._context.defaults.isolated:
            return None
        return (await self._existing()).name

    async def find(self) -> str | None:
        """Return what ``prepare`` would return, and make nothing; NetworkUnfit."""
        if not self._context.defaults.isolated:
            return None
        found = await self._context.engine.network(NETWORK)
        return NETWORK if found is None else _isolating(found).name

    async def _existing(self) -> Network:
        async with self._turn:
            found = await self._context.engine.network(NETWORK) or await self._create()
        return _isolating(found)

    async def _create(self) -> Network:
        bridge = await self._bridge()
        ipv6 = bridge.ipv6 and filters_ipv6(await self._context.engine.info())
        subnets = [each for each in self._context.defaults.subnets if ipv6 or not _is_ipv6(each)]
        if ipv6 and not any(map(_is_ipv6, subnets)):
            subnets.append(_random_subnet())
        wanted = Network(
            name=NETWORK,
            interface=INTERFACE,
            reachable=False,
            mtu=bridge.mtu,
            ipv6=ipv6,
            subnets=tuple(subnets),
        )
        try:
            await self._context.engine.create_network(wanted)
        except EngineRejected as error:
            return await self._made_by_another(error)
        self._context.log.info("network of apps made", network=NETWORK, interface=INTERFACE)
        return wanted

    async def _made_by_another(self, rejection: EngineRejected) -> Network:
        """Return the network that another agent makes just now; NetworkUnfit if none does."""
        for _ in range(LOOKS):
            found = await self._context.engine.network(NETWORK)
            if found is not None:
                return found
            await asyncio.sleep(LOOK_SECONDS)
        raise NetworkUnfit(
            f"the engine does not make the network `{NETWORK}` of isolated apps: {rejection}; set"
            " `apps.subnet` to addresses that are free, remove what has the interface"
            f" `{INTERFACE}`, or set `apps.isolated: false`"
        ) from rejection

    async def _bridge(self) -> Network:
        """Return the engine's default network, or its usual settings if there is none."""
        found = await self._context.engine.network(DEFAULT_BRIDGE)
        return found or Network(name=DEFAULT_BRIDGE, interface="", reachable=True)

    async def check(self) -> None:
        """Log each fault of the isolation, once.

        Raises:
            EngineError: the network cannot be inspected now.

        """
        if not self._context.defaults.isolated:
            return
        faults = await self._faults()
        for fault in sorted(faults - self._logged_faults):
            self._context.log.warning("apps are not isolated as they should be", reason=fault)
        self._logged_faults = faults

    async def _faults(self) -> set[str]:
        try:
            found = await self._existing()
        except NetworkUnfit as error:
            return {str(error)}
        bridge = await self._bridge()
        faults = {
            *self._faults_of_network(found, bridge),
            *self._faults_of_kernel(found.interface),
        }
        if not bridge.masquerade:
            faults.add(
                "the engine's `iptables` or `ip-masq` is off: nothing keeps apps from reaching one"
                " another, or they have no connection to other hosts"
            )
        if bridge.ipv6 and not filters_ipv6(await self._context.engine.info()):
            faults.add(
                "apps have no IPv6, though the engine's default bridge has: this engine does not"
                " filter it; Docker 27 does, and older ones with `ip6tables` and `experimental`"
            )
        return faults

    def _faults_of_network(self, found: Network, bridge: Network) -> set[str]:
        hint = f"stop the apps, remove the network `{NETWORK}`, and rebuild the apps"
        faults = set[str]()
        if found.interface != INTERFACE:
            name = f"`{found.interface}`" if found.interface else "one that the engine has named"
            faults.add(
                f"the interface of the network `{NETWORK}` is {name}, not `{INTERFACE}`, so that"
                f" lines of a firewall for that one do not hold; {hint}"
            )
        if not found.masquerade:
            faults.add(
                f"the network `{NETWORK}` does not masquerade: apps have no connection to other"
                f" hosts; {hint}"
            )
        if found.mtu != bridge.mtu:
            faults.add(f"the MTU is {found.mtu}, that of the default bridge {bridge.mtu}; {hint}")
        missing = [each for each in self._context.defaults.subnets if each not in found.subnets]
        if bridge.ipv6 and not found.ipv6:  # logged as a fault of its own
            missing = [each for each in missing if not _is_ipv6(each)]
        if missing:
            faults.add(f"`apps.subnet` is not used: {' '.join(missing)}; {hint}")
        return faults

    def _faults_of_kernel(self, interface: str) -> set[str]:
        faults = set[str]()
        # The engine sets this where it has no userland proxy.
        if self._read(f"ipv4/conf/{interface}/route_localnet") == "1":
            faults.add(
                "the engine's `userland-proxy` is off: no app reaches a port that another publishes"
            )
        if self._read("bridge/bridge-nf-call-iptables") == "0":
            faults.add(
                "the kernel does not filter what passes between apps: set"
                " net.bridge.bridge-nf-call-iptables=1"
            )
        return faults

    def _read(self, setting: str) -> str | None:
        """Return a setting of the kernel, None where the agent's own network has none."""
        try:
            return (self._kernel_settings / setting).read_text("ascii").strip()
        except OSError:
            return None


def _isolating(found: Network) -> Network:
    """Return the network, if it isolates apps; NetworkUnfit."""
    if found.reachable:
        raise NetworkUnfit(
            f"there is a network `{NETWORK}` whose containers reach one another; remove it, and"
            " the agent makes its own, or set `apps.isolated: false`"
        )
    return found


def filters_ipv6(info: EngineInfo) -> bool:
    """Return whether the engine keeps apps from reaching one another by IPv6."""
    major = info.version.partition(".")[0]
    return info.experimental or (major.isdecimal() and int(major) >= FILTERS_IPV6)


def _is_ipv6(subnet: str) -> bool:
    return isinstance(ip_network(subnet), IPv6Network)


def _random_subnet() -> str:
    """Return a unique local prefix, as RFC 4193 has them made."""
    digits = secrets.token_hex(5)
    return f"fd{digits[:2]}:{digits[2:6]}:{digits[6:]}::/64"
