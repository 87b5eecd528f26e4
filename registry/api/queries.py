"""Parses query parameters. A wrong one raises BadInput, which names it."""

import re

from multidict import MultiMapping

from clients.message import normalise_hostname
from httpd.errors import BadInput
from registry.nodes.directory import DUE, FRESH, STAGES
from registry.nodes.listing import NodeFilter
from registry.nodes.search import Filters

FILTERS = ("label", "prefix", "kv", "max_age", "stale", "held")
SELECTION = ("search", "apps_down", "limit", "after", "total")
PAGE = ("limit", "after")
LISTS_ONLY = ("max_age", "stale", "held", *SELECTION)  # a watch has none of them
WATCH = "watch"
ADDRESS = "address"
MAX_FILTERS = 16
MAX_SEARCH = 256
LIMIT_RULE = "the query parameter `limit` is a number of nodes from 1 on, such as limit=1000"
NUMBER = re.compile(r"[0-9]{1,9}")
# Clients write small and large numbers with an exponent.
SECONDS = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def single(parameters: MultiMapping[str], name: str) -> str | None:
    """Return the value of a parameter, or None if it is not given. It can be given once."""
    values = parameters.getall(name, [])
    if len(values) > 1:
        raise BadInput(f"the query parameter `{name}` is given more than once")
    return values[0] if values else None


def is_watch(parameters: MultiMapping[str]) -> bool:
    """Return whether changes are asked for rather than a list."""
    return bool(_boolean(parameters, WATCH))


def is_with_address(parameters: MultiMapping[str]) -> bool:
    """Return whether nodes are to be shown with the addresses of their last heartbeats."""
    return bool(_boolean(parameters, ADDRESS))


def is_only_stale(parameters: MultiMapping[str]) -> bool:
    """Return whether a node is to be forgotten only if it is stale."""
    return bool(_boolean(parameters, "stale"))


def watch_filters(parameters: MultiMapping[str]) -> Filters:
    """Return the filters of a watch, which has no pages, and not all filters of a list."""
    for name in LISTS_ONLY:
        if name in parameters:
            raise BadInput(f"the query parameters `watch` and `{name}` do not go together")
    return filters(parameters)


def selection(parameters: MultiMapping[str]) -> NodeFilter:
    """Return what the query parameters of GET /nodes select."""
    after, limit = page(parameters)
    return NodeFilter(
        filters=filters(parameters),
        after=after,
        limit=limit,
        search=_search(single(parameters, "search")),
        apps_down=_boolean(parameters, "apps_down"),
        address=is_with_address(parameters),
        total=bool(_boolean(parameters, "total")),
    )


def page(parameters: MultiMapping[str]) -> tuple[str, int | None]:
    """Return the hostname after which a page begins, and how many hosts it has at most."""
    after = single(parameters, "after")
    return "" if after is None else normalise_hostname(after), _limit(single(parameters, "limit"))


def filters(parameters: MultiMapping[str]) -> Filters:
    """Return the filters of GET /nodes; one that is given twice counts once."""
    max_age = single(parameters, "max_age")
    found = Filters(
        labels=tuple(dict.fromkeys(parameters.getall("label", ()))),
        prefixes=tuple(dict.fromkeys(parameters.getall("prefix", ()))),
        kv=tuple(dict.fromkeys([_kv_pair(text) for text in parameters.getall("kv", ())])),
        max_age=None if max_age is None else _seconds(max_age),
        stages=_stages(stale=_boolean(parameters, "stale"), held=_boolean(parameters, "held")),
    )
    if len(found) > MAX_FILTERS:
        raise BadInput(f"a request has at most {MAX_FILTERS} filters, this one has {len(found)}")
    return found


def _boolean(parameters: MultiMapping[str], name: str) -> bool | None:
    text = single(parameters, name)
    if text not in (None, "true", "false"):
        raise BadInput(f"the query parameter `{name}` is true or false")
    return None if text is None else text == "true"


def _stages(*, stale: bool | None, held: bool | None) -> frozenset[int] | None:
    """Return the stages of nodes that are stale, held, or not; None if neither is asked for."""
    if stale is held is None:
        return None
    return frozenset(
        stage
        for stage in STAGES
        if stale in (None, stage != FRESH) and held in (None, stage == DUE)
    )


def _search(text: str | None) -> str:
    if text is not None and len(text) > MAX_SEARCH:
        raise BadInput(
            f"the query parameter `search` has at most {MAX_SEARCH} characters, this one has"
            f" {len(text)}"
        )
    return text or ""


def _limit(text: str | None) -> int | None:
    if text is None:
        return None
    if NUMBER.fullmatch(text) is None or int(text) == 0:
        raise BadInput(LIMIT_RULE)
    return int(text)


def _kv_pair(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not colon:
        raise BadInput("the query parameter `kv` is KEY:VALUE, such as kv=rack:r12")
    return key, value


def _seconds(text: str) -> float:
    if SECONDS.fullmatch(text) is None:
        raise BadInput("the query parameter `max_age` is a number of seconds, such as max_age=90")
    return float(text)
