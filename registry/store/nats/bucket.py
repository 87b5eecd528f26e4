"""The bucket: where it is, how it is made and looked at, by the API of JetStream."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import msgspec
from nats import errors

from registry.errors import StoreOpenError
from registry.store.nats.link import Link, NoConnection
from registry.store.options import NatsOptions

REQUEST_SECONDS = 5.0
# Error codes: there is no leader now, the server that was asked is not the leader, or JetStream is
# not enabled there, or not yet.
TEMPORARILY_UNAVAILABLE = {10008, 10009, 10076}


SCHEME = "nats://"
DEFAULT_PORT = 4222
# A bucket's name is part of the name of a stream and of subjects.
_BUCKET = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SERVER = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(:(?P<port>[0-9]{1,5}))?")
STREAM_NOT_FOUND = 10059
STREAM_NAME_IN_USE = 10058
WANTED_REPLICAS = 3
# A server alone. A cluster of which some servers are down has another error: a bucket with too few
# replicas would stay like that.
NOT_CLUSTERED = 10074
# Fewer servers than replicas are there. Those that start at the same time may come soon.
NO_SUITABLE_PEERS = 10005
CHECKED = ("max_msgs_per_subject", "allow_msg_ttl", "allow_rollup_hdrs", "retention", "storage")


class Rejected(Exception):
    """JetStream rejects a request; `code` is its number of the error."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code


async def ask_jetstream(link: Link, subject: str, request: object = None) -> dict[str, Any]:
    """Return the answer of JetStream's API to a request, which is sent as JSON.

    Raises Rejected, NoConnection.
    """
    payload = b"" if request is None else msgspec.json.encode(request)
    try:
        reply = await link.client.request(f"$JS.API.{subject}", payload, timeout=REQUEST_SECONDS)
    except errors.NoRespondersError as error:
        raise NoConnection("JetStream is not enabled there, or has no leader now") from error
    except (TimeoutError, errors.TimeoutError) as error:
        raise NoConnection(f"JetStream did not answer {subject}") from error
    except (OSError, errors.Error) as error:
        raise NoConnection(str(error) or type(error).__name__) from error
    answer: dict[str, Any] = msgspec.json.decode(reply.data)
    if "error" in answer:
        error_ = answer["error"]
        code, text = error_.get("err_code", 0), error_.get("description", "no reason given")
        raise NoConnection(text) if code in TEMPORARILY_UNAVAILABLE else Rejected(code, text)
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAddress:
    """A bucket: its servers as URLs, its name, and how it is reached and made."""

    servers: tuple[str, ...]
    bucket: str
    options: NatsOptions

    @classmethod
    def from_url(cls, url: str, options: NatsOptions) -> Self | None:
        """Return the place that `nats://HOST[:PORT][,HOST...]/BUCKET` names; None if it does not.

        A user in the URL is rejected: URLs are logged.
        """
        hosts, _, bucket = url.removeprefix(SCHEME).partition("/")
        servers = [_SERVER.fullmatch(host) for host in hosts.split(",")]
        if not url.startswith(SCHEME) or _BUCKET.fullmatch(bucket) is None:
            return None
        found = [
            f"{SCHEME}{server['host']}:{server['port'] or DEFAULT_PORT}"
            for server in servers
            if server is not None
        ]
        if len(found) < len(servers):
            return None
        return cls(servers=tuple(found), bucket=bucket, options=options)

    def __str__(self) -> str:
        hosts = ",".join(server.removeprefix(SCHEME) for server in self.servers)
        return f"{SCHEME}{hosts}/{self.bucket}"


class BucketState(NamedTuple):
    """What a bucket is like now.

    `created` distinguishes it from another one of the same name; `last` is its last sequence,
    `first` that of the oldest message, `subjects` the number of keys, `consumers` how many
    registries read it, or did so some seconds ago. `servers` are those that keep it, `replicas`
    how many it is to have, `cluster` is the name of their cluster, empty for a server alone.
    """

    created: str
    first: int
    last: int
    subjects: int
    consumers: int
    servers: tuple[str, ...]
    replicas: int
    cluster: str


def stream_of(bucket: str) -> str:
    """Return the stream that holds a bucket."""
    return f"KV_{bucket}"


async def find_bucket(link: Link, bucket: str) -> BucketState | None:
    """Return the state of a bucket, None if there is none. Raises StoreOpenError, NoConnection."""
    info = await _info(link, bucket)
    return None if info is None else _state(info)


async def _info(link: Link, bucket: str) -> dict[str, Any] | None:
    try:
        info = await ask_jetstream(link, f"STREAM.INFO.{stream_of(bucket)}")
    except Rejected as error:
        if error.code == STREAM_NOT_FOUND:
            return None
        raise StoreOpenError(f"JetStream rejects the bucket {bucket}: {error}") from error
    _check(bucket, info["config"])
    return info


