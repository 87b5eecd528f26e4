"""Parses query parameters. A wrong one raises BadInput, which names it."""

from aiohttp import web
from multidict import MultiMapping

from httpd.bodies import query
from httpd.errors import BadInput
from registry.nodes.filters import Filters

FILTERS = ("label", "prefix", "kv", "max_age")


def single(parameters: MultiMapping[str], name: str) -> str | None:
    """Return the value of a parameter, or None if it is not given. It can be given once."""
    values = parameters.getall(name, [])
    if len(values) > 1:
        raise BadInput(f"the query parameter `{name}` is given more than once")
    return values[0] if values else None


def filters(request: web.Request) -> Filters:
    """Return the filters of GET /nodes, its only query parameters."""
    parameters = query(request, FILTERS)
    max_age = single(parameters, "max_age")
    return Filters(
        labels=tuple(parameters.getall("label", ())),
        prefixes=tuple(parameters.getall("prefix", ())),
        kv=tuple(_kv_pair(text) for text in parameters.getall("kv", ())),
        max_age=None if max_age is None else _seconds(max_age),
    )


def _kv_pair(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not colon:
        raise BadInput("the query parameter `kv` is KEY:VALUE, such as kv=rack:r12")
    return key, value


def _seconds(text: str) -> float:
    if not (text.isascii() and text.replace(".", "", 1).isdigit()):
        raise BadInput("the query parameter `max_age` is a number of seconds, such as max_age=90")
    return float(text)
