"""Which labels a heartbeat has room for: each app gets an equal share of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from clients.message import label_error


@dataclass
class Room:
    """How many labels a heartbeat still has room for, and how many bytes of JSON."""

    labels: int
    bytes: int

    def take(self, group: Sequence[str]) -> bool:
        """Take the room of some labels; return False if they do not all fit."""
        size = _json_bytes(group)
        if len(group) > self.labels or size > self.bytes:
            return False
        self.labels -= len(group)
        self.bytes -= size
        return True


@dataclass(frozen=True)
class FittedLabels:
    """The labels that are sent, how many are not, and why.

    ``faults`` have no number: with it, each label that is added would be another line in the log.
    """

    labels: list[str]
    left_out: int
    faults: set[str]


def fit_labels(
    configured: Iterable[str], by_app: Mapping[str, Sequence[str]], room: Room
) -> FittedLabels:
    """Leave out the labels for which a registry would reject the whole heartbeat.

    Configured labels go first, then the name of each app (the first of its labels). What is left is
    shared by the apps. A service of an app is sent as a whole or not at all, also where one of its
    labels is invalid: a part of them could make another target, or one of another app.
    """
    wanted = dict.fromkeys(configured)
    names = dict.fromkeys(labels[0] for labels in by_app.values())
    invalid = {
        label: fault
        for label in [*wanted, *(label for labels in by_app.values() for label in labels)]
        if (fault := label_error(label)) is not None
    }
    faults = {f"label {label[:80]!a}: {fault}" for label, fault in invalid.items()}
    kept = set[str]()
    for label in wanted | names:
        if label not in invalid and room.take([label]):
            kept.add(label)
        elif label not in invalid:
            faults.add(
                "labels of settings, of files or of names of apps, beyond the size of a heartbeat"
            )
    services = {
        app: [
            group for group in _services(labels[1:]) if not any(each in invalid for each in group)
        ]
        for app, labels in by_app.items()
    }
    for app, groups in _shared(services, room).items():
        kept.update(label for group in groups for label in group)
        if len(groups) < len(services[app]):
            faults.add(f"services of app {app} beyond its share of a heartbeat")
    every = wanted | dict.fromkeys(label for labels in by_app.values() for label in labels)
    sent = [label for label in every if label in kept]
    return FittedLabels(sent, len(every) - len(sent), faults)


def _services(labels: Iterable[str]) -> list[list[str]]:
    """Return the labels ``prometheus:SERVICE@APP...`` of an app, by service."""
    services: dict[str, list[str]] = {}
    for label in dict.fromkeys(labels):
        services.setdefault(label.split(":", 2)[1], []).append(label)
    return list(services.values())


def _shared(services: Mapping[str, Sequence[list[str]]], room: Room) -> dict[str, list[list[str]]]:
    """Return which services of each app get room.

    The next is always of the app that then has least, of the labels or of the bytes, whichever is
    the larger part. So each app gets all it has up to an equal share, whatever the others have.
    """
    all_labels, all_bytes = max(room.labels, 1), max(room.bytes, 1)
    turns: list[tuple[float, str, list[str]]] = []
    for app, groups in services.items():
        labels = size = 0
        for group in groups:
            labels += len(group)
            size += _json_bytes(group)
            turns.append((max(labels / all_labels, size / all_bytes), app, group))
    shared: dict[str, list[list[str]]] = {app: [] for app in services}
    for _, app, group in sorted(turns):
        if room.take(group):
            shared[app].append(group)
    return shared


def _json_bytes(labels: Iterable[str]) -> int:
    return sum(len(msgspec.json.encode(label)) + len(",") for label in labels)
