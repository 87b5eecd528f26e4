"""Whether the servers keep what they acknowledge, as their monitoring says."""

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ssl import SSLContext
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec
from nats import errors

from clients.tls import client_context
from registry.errors import StoreOpenError
from registry.store.nats.bucket import WANTED_REPLICAS, BucketAddress, BucketState, stream_of
from registry.store.nats.link import Connector, Link, NoConnection, run_in_thread
from registry.store.options import NatsOptions

T = TypeVar("T")
OLDEST = (2, 12)
SECONDS = 3.0
CHECK_SECONDS = 10.0
MAX_ANSWER_BYTES = 1024 * 1024
NO_SPACE = "no space left on device"
# What can be wrong with an address, a connection to it, or what answers there.
FAULTS = (ValueError, TypeError, OSError, HTTPException, msgspec.DecodeError, AttributeError)
PING = "$SYS.REQ.SERVER.PING.VARZ"
REMEDY = (
    "set `sync_interval: always` in its `jetstream` section and restart it; or set"
    " `nats.accept_loss: true`, if acknowledged changes may be lost"
)


class Server(NamedTuple):
    """What a server reports of itself."""

    name: str
    version: str
    has_jetstream: bool
    syncs_always: bool
    cluster: str
    tags: tuple[str, ...]

    @classmethod
    def from_varz(cls, varz: Mapping[str, Any]) -> "Server":
        """Return what the answer to /varz says."""
        config = varz.get("jetstream", {}).get("config", {})
        return cls(
            name=str(varz.get("server_name", "")),
            version=str(varz.get("version", "0")),
            has_jetstream=bool(config),
            syncs_always=config.get("sync_always") is True,
            cluster=str(varz.get("cluster", {}).get("name", "")),
            tags=tuple(varz.get("tags") or ()),
        )

    def can_keep(self, cluster: str, tags: Iterable[str]) -> bool:
        """Return whether it can keep a replica in a cluster, on servers with all of these tags."""
        own = {tag.lower() for tag in self.tags}  # a server lowers their case
        return (
            self.has_jetstream and self.cluster == cluster and own.issuperset(map(str.lower, tags))
        )


async def check_servers(
    names: Sequence[str], servers: Sequence[str], options: NatsOptions, link: Link
) -> str:
    """Require that the servers that keep the bucket are new enough, and sync each write.

    `names` are those servers, as far as they are a cluster; a majority of them has to answer, and
    all that answer are checked. Return which did not answer, empty if all did. Raises
    StoreOpenError, also if the settings do not say where each of them can be asked.
    """
    connected_to = link.client.connected_server_version
    require_version(f"{connected_to.major}.{connected_to.minor}")
    if options.accept_loss:
        return ""
    if not options.monitoring and options.system is None:
        raise StoreOpenError(
            "it cannot be seen whether the NATS servers sync each write: name the addresses of"
            " their monitoring as `nats.monitoring`, or a login for the system account as"
            " `nats.system`; or set `nats.accept_loss: true`, if acknowledged changes may be lost"
        )
    seen, reasons = await _seen(names, _system(servers, options), options)
    for server in seen.values():
        _require_sound(server)
    unseen = sorted(set(names) - set(seen))
    if not seen or (names and len(unseen) * 2 >= len(names)):
        raise StoreOpenError(
            "it cannot be seen whether the NATS servers sync each write: no answer from"
            f" {', '.join(unseen) or 'any of them'} (nats.monitoring, nats.system)"
            + "".join(f"; {reason}" for reason in reasons)
        )
    # An address that does not answer may be that of a server which is away.
    if options.system is None and len(unseen) > len(reasons):
        raise StoreOpenError(
            "it cannot be seen whether each NATS server syncs each write: the bucket is on"
            f" {', '.join(sorted(names))}, and `nats.monitoring` has no address of"
            f" {', '.join(unseen)}; add the monitoring of each server, such as http://HOST:8222,"
            " or a login for the system account as `nats.system`"
        )
    return _unchecked(unseen, reasons)


