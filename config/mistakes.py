"""Finds all mistakes of a settings document: msgspec by itself reports only the first."""

import re
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

FIELD_IN_MESSAGE = re.compile(r"`(\w+)`")
PLAIN_NAME = re.compile(r"[\w.-]+")


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
