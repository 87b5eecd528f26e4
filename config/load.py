"""Reads a YAML file into a settings object, or raises an error with file, path and remedy."""

from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import yaml

from config.mistakes import mistakes_in, without_faulty_fields

T = TypeVar("T", bound=msgspec.Struct)


class ConfigError(Exception):
    """The settings cannot be used. Each of ``mistakes`` names the place and a correct value."""

    def __init__(self, *mistakes: str) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


class InvalidSetting(Exception):
    """Values in the settings cannot be used; each of ``mistakes`` begins with a setting's path."""

    def __init__(self, *mistakes: str) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


class Loaded(NamedTuple, Generic[T]):
    """The settings of a file, with the defaults in the place of sections that have mistakes."""

    settings: T
    mistakes: list[str]
    faulty: set[str]


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
        ConfigError: the file cannot be read, is not YAML, or has unknown or invalid settings.

    """
    loaded = load_sound(path, settings)
    raise_mistakes(loaded.mistakes)
    return loaded.settings


def load_sound(path: Path, settings: type[T]) -> Loaded[T]:
    """Read the file and return its settings with all mistakes in it.

    Raises:
        ConfigError: the file cannot be read or is not YAML.

    """
    try:
        document = _parse(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is no YAML: {_yaml_error_text(error)}") from error
    document = {} if document is None else document
    mistakes = [f"{path}: {mistake}" for mistake in mistakes_in(document, settings)]
    sound = without_faulty_fields(document, settings) if isinstance(document, dict) else {}
    faulty = set(settings.__struct_fields__)
    if isinstance(document, dict):
        faulty &= document.keys() - sound.keys()
    return Loaded(msgspec.convert(sound, settings), mistakes, faulty)


def raise_mistakes(mistakes: Iterable[str]) -> None:
    """Raise a ConfigError with all mistakes if there are any."""
    found = tuple(dict.fromkeys(mistakes))
    if found:
        raise ConfigError(*found)


def mistakes_of(file: Path, checks: Iterable[Callable[[], object]]) -> list[str]:
    """Call each check; return the mistakes that they raise as ConfigError or InvalidSetting."""
    found: list[str] = []
    for check in checks:
        try:
            check()
        except ConfigError as error:
            found += error.mistakes
        except InvalidSetting as error:
            found += [f"{file}: {mistake}" for mistake in error.mistakes]
    return found


def _yaml_error_text(error: Exception) -> str:
    """Return the error and its position, without the lines around it: they may hold a secret."""
    if isinstance(error, yaml.MarkedYAMLError):
        parts = [part for part in (error.context, error.problem) if part]
        mark = error.problem_mark or error.context_mark
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        return f"{' '.join(parts)}{place}"
    return f"a value in it cannot be read ({type(error).__name__})"
