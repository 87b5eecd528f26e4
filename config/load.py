"""Reads a YAML file into a settings object, or raises an error with file, path and remedy."""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

import msgspec
import yaml

from config.mistakes import mistakes_in, sound_part, without_faulty_fields

T = TypeVar("T", bound=msgspec.Struct)
S = TypeVar("S", bound=msgspec.Struct)


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


def raise_invalid(mistakes: Iterable[str]) -> None:
    """Raise InvalidSetting with all of these mistakes, if there are any."""
    found = tuple(mistakes)
    if found:
        raise InvalidSetting(*found)


class Loaded(NamedTuple, Generic[T]):
    """The settings of a file, with defaults in the place of what has mistakes.

    `faulty` has the names of the sections with mistakes, `document` what the file holds.
    """

    settings: T
    mistakes: list[str]
    faulty: set[str]
    document: Mapping[str, Any]

    def sound_parts(self, section: str, kind: type[S]) -> list[tuple[str, S]]:
        """Return what is sound of a section, or of each of its elements, with its path."""
        value = self.document.get(section)
        places = (
            [(f"{section}[{index}]", element) for index, element in enumerate(value)]
            if isinstance(value, list)
            else [(section, value)]
        )
        parts = [(where, sound_part(element, kind)) for where, element in places]
        return [(where, part) for where, part in parts if isinstance(part, kind)]


INT_TAG = "tag:yaml.org,2002:int"
DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")


class _Loader(yaml.SafeLoader):
    """Loads YAML's safe subset and refuses a mapping that sets a key twice.

    Only decimal digits are a whole number: in YAML 1.1, `010` would be 8, and `1:30` would be 90.
    Here, both are texts.
    """


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


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != INT_TAG]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(INT_TAG, DECIMAL, list("-+0123456789"))
_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_unique)


def parse_yaml(data: bytes | str) -> Any:
    """Return what YAML holds, in which no mapping has a key twice.

    Raises YAMLError, TypeError, ValueError and RecursionError.
    """
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
        document = parse_yaml(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not YAML: {_yaml_error_text(error)}") from error
    document = {} if document is None else document
    mistakes = [f"{path}: {mistake}" for mistake in mistakes_in(document, settings)]
    if not isinstance(document, dict):
        return Loaded(settings(), mistakes, set(settings.__struct_fields__), {})
    sound = without_faulty_fields(document, settings)
    faulty = set(settings.__struct_fields__) & document.keys() - sound.keys()
    whole = _with_sound_parts(msgspec.convert(sound, settings), document, faulty)
    return Loaded(whole, mistakes, faulty, document)


def _with_sound_parts(settings: T, document: Mapping[str, Any], faulty: set[str]) -> T:
    """Return the settings with what is sound of the faulty sections, if all fit together."""
    hints = get_type_hints(type(settings), include_extras=True)
    parts = {name: sound_part(document[name], hints[name]) for name in faulty}
    sound = {name: part for name, part in parts.items() if part is not None}
    try:
        return msgspec.structs.replace(settings, **sound)
    except ValueError:
        return settings


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
