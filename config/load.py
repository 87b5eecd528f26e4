"""Reads a YAML file into a settings object, or raises an error with file, path and remedy."""

import re
import types
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import yaml
from msgspec import inspect
from structlog.typing import FilteringBoundLogger

from config.server import Settings

T = TypeVar("T", bound=msgspec.Struct)
S = TypeVar("S", bound=msgspec.Struct)
INT_TAG = "tag:yaml.org,2002:int"
DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
FIELD_IN_MESSAGE = re.compile(r"`(\w+)`")
PLAIN_NAME = re.compile(r"[\w.-]+")
# A setting's path, such as ``keys[0].file``, before the colon behind it.
SETTING = re.compile(r"[\w.\[\]-]+(?=: )")
STEP = re.compile(r"[^.\[\]]+")


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


class _Loader(yaml.SafeLoader):
    """Loads YAML's safe subset and rejects a mapping that sets a key twice.

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


def mistakes_in(value: Any, annotation: Any, where: str = "") -> list[str]:
    """Return what is wrong with a value of a document, each text with its path before it.

    ``annotation`` is the type that the value is to have, ``where`` its path in the document.
    """
    alternatives = _alternatives(annotation)
    if isinstance(value, dict):
        for kind in alternatives:
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                return [*_mistakes_in_fields(value, kind, where)]
            if get_origin(kind) is dict:
                return [*_mistakes_in_mapping(value, kind, where)]
    if isinstance(value, list):
        for kind in alternatives:
            if get_origin(kind) is tuple:
                item = get_args(kind)[0]
                found = [
                    mistake
                    for index, element in enumerate(value)
                    for mistake in mistakes_in(element, item, f"{where}[{index}]")
                ]
                return found or [*_conversion_mistakes(value, annotation, where)]
    return [*_conversion_mistakes(value, annotation, where)]


def without_faulty_fields(
    document: Mapping[str, Any], settings: type[msgspec.Struct]
) -> dict[str, Any]:
    """Return the fields of a document that have no mistake, neither alone nor with the others."""
    hints = get_type_hints(settings, include_extras=True)
    sound = {
        name: value
        for name, value in document.items()
        if name in hints and not mistakes_in(value, hints[name])
    }
    try:
        msgspec.convert(sound, settings)
    except msgspec.ValidationError as error:
        named = FIELD_IN_MESSAGE.findall(str(error))
        return {name: value for name, value in sound.items() if name not in named}
    return sound


def sound_part(value: Any, annotation: Any) -> msgspec.Struct | None:
    """Return a struct with the sound fields of a mapping, and with defaults for all others.

    Return None if the type is no struct, or if a field without a default is not sound.
    """
    for kind in _alternatives(annotation):
        if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            try:
                return msgspec.convert(without_faulty_fields(value, kind), kind)
            except msgspec.ValidationError:
                return None
    return None


def _mistakes_in_fields(
    value: Mapping[Any, Any], kind: type[msgspec.Struct], where: str
) -> Iterator[str]:
    fields = msgspec.structs.fields(kind)
    hints = {field.name: field.type for field in fields}
    required = {field.name for field in fields if field.required}
    sound: dict[str, Any] = {}
    for name, member in value.items():
        path = _member_path(where, name)
        if name not in hints:
            yield f"{path}: unknown setting; allowed here: {', '.join(hints)}"
            continue
        found = mistakes_in(member, hints[name], path)
        yield from found
        if not found:
            sound[name] = member
    for name in sorted(required - value.keys()):
        yield _located(where, f"Object missing required field `{name}`")
    faulty = (set(hints) & value.keys() | required) - sound.keys()
    yield from _combination_mistakes(sound, kind, where, faulty)


def _combination_mistakes(
    sound: Mapping[str, Any], kind: type[msgspec.Struct], where: str, faulty: set[str]
) -> Iterator[str]:
    """Check the sound fields together; a mistake that names a faulty field only follows from it."""
    required = {field.name for field in msgspec.structs.fields(kind) if field.required}
    for mistake in _conversion_mistakes(sound, _with_defaults(kind, required & faulty), where):
        if faulty.isdisjoint(FIELD_IN_MESSAGE.findall(mistake)):
            yield mistake


def _with_defaults(kind: type[msgspec.Struct], names: set[str]) -> type[msgspec.Struct]:
    """Return the type with an empty default for each of these fields, texts and arrays."""
    if not names:
        return kind
    hints = get_type_hints(kind, include_extras=True)
    fields = [(name, hints[name], _empty(hints[name])) for name in sorted(names)]
    return msgspec.defstruct(kind.__name__, fields, bases=(kind,), frozen=True, kw_only=True)


def _empty(annotation: Any) -> Any:
    kind = _alternatives(annotation)[0]
    return (get_origin(kind) or kind)()


def _mistakes_in_mapping(value: Mapping[Any, Any], kind: Any, where: str) -> Iterator[str]:
    key_kind, member_kind = get_args(kind)
    for key, member in value.items():
        path = _member_path(where, key)
        yield from mistakes_in(key, key_kind, path)
        yield from mistakes_in(member, member_kind, path)


def _conversion_mistakes(value: Any, annotation: Any, where: str) -> Iterator[str]:
    try:
        msgspec.convert(value, annotation)
    except msgspec.ValidationError as error:
        text = str(error).partition(" - at `")[0]
        if text.startswith("Invalid enum value"):
            text = f"{text}; allowed here: {', '.join(_choices(annotation))}"
        for line in text.split("\n"):
            yield _located(where, line)


def _located(where: str, text: str) -> str:
    return f"{where}: {text}" if where else text


def _member_path(where: str, name: object) -> str:
    text = name if isinstance(name, str) and PLAIN_NAME.fullmatch(name) else ascii(name)
    return f"{where}.{text}" if where else text


def _alternatives(annotation: Any) -> Sequence[Any]:
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [kind for each in get_args(annotation) for kind in _alternatives(each)]
    return [annotation]


def _choices(annotation: Any) -> list[str]:
    kind = inspect.type_info(annotation)
    options = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return [
        str(value)
        for option in options
        if isinstance(option, inspect.LiteralType)
        for value in option.values
    ]


@contextmanager
def lines_in_mistakes(file: Path) -> Iterator[None]:
    """Begin each mistake of a ConfigError with ``FILE:LINE:`` if it names a setting in the file.

    Of one that is missing, it is the line of the section that it belongs to, if there is one.
    """
    try:
        yield
    except ConfigError as error:
        raise ConfigError(*_with_lines(file, error.mistakes)) from error


def _with_lines(file: Path, mistakes: tuple[str, ...]) -> Iterator[str]:
    try:
        document = yaml.compose(file.read_bytes(), yaml.SafeLoader)
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        document = None  # the mistake says so
    beginning = f"{file}: "
    for mistake in mistakes:
        setting = SETTING.match(mistake.removeprefix(beginning))
        line = _line_of(setting[0], document) if setting else None
        if line is None or not mistake.startswith(beginning):
            yield mistake
        else:
            yield f"{file}:{line}: {mistake.removeprefix(beginning)}"


def _line_of(setting: str, document: yaml.Node | None) -> int | None:
    """Return the line of a setting, or of the nearest section around it that is in the file."""
    line, node = None, document
    for step in STEP.findall(setting):
        found = _child(node, step)
        if found is None:
            break
        place, node = found
        line = place.start_mark.line + 1
    return line


def _child(node: yaml.Node | None, step: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Return where a field or an element begins, and its value."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        return node.value[int(step)], node.value[int(step)]
    return None


def changed_settings(
    before: msgspec.Struct, after: msgspec.Struct, *, except_for: Collection[str] = ()
) -> list[str]:
    """Return the paths of the settings that differ, such as ``apps.cpu``.

    A path in ``except_for`` is left out, with all that is below it.
    """
    return [
        path
        for path in _changes(before, after, "")
        if not any(path == left_out or path.startswith(f"{left_out}.") for left_out in except_for)
    ]


def log_pending_restarts(paths: Iterable[str], log: FilteringBoundLogger) -> None:
    """Log each changed setting that a reload does not apply."""
    for path in paths:
        log.warning("setting changed, restart to apply", setting=path)


def _changes(before: msgspec.Struct, after: msgspec.Struct, prefix: str) -> Iterator[str]:
    for name in before.__struct_fields__:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if isinstance(old, Settings) and type(old) is type(new):
            yield from _changes(old, new, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
