"""From a node's labels to target groups: pure functions. A bad label affects its own node only."""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from clients.message import APP_STATES, Node, TargetGroup
from registry.prometheus.address import InvalidTarget, join_host_port, join_target, split_host_port
from registry.prometheus.label_names import SAFE_SCHEME, SCHEME, is_reserved, merge, sanitize
from registry.responses.slices import Steps, finish

PREFIX = "prometheus:"
TOO_LARGE = "size"
# Parsed labels of an instance with more labels than this are not cached.
MAX_CACHED_LABELS = 8
# Parsing this many labels, or encoding this many groups, takes about 0.3 ms.
ITEMS_PER_STEP = 100
# Keys of labels that say what to do with a node or an app, and change when it changes.
DIRECTIVES = ("prometheus", "serving")
LABEL_META = "__meta_rollcall_label_"
LABELS_META = "__meta_rollcall_labels"
KV_META = "__meta_rollcall_kv_"
# Bytes of labels for relabelling that all groups of one node for one service may take together.
MAX_REPEATED = 1024 * 1024


class Remark(msgspec.Struct, frozen=True):
    """Something of a label that was not used as it was given; `text` explains it.

    `subject` is the target or the name of the label that is meant. The reasons: `host`, `port` and
    `foreign` leave a target out, `held_back` and `empty` a label. `sanitized` changes a label's
    name. `size` leaves out the labels for relabelling. `misspelt`, of an explanation alone, is a
    label that looks like another one.
    """

    reason: str
    subject: str
    text: str


class NodeTargets(NamedTuple):
    """The target groups of one node for one service, and the remarks on its labels."""

    groups: list[TargetGroup]
    remarks: list[Remark]


class TargetOptions(NamedTuple):
    """How labels become targets.

    With `own_only`, a target's host must be the node's hostname or the address that it posts from.
    `allow_labels` are names that a node may set although they are withheld by default.
    """

    default_port: int = 9100
    ports: Mapping[str, int] = {}
    own_only: bool = False
    allow_labels: Collection[str] = ()


class ServiceLabel(NamedTuple):
    """A parsed label `prometheus:SERVICE[@INSTANCE][:KEY:VALUE]`; `key` is None without a KEY."""

    service: str
    instance: str
    key: str | None
    value: str


def items(labels: Iterable[str]) -> Iterator[ServiceLabel]:
    """Parse the labels that name services. One with a KEY and no VALUE is ignored."""
    for label in labels:
        if label.startswith(PREFIX):
            item = _parse_service_label(label)
            if item is not None:
                yield item


@lru_cache(maxsize=2048)  # a fleet uses the same few labels
def _parse_service_label(label: str) -> ServiceLabel | None:
    service, colon, setting = label[len(PREFIX) :].partition(":")
    key, second_colon, value = setting.partition(":")
    name, _, instance = service.partition("@")
    if name and not colon:
        return ServiceLabel(name, instance, None, "")
    if name and second_colon:
        return ServiceLabel(name, instance, key, value)
    return None


def targets_by_service(
    node: Node, *, posted_from: str, target_options: TargetOptions
) -> Steps[dict[str, NodeTargets]]:
    """Return the node's targets by service, with one group for each instance.

    `posted_from` is the address that the node's heartbeats come from.
    """
    found: dict[str, NodeTargets] = {}
    for pair in service_targets(node, posted_from=posted_from, target_options=target_options):
        if pair is not None:
            found[pair[0]] = pair[1]
        yield
    return found


def service_targets(
    node: Node, *, posted_from: str, target_options: TargetOptions
) -> Generator[tuple[str, NodeTargets] | None, None, None]:
    """Yield the node's targets of one service after the other; see `targets_by_service`.

    A node may have thousands of services, and a service thousands of instances. So None is yielded
    now and then in between, for the caller to let others go on.
    """
    by_service: dict[str, dict[str, list[ServiceLabel]]] = {}
    for number, item in enumerate(items(node.labels), 1):
        by_service.setdefault(item.service, {}).setdefault(item.instance, []).append(item)
        if number % ITEMS_PER_STEP == 0:
            yield None
    own = _own_hosts(node.hostname, posted_from) if target_options.own_only else None
    allow_labels = frozenset(target_options.allow_labels)
    repeated_size = 0
    for service, instances in by_service.items():
        found = yield from _node_targets(
            _parse_instances(instances, allow_labels),
            hostname=node.hostname,
            port=str(target_options.ports.get(service, target_options.default_port)),
            own=own,
        )
        if len(found.groups) > 1:
            if not repeated_size:
                meta = yield from meta_labels(node, posted_from)
                repeated_size = len(msgspec.json.encode(meta))
            _limit_repetition(found, repeated_size)
        yield service, found


def _limit_repetition(found: NodeTargets, size: int) -> None:
    """Add a `size` remark if the groups would repeat too many bytes of the node."""
    if size * len(found.groups) > MAX_REPEATED:
        text = (
            f"labels and kv of the node left out of its groups' labels: {size} bytes in each"
            f" of {len(found.groups)} groups would be over {MAX_REPEATED} bytes;"
            " __meta_rollcall_hostname and __meta_rollcall_address alone are left"
        )
        found.remarks.append(Remark(TOO_LARGE, "__meta_rollcall_", text))


def _own_hosts(hostname: str, posted_from: str) -> tuple[str, str]:
    return hostname, f"[{posted_from}]" if ":" in posted_from else posted_from


class _InstanceLabels(NamedTuple):
    """What the labels of one instance say; it does not depend on the node."""

    hosts: list[str]
    port: str | None
    labels: dict[str, str]
    remarks: list[Remark]


