"""Clients that follow changes go on at another registry."""

from collections.abc import Iterator
from functools import partial

import pytest
import requests

from dev.waiting import until
from tests.support.daemons import Daemon

pytestmark = pytest.mark.real
SOON_SECONDS = 180.0
Told = tuple[str, str, str]  # the id, the kind, the data


def events(response: requests.Response) -> Iterator[Told]:
    """Yield the events of a watch."""
    fields: dict[str, str] = {}
    for line in response.iter_lines(chunk_size=1, decode_unicode=True):
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            yield fields["id"], fields["event"], fields["data"]
            fields = {}


def watch(registry: Daemon, count: int, last_id: str = "") -> list[Told]:
    """Return the next events, with the ids from which the next watch goes on."""
    headers = {"Last-Event-ID": last_id} if last_id else {}
    path = "/nodes?watch=true"
    with registry.ask("GET", path, headers=headers, stream=True, timeout=SOON_SECONDS) as response:
        assert response.status_code == 200
        following = events(response)
        return [next(following) for _ in range(count)]


def post(registry: Daemon, hostname: str) -> None:
    def is_accepted() -> bool:
        body = {"labels": ["a"], "kv": {}}
        return registry.ask("POST", f"/nodes/{hostname}", json=body).status_code == 200

    until(is_accepted, f"{hostname} accepted", within=SOON_SECONDS)


def shows(registry: Daemon, names: list[str]) -> bool:
    return [node["hostname"] for node in registry.ask("GET", "/nodes").json()] == names


def test_a_watch_goes_on_at_another_registry_without_a_gap(registries: list[Daemon]) -> None:
    first, second, third = registries
    for name in ("a", "b"):
        post(first, name)
    told = watch(first, 4)
    assert [kind for _, kind, _ in told] == ["reset", "node", "node", "listed"]

    post(second, "c")
    assert first.ask("DELETE", "/nodes/a").status_code == 200
    until(partial(shows, third, ["b", "c"]), "the changes", within=SOON_SECONDS)
    first.kill()

    went_on = watch(third, 2, told[-1][0])
    assert {(kind, '"c"' in data, '"a"' in data) for _, kind, data in went_on} == {
        ("node", True, True),  # each has the label a
        ("gone", False, True),
    }
    post(third, "d")
    until(partial(shows, second, ["b", "c", "d"]), "the change", within=SOON_SECONDS)
    assert '"hostname":"d"' in watch(second, 1, went_on[-1][0])[0][2]
