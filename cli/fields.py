"""The fields of an app: from options, a file of YAML, and a file of the environment."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cli.errors import WrongUsage

# In the place of a file, the standard input or the standard output.
STANDARD = Path("-")


class Fields:
    """The fields that are given for an app. Options win over `--set`, and both over the file."""

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        file: Path | None,
        env_file: Path | None,
        settings: Sequence[str],
    ) -> None:
        self._options = options
        self._file = file
        self._env_file = env_file
        self._settings = settings

    def read(self) -> dict[str, Any]:
        """Return the fields; WrongUsage if a file or a text is none."""
        if self._file == self._env_file == STANDARD:
            raise WrongUsage("only one of --file and --env-file can be the standard input")
        fields = {} if self._file is None else _mapping(self._file)
        if self._env_file is not None:
            fields["env"] = _environment(self._env_file)
        for text in self._settings:
            name, equals, value = text.partition("=")
            if not equals:
                raise WrongUsage(f"--set {text!a} is not FIELD=YAML")
            fields[name] = _parsed(value, f"--set {name}")
        return fields | {name: value for name, value in self._options.items() if value is not None}


def read_text(path: Path) -> str:
    """Return the text of a file, or of the standard input; WrongUsage."""
    try:
        return sys.stdin.read() if path == STANDARD else path.read_text()
    except OSError as error:
        raise WrongUsage(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise WrongUsage(f"{path} is no text in UTF-8") from error


def _parsed(text: str, where: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise WrongUsage(f"{where} is no YAML: {error}") from error


def _mapping(path: Path) -> dict[str, Any]:
    found = _parsed(read_text(path), str(path))
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise WrongUsage(f"{path} holds no fields of an app, such as `image: shop:1.4`")
    return found


def _environment(path: Path) -> dict[str, str]:
    variables = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name:
            raise WrongUsage(f"{path}, line {number}: not NAME=VALUE")
        variables[name] = value
    return variables