def _parse_instances(
    instances: Mapping[str, Sequence[ServiceLabel]], allow_labels: frozenset[str]
) -> Iterator[_InstanceLabels | None]:
    """Yield what each instance says, in the order of their names, and None now and then."""
    for number, name in enumerate(sorted(instances), 1):
        given = instances[name]
        if len(given) <= MAX_CACHED_LABELS:
            yield _parse_small_instance(tuple(given), allow_labels)
        else:
            yield (yield from _parse_instance(given, allow_labels))
        if number % ITEMS_PER_STEP == 0:
            yield None


@lru_cache(maxsize=1024)  # the nodes of a fleet have mostly the same few labels
def _parse_small_instance(
    given: tuple[ServiceLabel, ...], allow_labels: frozenset[str]
) -> _InstanceLabels:
    return finish(_parse_instance(given, allow_labels))


def _parse_instance(
    given: Sequence[ServiceLabel], allow_labels: frozenset[str]
) -> Steps[_InstanceLabels]:
    hosts = [item.value for item in given if item.key == "host"]
    ports = [None, *(item.value for item in given if item.key == "port")]
    remarks: list[Remark] = []
    labels = yield from _labels(given, allow_labels, remarks)
    return _InstanceLabels(hosts, ports[-1], labels, remarks)


def _node_targets(
    instances: Iterable[_InstanceLabels | None],
    *,
    hostname: str,
    port: str,
    own: tuple[str, str] | None,
) -> Steps[NodeTargets]:
    found = NodeTargets([], [])
    for parsed in instances:
        if parsed is None:
            yield
            continue
        target_port = port if parsed.port is None else parsed.port
        targets = yield from _targets(hostname, parsed.hosts, target_port, own, found.remarks)
        found.remarks.extend(parsed.remarks)
        if targets:
            found.groups.append(TargetGroup(targets, parsed.labels))
    return found


def _targets(
    hostname: str,
    hosts: list[str],
    port: str,
    own: tuple[str, str] | None,
    remarks: list[Remark],
) -> Steps[list[str]]:
    found: dict[str, None] = {}
    for number, host in enumerate(hosts or (None,), 1):
        try:
            target = join_host_port(hostname, port) if host is None else _target(host, port, own)
            found[target] = None
        except InvalidTarget as error:
            subject = f"{hostname}:{port}" if host is None else host
            remarks.append(Remark(error.reason, subject, f"target left out: {error}"))
        if number % ITEMS_PER_STEP == 0:
            yield
    return list(found)


def _target(host: str, port: str, own: tuple[str, str] | None) -> str:
    if own is not None and split_host_port(host)[0].lower().removesuffix(".") not in own:
        raise InvalidTarget(
            "foreign",
            f"{host!a} is not this node; while prometheus.targets is `own`, a node may only name"
            f" {own[0]}, or {own[1]}, where its heartbeat came from",
        )
    return join_target(host, port)


def _labels(
    given: Iterable[ServiceLabel], allow_labels: Collection[str], remarks: list[Remark]
) -> Steps[dict[str, str]]:
    kept = []
    for number, item in enumerate(given, 1):
        if number % ITEMS_PER_STEP == 0:
            yield
        if item.key is None or item.key in {"host", "port"}:
            continue
        name = sanitize(item.key)
        if not name:
            text = f"label without a name left out: {item.value!a}"
            remarks.append(Remark("empty", item.key, text))
        elif is_reserved(name, item.value, allow_labels):
            only = f", except to {SAFE_SCHEME}" if name == SCHEME else ""
            made = "" if name == item.key else f" is sanitized to {name}, which"
            text = f"label {item.key!a}{made} is not for a node to set{only}"
            remarks.append(Remark("held_back", item.key, text))
        else:
            if name != item.key:
                text = f"label {item.key!a} is sanitized to {name}"
                remarks.append(Remark("sanitized", item.key, text))
            kept.append((item.key, item.value))
    return merge(kept) if kept else {}


def meta_labels(node: Node, address: str) -> Steps[dict[str, str]]:
    """Return the labels for relabelling: hostname, address, labels and kv of the node.

    Each `key:value` label is one; the values of several with one key are joined with commas, in
    their order. All labels together are another one, joined with commas, with one at each end.
    """
    labels = yield from _label_meta(node.labels)
    return {**fixed_meta_labels(node.hostname, address), **labels, **_kv_meta(node.kv)}


def _label_meta(labels: Sequence[str]) -> Steps[dict[str, str]]:
    pairs, given = [], []
    for number, label in enumerate(labels, 1):
        key, colon, value = label.partition(":")
        if key not in DIRECTIVES:
            given.append(label)
            if colon and key:
                pairs.append((_meta_name(LABEL_META, key), value))
        if number % ITEMS_PER_STEP == 0:
            yield
    named = dict(pairs)
    if len(named) != len(pairs):
        values: dict[str, list[str]] = {}
        for name, value in pairs:
            values.setdefault(name, []).append(value)
        named = {name: ",".join(each) for name, each in values.items()}
    return named | {LABELS_META: f",{','.join(given)},"} if given else named


def _kv_meta(kv: Mapping[str, str]) -> dict[str, str]:
    # The states of apps change too often for targets.
    given = {key: value for key, value in kv.items() if key != APP_STATES}
    named = {_meta_name(KV_META, key): value for key, value in given.items()}
    if len(named) == len(given):
        return named
    return merge((f"{KV_META}{key}", given[key]) for key in sorted(given))


@lru_cache(maxsize=2048)
def _meta_name(prefix: str, key: str) -> str:
    return sanitize(f"{prefix}{key}")


def fixed_meta_labels(hostname: str, address: str) -> dict[str, str]:
    """Return the labels for relabelling that are always there."""
    return {"__meta_rollcall_hostname": hostname, "__meta_rollcall_address": address}
