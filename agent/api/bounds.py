"""What a key that is for some apps alone may do and see."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

from aiohttp import web

from agent.apps.errors import AppError
from agent.engine.errors import EngineError
from agent.reporting.heartbeat import AGENTS_SERVICE
from httpd.auth import METRICS, Caller, Keyring, permits_by_method
from httpd.errors import Forbidden

# How messages name the holder of a port or of a volume.
NAMED = re.compile(r"\b(app|container) `([^`]*)`")


def permits(client: Caller, request: web.Request) -> bool:
    """Return whether a key may do this; raises Forbidden if it is for other apps."""
    if client.apps is not None:
        if request.path == METRICS:
            raise Forbidden(f"{_bound(client)}, and the metrics tell of all apps of this host")
        name = request.match_info.get("name")
        if name is not None:
            check_name(client, name)
    return permits_by_method(client, request)


def is_for(client: Caller, name: str) -> bool:
    """Return whether a key is for the app of this name."""
    return client.apps is None or any(fnmatchcase(name, each) for each in client.apps)


def holders(keyring: Keyring, name: str) -> str:
    """Return the names of the keys for some apps that are for this one; empty if there are none."""
    return ",".join(sorted(each.name for each in keyring if each.apps and is_for(each, name)))


def check_name(client: Caller, name: str) -> None:
    """Raise Forbidden if a key is not for the app of this name."""
    if not is_for(client, name):
        raise Forbidden(_bound(client))


def check_label(client: Caller, label: str) -> None:
    """Raise Forbidden if a label is not for a key of some apps to set.

    A target on another host would be scraped as if this host had named it. Targets of the agents'
    own service are sent the key for the metrics of all agents.
    """
    kind, service, key = (*label.split(":", 3), "", "")[:3]
    if client.apps is None or kind != "prometheus":
        return
    if key == "host":
        raise Forbidden(f"{_bound(client)}, and sets no label prometheus:SERVICE:host:HOST")
    if service.partition("@")[0] == AGENTS_SERVICE:
        raise Forbidden(
            f"{_bound(client)}, and sets no label prometheus:{AGENTS_SERVICE}, the service of the"
            " agents themselves; choose another name for the service"
        )


@contextmanager
def naming_no_others(client: Caller) -> Iterator[None]:
    """Leave the apps that a key is not for out of the texts of errors."""
    try:
        yield
    except (AppError, EngineError) as error:
        error.args = (without_others(client, str(error)),)
        raise


def without_others(client: Caller, text: str) -> str:
    """Return a message without the names of apps that a key is not for."""
    if client.apps is None:
        return text
    return NAMED.sub(lambda m: m[0] if is_for(client, m[2]) else f"another {m[1]}", text)


def _bound(client: Caller) -> str:
    return f"the key `{client.name}` is for the apps {', '.join(client.apps or ())} alone"
