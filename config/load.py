"""Reads a YAML file into a settings object, or raises an error with file, path and remedy."""

import re
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import inspect

T = TypeVar("T")
Kind = TypeVar("Kind", bound=inspect.Type)
UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`")


class ConfigError(Exception):
    """The settings cannot be used; the text names the place and a correct value."""


class _Loader(yaml.SafeLoader):
    """Loads YAML's safe subset and refuses a mapping that sets a key twice."""


def _construct_unique(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    seen: set[Hashable] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.MarkedYAMLError(
                problem=f"`{key}` is set twice", problem_mark=key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_unique)


def _parse(data: bytes) -> Any:
    loader = _Loader(data)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def load(path: Path, settings: type[T]) -> T:
    """Read the file and return an object of the class ``settings``.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or has an unknown or invalid setting.

    """
    try:
        document = _parse(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is no YAML: {_yaml_error_text(error)}") from error
    try:
        return msgspec.convert({} if document is None else document, settings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_validation_error_text(str(error), settings)}") from error


def _yaml_error_text(error: Exception) -> str:
    """Return the error and its position, without the lines around it: they may hold a secret."""
    if isinstance(error, yaml.MarkedYAMLError):
        parts = [part for part in (error.context, error.problem) if part]
        mark = error.problem_mark or error.context_mark
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        return f"{' '.join(parts)}{place}"
    return f"a value in it cannot be read ({type(error).__name__})"


def _validation_error_text(problem: str, settings: type) -> str:
    """Return msgspec's message with the path before it and what is allowed behind it."""
    text, _, where = problem.partition(" - at `$")
    where = where.rstrip("`").lstrip(".")
    unknown = UNKNOWN_FIELD.fullmatch(text)
    if unknown:
        path = f"{where}.{unknown[1]}" if where else unknown[1]
        return f"{path}: unknown setting; allowed here: {', '.join(_field_names(settings, where))}"
    if text.startswith("Invalid enum value"):
        return f"{where}: {text}; allowed here: {', '.join(_choices(settings, where))}"
    return f"{where}: {text}" if where else text


def _field_names(settings: type, where: str) -> Iterable[str]:
    return [
        field.encode_name for field in _select(_type_at(settings, where), inspect.StructType).fields
    ]


def _choices(settings: type, where: str) -> Iterable[str]:
    return [str(value) for value in _select(_type_at(settings, where), inspect.LiteralType).values]


def _type_at(settings: type, where: str) -> inspect.Type:
    """Return the type expected at a path such as ``keys[0].allow[0]`` or ``apps``."""
    kind = inspect.type_info(settings)
    for step in re.findall(r"[^.\[\]]+|\[[^\]]*\]", where):
        kind = _member_type(kind, step)
    return kind


def _member_type(kind: inspect.Type, step: str) -> inspect.Type:
    if step.startswith("["):
        return _select(kind, inspect.VarTupleType).item_type
    fields = _select(kind, inspect.StructType).fields
    return next(field.type for field in fields if field.encode_name == step)


def _select(kind: inspect.Type, wanted: type[Kind]) -> Kind:
    options = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return next(option for option in options if isinstance(option, wanted))
