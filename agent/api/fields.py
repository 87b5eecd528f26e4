"""The fields of an app in a body; what is wrong is told with what would be right."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TypeVar, get_args

import msgspec

from agent.model import HealthCheck, PullPolicy
from httpd import bodies
from httpd.errors import BadInput

T = TypeVar("T", bound=msgspec.Struct)

UNKNOWN = re.compile(r"unknown field `([^`]{0,100})`(?: - at `\$\.([a-z_]+)`)?")
PLACE = re.compile(r" - at `\$\.([a-z_]+)[^`]*`\Z")
SHAPES = {
    "command": 'an array, such as ["httpd", "-f"]',
    "data": 'an array of paths, such as ["/var/lib/shop"]',
    "env": 'an object of texts, such as {"MODE": "live"}',
    "health": 'an object with a `path`, such as {"path": "/"}, or with a `command`, such as'
    ' {"command": ["true"]}',
    "pull": " or ".join(get_args(PullPolicy)),
}


def decode_fields(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Return a decoded JSON body; BadInput, with the fields or the values that there are."""
    try:
        return bodies.decode(body, decoder)
    except BadInput as error:
        fields = decoder.type.__struct_fields__
        raise BadInput(f"{error}{_right(str(error), fields)}") from error


def _right(message: str, all_fields: Sequence[str]) -> str:
    """Return what would be right, to be added to a message; empty if it tells that itself."""
    unknown, place = UNKNOWN.search(message), PLACE.search(message)
    if unknown is not None:
        fields = HealthCheck.__struct_fields__ if unknown[2] == "health" else all_fields
        close = get_close_matches(unknown[1], fields, n=1)
        meant = "".join(f"; did you mean `{each}`?" for each in close)
        return f"{meant or ';'} the fields are {', '.join(fields)}"
    if place is not None and place[1] in SHAPES:
        return f"; `{place[1]}` is {SHAPES[place[1]]}"
    return ""
