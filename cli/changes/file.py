"""The file of apps, in YAML; all of its mistakes are reported at once, with their paths."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from cli.changes.fields import in_mebibytes, parsed, read_environment
from cli.errors import WrongUsage
from cli.files import STANDARD, read_text
from cli.reach.choice import HostChoice
from cli.reach.contexts import printed_by
from cli.reach.names import APP_NAME
from clients.message import label_error

FORMS = "a text, {file: FILE}, {variable: NAME} or {command: [PROGRAM, ...]}"
SELECTORS = ("hosts", "labels", "prefixes", "kv")
EXAMPLE = "apps: [{name: shop, where: {labels: [service:web]}, image: 'shop:1.4'}]"


class Sources(NamedTuple):
    """Where values come from: relative files of a folder, variables, and commands if they may run.

    What is read is never printed.
    """

    folder: Path
    variables: Mapping[str, str]
    run_commands: bool


def is_from_elsewhere(entry: Mapping[str, Any]) -> bool:
    """Return whether a value of the `env` of an app does not stand in its entry."""
    env = entry.get("env")
    is_read = isinstance(env, dict) and any(isinstance(each, dict) for each in env.values())
    return is_read or "env_file" in entry


def mistakes_of_env(where: str, entry: Mapping[str, Any], *, run_commands: bool) -> Iterator[str]:
    """Yield what is wrong with how an entry names values; nothing is read yet."""
    if not isinstance(entry.get("env_file", ""), str):
        yield f"{where}.env_file: is no path"
    env = entry.get("env")
    for name, value in env.items() if isinstance(env, dict) else ():
        if not isinstance(value, dict):
            continue
        place = f"{where}.env.{name}"
        if not _is_source(value):
            yield f"{place}: is none of {FORMS}"
        elif "command" in value and not run_commands:
            yield f"{place}: commands run only with --run-commands"


def _is_source(value: Mapping[Any, Any]) -> bool:
    match value:
        case {"file": str()} | {"variable": str()}:
            return len(value) == 1
        case {"command": [str(), *_] as words}:
            return len(value) == 1 and all(isinstance(word, str) for word in words)
        case _:
            return False


def read_env(
    where: str, entry: Mapping[str, Any], sources: Sources, failures: list[str]
) -> dict[str, Any]:
    """Return the fields of an entry, with all values of its `env`; note what cannot be read."""
    fields = {key: value for key, value in entry.items() if key != "env_file"}
    if not is_from_elsewhere(entry):
        return fields
    found: dict[str, Any] = {}
    if "env_file" in entry:
        try:
            found |= read_environment(sources.folder / entry["env_file"])
        except WrongUsage as error:
            failures.append(f"{where}.env_file: {error}")
    for name, value in (entry.get("env") or {}).items():
        try:
            found[name] = _value(value, sources) if isinstance(value, dict) else value
        except WrongUsage as error:
            failures.append(f"{where}.env.{name}: {error}")
    return {**fields, "env": found}


def _value(source: Mapping[str, Any], sources: Sources) -> str:
    """Return a value without the line end behind it; WrongUsage."""
    match source:
        case {"file": file}:
            return read_text(sources.folder / file).removesuffix("\n")
        case {"variable": name}:
            if name not in sources.variables:
                raise WrongUsage(f"the variable {name} is not set")
            return sources.variables[name]
        case _:
            words = source["command"]
            return printed_by(words, words[0], "value").removesuffix("\n")


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