class ServerChecks:
    """Looks again and again whether the servers that answer keep what they acknowledge.

    Some may have been away at the start, or come back with other settings. `unchecked` says which
    of those that keep the bucket did not answer. `complaints` are what the servers last said is
    wrong with themselves, each at its monitoring.
    """

    def __init__(self, place: BucketAddress) -> None:
        self._place = place
        self._options = place.options
        self._system = _system(place.servers, place.options)
        self._unsound = self.unchecked = ""
        # A server that is away for a moment is still one that can keep a replica.
        self._candidates: set[str] = set()
        self._state: BucketState | None = None
        self.complaints: list[str] = []

    @property
    def risk(self) -> str:
        """Why acknowledged changes may be lost, as it was found last; empty if they are kept."""
        if self._state is None:
            return self._unsound
        few = replicas_risk(self._state, self._place, self._candidates)
        return "; ".join(filter(None, (self._unsound, few)))

    @property
    def is_full(self) -> bool:
        """Whether a server says that its disk is full."""
        return any(NO_SPACE in complaint for complaint in self.complaints)

    def note(self, state: BucketState) -> None:
        """Take what the bucket is like now: its servers and replicas may have changed."""
        self._state = state

    async def run(self) -> None:
        """Look now and then; what does not answer is no risk."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.look()
            except Exception as defect:
                context = {"message": "defect of the store", "exception": defect}
                loop.call_exception_handler(context)

    async def look(self) -> None:
        """Look once."""
        self.complaints = await _complaints(self._options)
        with suppress(StoreOpenError):  # the system account cannot be reached
            await self._look_at_servers()

    async def _look_at_servers(self) -> None:
        seen, reasons = await _seen(None, self._system, self._options)
        if self._state is not None:
            cluster, tags = self._state.cluster, self._options.placement_tags
            able = (one.name for one in seen.values() if one.can_keep(cluster, tags))
            self._candidates.update(able)
        if not self._options.accept_loss:
            names = () if self._state is None else self._state.servers
            self._unsound = _risk(seen.values())
            self.unchecked = _unchecked(sorted(set(names) - set(seen)), reasons)


def replicas_risk(state: BucketState, place: BucketAddress, candidates: Collection[str]) -> str:
    """Return why the loss of one server can lose changes; empty if the replicas are enough.

    `candidates` are the servers that are known to be able to keep a replica. Without a placement,
    those that the URL names are able to as well.
    """
    options = place.options
    is_placed = bool(options.placement_cluster or options.placement_tags)
    count = max(len(candidates), 0 if is_placed else len(place.servers))
    if options.replicas is not None or not state.cluster:
        return ""
    if state.replicas >= WANTED_REPLICAS or count < WANTED_REPLICAS:
        return ""
    return (
        f"the bucket {place.bucket} has {state.replicas} of {WANTED_REPLICAS} replicas, though"
        f" {count} servers of the cluster {state.cluster} could keep one: do `nats stream edit"
        f" {stream_of(place.bucket)} --replicas {WANTED_REPLICAS}`; or set `nats.replicas:"
        f" {state.replicas}`, if the loss of a server may lose nodes"
    )


def _unchecked(unseen: Sequence[str], reasons: Sequence[str]) -> str:
    """Return which servers and addresses did not answer; empty if all did."""
    silent = [f"no answer from {', '.join(unseen)}"] if unseen else []
    return "; ".join([*silent, *reasons])


def _risk(servers: Iterable[Server]) -> str:
    try:
        for server in servers:
            _require_sound(server)
    except StoreOpenError as error:
        return str(error)
    return ""


def _require_sound(server: Server) -> None:
    require_version(server.version, server.name)
    if server.has_jetstream and not server.syncs_always:
        raise StoreOpenError(
            f"the NATS server {server.name} loses acknowledged changes when the power fails:"
            f" {REMEDY}"
        )


def require_version(version: str, name: str = "") -> None:
    """Raise StoreOpenError if a version of the server is too old."""
    numbers = tuple(int(part) for part in re.findall("[0-9]+", version)[:2])
    if numbers < OLDEST:
        raise StoreOpenError(
            f"the NATS server {name or 'there'} has version {version}; needed is"
            f" {OLDEST[0]}.{OLDEST[1]} or newer"
        )


def _system(servers: Sequence[str], options: NatsOptions) -> Connector | None:
    """Return what connects to the system account, if there is a login for it."""
    return None if options.system is None else Connector(servers, options.system)


async def _seen(
    names: Sequence[str] | None, system: Connector | None, options: NatsOptions
) -> tuple[dict[str, Server], list[str]]:
    """Return the servers that answer, by name, and why others do not.

    The system account is asked until all of `names` have answered, or for `SECONDS`.
    """
    found = await _ask_all(_ask_monitoring, options)
    seen = [server for server in found if isinstance(server, Server)]
    if system is not None:
        try:
            async with system.connected() as link:
                seen += await _ask_system(link, names)
        except (NoConnection, errors.Error, OSError, msgspec.DecodeError) as error:
            reason = str(error) or type(error).__name__
            raise StoreOpenError(f"the system account cannot be reached: {reason}") from error
    reasons = [reason for reason in found if isinstance(reason, str)]
    return {server.name: server for server in seen}, reasons


async def _ask_all(ask: Callable[[str, SSLContext | None], T], options: NatsOptions) -> Sequence[T]:
    """Return what each monitoring says; in threads of their own, since a name may take minutes."""
    tls = options.login.tls
    return await asyncio.gather(
        *[run_in_thread(partial(ask, url, tls)) for url in options.monitoring]
    )


async def _complaints(options: NatsOptions) -> list[str]:
    """Return the problems that servers report; servers that do not answer are left out."""
    return [complaint for complaint in await _ask_all(_ask_health, options) if complaint]


def _ask_health(url: str, tls: SSLContext | None) -> str:
    try:
        status, body = _get(url, "healthz", tls)
        if status == HTTPStatus.OK:
            return ""
        return f"{url} says: {msgspec.json.decode(body).get('error', status)}"
    except FAULTS:
        return ""


def _ask_monitoring(url: str, tls: SSLContext | None) -> Server | str:
    """Return what a server says at its monitoring address; why not if it does not answer."""
    try:
        status, body = _get(url, "varz", tls)
        if status != HTTPStatus.OK:
            return f"{url}: status {status}"
        return Server.from_varz(msgspec.json.decode(body))
    except FAULTS as error:
        return f"{url}: {str(error) or type(error).__name__}"


def _get(url: str, path: str, tls: SSLContext | None) -> tuple[int, bytes]:
    """Return the status and the body of an answer. Raises one of FAULTS."""
    address = urlsplit(url)
    connection = _connection(address.scheme, address.netloc, tls)
    try:
        connection.request("GET", f"{address.path.rstrip('/')}/{path}")
        response = connection.getresponse()
        return response.status, response.read(MAX_ANSWER_BYTES)
    finally:
        connection.close()


def _connection(scheme: str, address: str, tls: SSLContext | None) -> HTTPConnection:
    if scheme == "https":
        return HTTPSConnection(address, timeout=SECONDS, context=tls or client_context())
    return HTTPConnection(address, timeout=SECONDS)


async def _ask_system(link: Link, names: Sequence[str] | None) -> list[Server]:
    """Return what the servers of a cluster say to the system account, at least those named.

    One that does not answer in time is left out. Without names, all have the whole time.
    """
    found: list[Server] = []
    awaited = set(names or ())
    inbox = link.client.new_inbox()
    subscription = await link.client.subscribe(inbox)
    await link.client.publish(PING, b"", reply=inbox)
    end = asyncio.get_running_loop().time() + SECONDS
    while (names is None or awaited or not found) and (
        left := end - asyncio.get_running_loop().time()
    ) > 0:
        try:
            message = await subscription.next_msg(left)
        except TimeoutError:
            break
        answer = msgspec.json.decode(message.data)
        if "data" in answer:
            found.append(Server.from_varz(answer["data"]))
            awaited.discard(found[-1].name)
    return found