async def open_bucket(link: Link, place: BucketAddress) -> BucketState:
    """Return the state of a bucket, and make it if there is none.

    Raises StoreOpenError, and NoConnection, also while too few servers are there to make it.
    """
    bucket, options = place.bucket, place.options
    info = await _info(link, bucket)
    if info is not None:
        found = _state(info)
        _require_as_set(place, found, info["config"])
        return found
    wanted = _replicas(place)
    for replicas in wanted:
        try:
            return _state(await ask_jetstream(link, *_creation(bucket, options, replicas)))
        except Rejected as error:
            if error.code == STREAM_NAME_IN_USE:  # another registry has just made it
                return await open_bucket(link, place)
            if error.code != NOT_CLUSTERED or replicas == wanted[-1]:
                raise _creation_failed(place, replicas, error) from error
    raise AssertionError("there is always a last number of replicas")


def _require_as_set(place: BucketAddress, found: BucketState, config: Mapping[str, Any]) -> None:
    """Raise StoreOpenError if a bucket has other replicas or another place than the settings say.

    A bucket in the right cluster is accepted, also if nobody has said that it is to be there.
    """
    bucket, options = place.bucket, place.options
    if options.replicas not in {None, found.replicas}:
        raise StoreOpenError(
            f"the bucket {bucket} has {found.replicas} replicas, `nats.replicas` says"
            f" {options.replicas}; change either"
        )
    placement = config.get("placement") or {}
    cluster = placement.get("cluster") or found.cluster
    if options.placement_cluster and options.placement_cluster != cluster:
        raise StoreOpenError(
            f"the bucket {bucket} is to be in the cluster {cluster!a}, `nats.placement_cluster`"
            f" says {options.placement_cluster!a}; change either"
        )
    tags = placement.get("tags") or []
    if options.placement_tags and _lowered(options.placement_tags) != _lowered(tags):
        raise StoreOpenError(
            f"the bucket {bucket} is to be on servers with the tags {', '.join(tags) or '(none)'},"
            f" `nats.placement_tags` says {', '.join(options.placement_tags)}; change either"
        )


def _lowered(tags: Iterable[str]) -> set[str]:
    return {tag.lower() for tag in tags}


def _creation_failed(place: BucketAddress, replicas: int, error: Rejected) -> Exception:
    problem = (
        f"the bucket {place.bucket} cannot be made with {replicas} replicas: {error}"
        " (see `nats.replicas`, `nats.placement_tags` and `nats.placement_cluster`)"
    )
    is_anywhere = not _placement(place.options)
    if error.code == NO_SUITABLE_PEERS and is_anywhere:
        return NoConnection(problem)
    return StoreOpenError(problem)


def _replicas(place: BucketAddress) -> tuple[int, ...]:
    """Return how many replicas are tried, the first number first.

    One is not enough where three servers are named, even if the one that answers is no cluster.
    """
    if place.options.replicas is not None:
        return (place.options.replicas,)
    return (WANTED_REPLICAS,) if len(place.servers) >= WANTED_REPLICAS else (WANTED_REPLICAS, 1)


def _creation(bucket: str, options: NatsOptions, replicas: int) -> tuple[str, dict[str, Any]]:
    name = stream_of(bucket)
    config: dict[str, Any] = {
        "name": name,
        "description": "Nodes of Rollcall",
        "subjects": [f"$KV.{bucket}.>"],
        "max_msgs_per_subject": 1,
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "num_replicas": replicas,
        # With rollups, one message to any key could remove all others. No registry sends any.
        "allow_rollup_hdrs": False,
        "deny_delete": True,
        "allow_direct": True,
        "allow_msg_ttl": True,
    }
    if placement := _placement(options):
        config["placement"] = placement
    return f"STREAM.CREATE.{name}", config


def _placement(options: NatsOptions) -> dict[str, object]:
    """Return where the settings say that the bucket is to be, as JetStream writes it."""
    if not options.placement_cluster and not options.placement_tags:
        return {}
    return {"cluster": options.placement_cluster or "", "tags": list(options.placement_tags)}


def _check(bucket: str, config: dict[str, Any]) -> None:
    """Raise StoreOpenError if a bucket was made in a way that loses nodes."""
    wanted = _creation(bucket, NatsOptions(), 1)[1]
    for name in CHECKED:
        if config.get(name, False) != wanted[name]:
            raise StoreOpenError(
                f"the bucket {bucket} was made with {name} {config.get(name)!a}, it needs"
                f" {wanted[name]!a}; change it, or name another bucket"
            )
    if config.get("persist_mode") == "async":
        raise StoreOpenError(
            f"the bucket {bucket} was made with persist_mode 'async', so its server acknowledges"
            " changes before it syncs them; name another bucket"
        )
    if config.get("max_age") or config.get("max_msgs", -1) > 0 or config.get("max_bytes", -1) > 0:
        raise StoreOpenError(
            f"the bucket {bucket} has a limit of age, number or size, by which nodes would be lost"
            " without a word; remove it, or name another bucket"
        )


def _state(info: dict[str, Any]) -> BucketState:
    state, cluster = info["state"], info.get("cluster", {})
    servers = [cluster.get("leader"), *[one["name"] for one in cluster.get("replicas", [])]]
    return BucketState(
        created=info["created"],
        first=state["first_seq"],
        last=state["last_seq"],
        subjects=state.get("num_subjects", 0),
        consumers=state.get("consumer_count", 0),
        servers=tuple(name for name in servers if name),
        replicas=info["config"].get("num_replicas", 1),
        cluster=cluster.get("name", ""),
    )
