"""Clients that follow changes go on at another registry."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import requests

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.registry.nats.servers import NatsCluster

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


def test_a_watch_that_moves_learns_which_hosts_are_stale_there(
    daemons: Daemons, tmp_path: Path, free_port: FreePort
) -> None:
    with NatsCluster(folder=tmp_path / "nats", free_port=free_port) as servers:
        patient, strict = (
            daemons.registry(
                store=servers.url(),
                nats=servers.settings(),
                nodes={"stale_after_seconds": seconds, "warm_up_seconds": 0},
            )
            for seconds in (600, 2)
        )
        post(patient, "silent")
        reported = watch(patient, 3)
        until(lambda: strict.ask("GET", "/nodes?stale=true").json(), "stale", within=SOON_SECONDS)
        post(patient, "other")  # after the host has become stale at the other registry
        (changed,) = watch(patient, 1, reported[-1][0])
        until(partial(shows, strict, ["other", "silent"]), "the change", within=SOON_SECONDS)

        moved = watch(strict, 4, changed[0])

        assert ("stale", '{"hostname":"silent"}') in [(kind, data) for _, kind, data in moved]
        back = watch(patient, 4, moved[-1][0])
        assert [kind for _, kind, _ in back] == ["reset", "node", "node", "listed"]


def test_a_watch_goes_on_at_another_registry_without_a_gap(registries: list[Daemon]) -> None:
    first, second, third = registries
    for name in ("a", "b"):
        post(first, name)
    reported = watch(first, 4)
    assert [kind for _, kind, _ in reported] == ["reset", "node", "node", "listed"]

    post(second, "c")
    assert first.ask("DELETE", "/nodes/a").status_code == 200
    until(partial(shows, third, ["b", "c"]), "the changes", within=SOON_SECONDS)
    first.kill()

    went_on = watch(third, 2, reported[-1][0])
    assert {(kind, '"c"' in data, '"a"' in data) for _, kind, data in went_on} == {
        ("node", True, True),  # each has the label a
        ("gone", False, True),
    }
    post(third, "d")
    until(partial(shows, second, ["b", "c", "d"]), "the change", within=SOON_SECONDS)
    assert '"hostname":"d"' in watch(second, 1, went_on[-1][0])[0][2]
