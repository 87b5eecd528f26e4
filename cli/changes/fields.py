"""The fields of an app: from options, a file of YAML, and a file of the environment."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.errors import WrongUsage
from cli.files import STANDARD, read_text

MEMORY = re.compile(r"([0-9]{1,9})(?:([MG])(?:i|iB)?)?", re.ASCII | re.IGNORECASE)
MEBIBYTES = {"": 1, "M": 1, "G": 1024}


def read_fields(
    *,
    file: Path | None = None,
    settings: Sequence[str] = (),
    env_file: Path | None = None,
    variables: Sequence[str] = (),
    unset: Sequence[str] = (),
    is_new: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Return the fields of an update, or of a new app; WrongUsage if a file or text is none.

    Options win over ``settings``, which are `FIELD=YAML`, and both over the file. Single variables
    change the environment that is given as a whole; an update without one changes that of the app.
    """
    if file == env_file == STANDARD:
        raise WrongUsage("only one of --file and --env-file can be the standard input")
    fields = {} if file is None else _mapping(file)
    if env_file is not None:
        fields["env"] = read_environment(env_file)
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise WrongUsage(f"--set {text!a} is not FIELD=YAML")
        fields[name] = parsed(value, f"--set {name}")
    given = {name: value for name, value in options.items() if value is not None}
    fields = in_mebibytes(fields | given)
    return fields | _changed_environment(fields, variables, unset, is_new=is_new)


def _changed_environment(
    fields: Mapping[str, Any], variables: Sequence[str], unset: Sequence[str], *, is_new: bool
) -> dict[str, Any]:
    """Return the fields by which single variables are set and removed; WrongUsage."""
    wanted = {}
    for text in variables:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise WrongUsage(f"--env {text!a} is not NAME=VALUE")
        wanted[name] = value
    if both := sorted(wanted.keys() & set(unset)):
        raise WrongUsage(f"--env and --unset-env name the same variable: {', '.join(both)}")
    whole = fields.get("env", {} if is_new else None)
    if isinstance(whole, dict) and (wanted or unset):
        return {"env": {key: each for key, each in whole.items() if key not in unset} | wanted}
    changes = {"env_set": wanted, "env_unset": list(dict.fromkeys(unset))}
    return {name: value for name, value in changes.items() if value}


def in_mebibytes(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields whose `memory` is a number of MiB, also where it is `48M` or `1G`; WrongUsage.

    Both are binary, as in Docker.
    """
    text = fields.get("memory")
    if not isinstance(text, str):
        return dict(fields)
    found = MEMORY.fullmatch(text)
    if found is None:
        raise WrongUsage(f"memory {text!a} is none, such as 48M or 1G; a number alone is in MiB")
    return {**fields, "memory": int(found[1]) * MEBIBYTES[(found[2] or "").upper()]}


def parsed(text: str, where: str) -> Any:
    """Return what YAML holds; WrongUsage, which names ``where``."""
    import yaml

    from config.load import parse_yaml

    try:
        return parse_yaml(text)
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise WrongUsage(f"{where} is no YAML: {error}") from error


def _mapping(path: Path) -> dict[str, Any]:
    found = parsed(read_text(path), str(path))
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise WrongUsage(f"{path} holds no fields of an app, such as `image: shop:1.4`")
    return found


def read_environment(path: Path) -> dict[str, str]:
    """Return the variables of a file, a line each; WrongUsage."""
    variables = {}
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name:
            raise WrongUsage(f"{path}, line {number}: not NAME=VALUE")
        variables[name] = value
    return variables
