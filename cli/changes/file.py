"""The file of apps, in YAML; all of its mistakes are told at once, with their paths."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cli.changes.environment import Sources, is_from_elsewhere, mistakes_of_env, read_env
from cli.changes.fields import in_mebibytes, parsed
from cli.errors import WrongUsage
from cli.files import STANDARD, read_text
from cli.reach.choice import HostChoice
from cli.reach.names import APP_NAME
from clients.message import label_error

SELECTORS = ("hosts", "labels", "prefixes", "kv")
EXAMPLE = "apps: [{name: shop, where: {labels: [service:web]}, image: 'shop:1.4'}]"


@dataclass(frozen=True)
class WantedApp:
    """An app as it is to be.

    Attributes:
        path: where it stands in the file, such as `apps[0]`.
        name: its name.
        hosts: those that it is to run on.
        fields: the fields of the API that are given; the others are left as they are.
        labels: all labels that it is to have; None to leave them as they are.
        is_read: whether values of its `env` were read from elsewhere.

    """

    path: str
    name: str
    hosts: HostChoice
    fields: Mapping[str, Any]
    labels: Sequence[str] | None
    is_read: bool = False


def read_apps(
    path: Path, *, variables: Mapping[str, str], run_commands: bool = False
) -> list[WantedApp]:
    """Return the apps of a file, with the values of `env` that it names; WrongUsage.

    The error has all mistakes. Values are read only if there are no others.
    """
    found = parsed(read_text(path), str(path))
    if not isinstance(found, dict) or set(found) != {"apps"} or not isinstance(found["apps"], list):
        raise WrongUsage(f"{path} holds no list of apps, such as {EXAMPLE}")
    entries = [(f"apps[{number}]", entry) for number, entry in enumerate(found["apps"])]
    mistakes = [
        mistake
        for where, entry in entries
        for mistake in _mistakes(where, entry, run_commands=run_commands)
    ]
    apps = []
    if not mistakes:
        sources = Sources(Path() if path == STANDARD else path.parent, variables, run_commands)
        apps = [_app(where, entry, sources, mistakes) for where, entry in entries]
    if mistakes:
        raise WrongUsage(f"{path} has mistakes: {'; '.join(mistakes)}")
    return apps


def _mistakes(where: str, entry: Any, *, run_commands: bool) -> Iterator[str]:
    """Yield what is wrong with an entry; its fields are checked by the agents."""
    if not isinstance(entry, dict) or not all(isinstance(key, str) for key in entry):
        yield f"{where}: is no app, such as {EXAMPLE}"
        return
    name = entry.get("name")
    if not isinstance(name, str) or APP_NAME.fullmatch(name) is None:
        yield f"{where}.name: {name!a} is no name of an app"
    if not isinstance(entry.get("image"), str):
        meant = get_close_matches("image", set(entry) - {"image"}, n=1)
        instead = f"; `{meant[0]}` may have been meant as `image`" if meant else ""
        yield f"{where}.image: an image is missing{instead}"
    try:
        in_mebibytes(entry)
    except WrongUsage as error:
        yield f"{where}.memory: {error}"
    yield from mistakes_of_env(where, entry, run_commands=run_commands)
    yield from _mistakes_of_labels(f"{where}.labels", entry.get("labels", []))
    yield from _mistakes_of_hosts(f"{where}.where", entry.get("where"))


def _mistakes_of_labels(where: str, labels: Any) -> Iterator[str]:
    if not _is_texts(labels):
        yield f"{where}: is no list of texts"
        return
    for label in labels:
        fault = label_error(label)
        key, colon, _ = label.partition(":")
        if fault is None and not (key.strip() and colon):
            fault = "write a key, a colon and a value"
        if fault is not None:
            yield f"{where}: {label!a}: {fault}"


def _mistakes_of_hosts(where: str, on: Any) -> Iterator[str]:
    if not isinstance(on, dict) or not on:
        yield f"{where}: says no hosts; give one of {', '.join(SELECTORS)}"
        return
    for key, value in on.items():
        if key not in SELECTORS:
            yield f"{where}.{key}: is none of {', '.join(SELECTORS)}"
        elif not _is_texts(value) or not value:
            yield f"{where}.{key}: is no list of texts"
        elif key == "kv" and not all(":" in text for text in value):
            yield f"{where}.kv: each is KEY:VALUE, such as rack:r12"


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _app(where: str, entry: Mapping[str, Any], sources: Sources, mistakes: list[str]) -> WantedApp:
    found = read_env(where, entry, sources, mistakes)
    fields = {key: value for key, value in found.items() if key not in ("name", "where", "labels")}
    return WantedApp(
        path=where,
        name=entry["name"],
        hosts=HostChoice(**entry["where"]),
        fields=in_mebibytes(fields),
        labels=entry.get("labels"),
        is_read=is_from_elsewhere(entry),
    )
