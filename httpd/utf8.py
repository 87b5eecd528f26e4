"""Where a JSON body is not UTF-8: the byte, and the field that holds it."""

import json
import re
from collections.abc import Iterator
from typing import Any

PLAIN_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
UNDECODABLE = range(0xDC80, 0xDD00)  # what `surrogateescape` makes of a byte that is no UTF-8


def utf8_fault(body: bytes) -> str:
    """Return where a body is not UTF-8, such as ``byte 13 is 0xff, in `$.labels[0]```.

    The field is left out if the body is no JSON otherwise.
    """
    try:
        body.decode()
    except UnicodeDecodeError as error:
        place = f"byte {error.start} is 0x{body[error.start]:02x}"
    else:
        return "a part of it cannot be decoded"
    field = next(_faulty_fields(_decoded(body), "$"), None)
    return place if field is None else f"{place}, in `{field}`"


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None


def _faulty_fields(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, str):
        if _is_faulty(value):
            yield path
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _faulty_fields(element, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, member in value.items():
            if _is_faulty(key):
                yield path
            yield from _faulty_fields(member, f"{path}{_step(key)}")


def _step(key: str) -> str:
    return f".{key}" if PLAIN_KEY.fullmatch(key) else "[...]"


def _is_faulty(text: str) -> bool:
    return not text.isascii() and any(ord(character) in UNDECODABLE for character in text)
