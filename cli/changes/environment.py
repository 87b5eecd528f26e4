"""Values of `env` in a file of apps that are read from files, variables and commands."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cli.changes.fields import read_environment
from cli.errors import WrongUsage
from cli.files import read_text
from cli.reach.keys import printed_by

FORMS = "a text, {file: FILE}, {variable: NAME} or {command: [PROGRAM, ...]}"


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
