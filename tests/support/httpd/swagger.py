"""Compares a daemon's Swagger document with its routes, and with the types of what it serves."""

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

import msgspec
from aiohttp import web
from hypothesis import strategies as st
from msgspec.inspect import Field, type_info

from tests.support.run.answers import unnamed

OBJECTS = (msgspec.inspect.StructType, msgspec.inspect.DataclassType)
ARRAYS = (
    msgspec.inspect.CollectionType,
    msgspec.inspect.ListType,
    msgspec.inspect.VarTupleType,
)
KINDS: dict[type, str | None] = {
    msgspec.inspect.AnyType: None,
    msgspec.inspect.RawType: None,
    msgspec.inspect.BoolType: "boolean",
    msgspec.inspect.DictType: "object",
    msgspec.inspect.FloatType: "number",
    msgspec.inspect.IntType: "integer",
    msgspec.inspect.LiteralType: "string",
    msgspec.inspect.StrType: "string",
    **dict.fromkeys(OBJECTS, "object"),
    **dict.fromkeys(ARRAYS, "array"),
}
# The words for a bound, in types and in documents.
BOUNDS = {
    "integer": {"ge": "minimum", "le": "maximum"},
    "string": {"min_length": "minLength", "max_length": "maxLength"},
    "array": {"min_length": "minItems", "max_length": "maxItems"},
    "object": {"max_length": "maxProperties"},
}


# To import what checks documents takes two seconds of a processor: each worker would.
def check_document(document: Any) -> None:
    """Fail unless this is a valid Swagger document."""
    import_module("swagger_spec_validator.validator20").validate_spec(document)


def check_value(document: Any, definition: str, value: Any) -> None:
    """Fail unless a value is as a definition says; null only where that has `x-nullable`."""
    spec = _spec(msgspec.json.encode(document))
    validate = import_module("bravado_core.validate").validate_schema_object
    validate(spec, spec.spec_dict["definitions"][definition], value)


@cache
def _spec(document: bytes) -> Any:
    return import_module("bravado_core.spec").Spec.from_dict(msgspec.json.decode(document))


def documented_operations(document: Any) -> set[tuple[str, str]]:
    """Return the method and the path of each operation, without the names of its parameters."""
    return {
        (method.upper(), unnamed(path))
        for path, operations in document["paths"].items()
        for method in operations
        if method != "parameters"
    }


def served_operations(app: web.Application) -> set[tuple[str, str]]:
    """Return the same for an application, but for HEAD, which goes with GET."""
    return {
        (route.method, unnamed(route.resource.canonical))
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }


def texts(schema: Any) -> st.SearchStrategy[str]:
    """Return texts of which some fit a schema, some nearly do, and some do not."""
    return _texts(_pattern(schema))


def fits(schema: Any, text: str) -> bool:
    """Return whether a schema allows a text."""
    if not schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", len(text)):
        return False
    return _pattern(schema).fullmatch(text) is not None


@cache
def _texts(pattern: re.Pattern[str]) -> st.SearchStrategy[str]:
    fitting = st.from_regex(pattern, fullmatch=True)
    spoilt = st.builds(lambda text, other: text + other, fitting, st.text(max_size=2))
    return st.one_of(fitting, spoilt, st.text(max_size=12))


def _pattern(schema: Any) -> re.Pattern[str]:
    # In the patterns of documents `$` is the end, in those of Python also before a line feed there.
    pattern: str = schema["pattern"]
    return re.compile(pattern.removeprefix("^").removesuffix("$"))


def differences(document: Any, definition: str, kind: Any) -> list[str]:
    """Return in which places a definition differs from the type of what is sent or read.

    Compared are the names of fields, which of them are always there, what may be null, the kinds
    of values, enumerations and bounds. A document may be stricter than a type where that has no
    bound: other rules than the type's may hold.
    """
    schema = {"$ref": f"#/definitions/{definition}"}
    return list(_compare(type_info(kind), schema, document, definition))


def _compare(kind: Any, schema: Any, document: Any, place: str) -> Iterator[str]:
    if "$ref" in schema:
        schema = document["definitions"][schema["$ref"].rpartition("/")[2]]
    kind, is_nullable = _without_null(kind)
    if is_nullable != schema.get("x-nullable", False):
        yield f"{place}: it {'may' if is_nullable else 'cannot'} be null"
    if schema.get("type") != KINDS[type(kind)]:
        yield f"{place}: its type is {KINDS[type(kind)]}"
        return
    yield from _compare_bounds(kind, schema, place)
    if isinstance(kind, ARRAYS):
        yield from _compare(kind.item_type, schema["items"], document, f"{place}[]")
    elif isinstance(kind, msgspec.inspect.DictType):
        values = schema["additionalProperties"]
        yield from _compare(kind.value_type, values, document, f"{place}.*")
    elif isinstance(kind, OBJECTS):
        yield from _compare_fields(kind, schema, document, place)


def _without_null(kind: Any) -> tuple[Any, bool]:
    """Return a type without null, and whether it may be null."""
    if not isinstance(kind, msgspec.inspect.UnionType):
        return kind, False
    values = [each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType)]
    return values[0], len(values) < len(kind.types)


def _compare_bounds(kind: Any, schema: Any, place: str) -> Iterator[str]:
    for of_type, of_schema in BOUNDS.get(schema.get("type"), {}).items():
        bound = getattr(kind, of_type, None)
        if bound is not None and schema.get(of_schema) != bound:
            yield f"{place}: its {of_schema} is {bound}"
    if isinstance(kind, msgspec.inspect.LiteralType):
        allowed = sorted(map(str, kind.values))
        if sorted(set(schema.get("enum", ())) - {None}) != allowed:
            yield f"{place}: it is one of {', '.join(allowed)}"


def _compare_fields(kind: Any, schema: Any, document: Any, place: str) -> Iterator[str]:
    fields: dict[str, Field] = {field.encode_name: field for field in kind.fields}
    is_read = getattr(kind, "forbid_unknown_fields", False)
    if is_read and schema.get("additionalProperties") is not False:
        yield f"{place}: unknown fields are errors"
    if fields.keys() != schema["properties"].keys():
        yield f"{place}: its fields are {sorted(fields)}"
        return
    required = {name for name in fields if _is_required(kind, fields[name], is_read=is_read)}
    if required != set(schema.get("required", ())):
        yield f"{place}: {sorted(required)} are always there"
    for name, field in fields.items():
        yield from _compare(field.type, schema["properties"][name], document, f"{place}.{name}")


def _is_required(kind: Any, field: Field, *, is_read: bool) -> bool:
    if field.required or is_read:
        return field.required
    has_default = (field.default, field.default_factory) != (msgspec.NODEFAULT,) * 2
    return has_default and not kind.cls.__struct_config__.omit_defaults
