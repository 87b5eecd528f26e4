"""Several registries on one bucket: any agent to any of them, any reader to any of them."""

import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from socket import gethostname
from statistics import median

import pytest
import yaml

from dev.waiting import until
from tests.support.daemons import Daemon
from tests.support.registry.load.histories import VISIBLE_SECONDS

pytestmark = pytest.mark.real
SOON_SECONDS = 180.0
DENIED = ["web-7", "old-*"]
CHANGES = 50
# Of the changes, 5 % may be later than a second, but not by so many times.
MAX_LATE = CHANGES // 20
MAX_TIMES_LATE = 10
LARGE = 16_000
MIB_OF_LARGE = 20  # no more of them than this take a MiB
RACES = 5
CLONES = re.compile(r'heartbeats_rejected_total\{reason="clone"\} (.*)')


def post(registry: Daemon, hostname: str, agent: str = "a", label: str = "x") -> int:
    body = {"labels": [label, "prometheus:web"], "kv": {"agent.id": agent}}
    return registry.ask("POST", f"/nodes/{hostname}", json=body).status_code


def post_instance(registry: Daemon, instance: str) -> int:
    """Send a heartbeat of a host as that start of its agent."""
    body = {"labels": [], "kv": {"agent.id": "a", "agent.instance": instance}}
    return registry.ask("POST", "/nodes/one", json=body).status_code


def has_taken(registry: Daemon, instance: str) -> bool:
    return post_instance(registry, instance) == 200


def post_large(registry: Daemon, hostname: str, text: str) -> int:
    """Send a heartbeat of a host of which some dozen take a MiB."""
    body = {"labels": [], "kv": {"1": text * LARGE, "2": text * LARGE}}
    return registry.ask("POST", f"/nodes/{hostname}", json=body).status_code


def has_forgotten(registry: Daemon, names: list[str]) -> bool:
    """Delete nodes; return whether they are gone."""
    statuses = {registry.ask("DELETE", f"/nodes/{name}").status_code for name in names}
    return statuses <= {200, 404}


def post_as(hostname: str, registry: Daemon, agent: str) -> int:
    return post(registry, hostname, agent)


def accept(registry: Daemon, hostname: str, agent: str = "a", label: str = "x") -> None:
    """Send a heartbeat until it is accepted."""
    wanted = f"{hostname} accepted"
    until(lambda: post(registry, hostname, agent, label) == 200, wanted, within=SOON_SECONDS)


def hostnames(registry: Daemon) -> list[str]:
    return [node["hostname"] for node in registry.ask("GET", "/nodes").json()]


def clones(registry: Daemon) -> float:
    """Return how many heartbeats of clones a registry has rejected."""
    found = CLONES.search(registry.ask("GET", "/metrics").text)
    return 0.0 if found is None else float(found[1])


def shows(registry: Daemon, names: list[str]) -> bool:
    return hostnames(registry) == names


def has_label(registry: Daemon, label: str) -> bool:
    return f'"{label}"' in registry.ask("GET", "/nodes/one").text


def same_everywhere(registries: list[Daemon]) -> bool:
    """Return whether all answer with the same bytes and entity tags."""
    answers = {
        (answer.content, answer.headers["ETag"], targets.content, targets.headers["ETag"])
        for registry in registries
        for answer in [registry.ask("GET", "/nodes")]
        for targets in [registry.ask("GET", "/prometheus/web?format=http_sd")]
    }
    return len(answers) == 1


def test_each_registry_shows_what_was_posted_to_any_of_them(registries: list[Daemon]) -> None:
    first, second, third = registries
    accept(first, "one")
    accept(second, "two")
    accept(third, "three")

    for registry in registries:
        until(partial(shows, registry, ["one", "three", "two"]), "all", within=SOON_SECONDS)
    until(lambda: same_everywhere(registries), "the same bytes", within=SOON_SECONDS)

    assert second.ask("DELETE", "/nodes/one").status_code == 200
    until(partial(shows, third, ["three", "two"]), "the deletion", within=SOON_SECONDS)
    until(lambda: same_everywhere(registries), "the same bytes", within=SOON_SECONDS)


def members(registry: Daemon) -> list[tuple[str, str, bool]]:
    found = registry.ask("GET", "/status").json()["members"]
    return [(member["name"], member["run"], member["own"]) for member in found]


def knows(registry: Daemon, count: int) -> bool:
    return len(members(registry)) == count


def test_each_registry_knows_the_others(registries: list[Daemon]) -> None:
    for registry in registries:
        until(partial(knows, registry, len(registries)), "all members", within=SOON_SECONDS)

    found = [members(registry) for registry in registries]

    assert {name for members in found for name, _, _ in members} == {gethostname()}
    assert len({run for members in found for _, run, _ in members}) == len(registries)
    own = [[run for _, run, is_own in members if is_own] for members in found]
    assert sorted(map(len, own)) == [1] * len(registries)
    assert len({run for [run] in own}) == len(registries)
    status = registries[0].ask("GET", "/status").json()
    assert status["store"]["kind"] == "nats"
    assert status["store"]["shared"] is True
    assert status["store"]["state"] == "ok"
    assert max(member["seen_seconds"] for member in status["members"]) < SOON_SECONDS


def test_a_change_is_visible_everywhere_within_a_second(registries: list[Daemon]) -> None:
    """A busy machine may be late with some: its slowest acceptance is what to compare with."""
    delays, acceptances = [], []
    for number in range(CHANGES):
        began = time.monotonic()
        accept(registries[number % 3], "one", label=f"v{number}")
        accepted = time.monotonic()
        for registry in registries:
            until(partial(has_label, registry, f"v{number}"), "the change", within=SOON_SECONDS)
        acceptances.append(accepted - began)
        delays.append(time.monotonic() - accepted)
    delays.sort()
    bound = VISIBLE_SECONDS + max(acceptances)
    assert median(delays) < VISIBLE_SECONDS, delays
    assert delays[-MAX_LATE - 1] < bound, (delays, bound)
    assert delays[-1] < MAX_TIMES_LATE * bound, (delays, bound)


def test_most_changes_are_visible_elsewhere_before_the_next_one_is_accepted(
    registries: list[Daemon],
) -> None:
    """A change takes milliseconds, or longer on a slow machine: that is what to compare with."""
    visible = 0
    for number in range(CHANGES):
        writer, reader = registries[number % 3], registries[(number + 1) % 3]
        accept(writer, "one", label=f"v{number}")
        accept(writer, "next", label=f"v{number}")
        visible += has_label(reader, f"v{number}")
    assert visible > CHANGES / 2


def test_a_clone_is_rejected_whichever_registry_it_reports_to(registries: list[Daemon]) -> None:
    accept(registries[0], "one", agent="a")
    until(lambda: hostnames(registries[2]) == ["one"], "the node", within=SOON_SECONDS)

    before = clones(registries[2])
    assert post(registries[2], "one", agent="b") == 409
    assert clones(registries[2]) == before + 1


def test_an_instance_that_was_replaced_is_rejected_whichever_registry_it_reports_to(
    registries: list[Daemon],
) -> None:
    for registry, instance in zip(registries, ("i1", "i2"), strict=False):
        until(partial(has_taken, registry, instance), instance, within=SOON_SECONDS)
        for other in registries:
            until(partial(has_label, other, instance), instance, within=SOON_SECONDS)

    assert [post_instance(registry, "i1") for registry in registries] == [409, 409, 409]
    assert [post_instance(registry, "i2") for registry in registries] == [200, 200, 200]


def test_the_bound_holds_for_all_but_what_two_registries_accept_at_once(
    start_registry: Callable[..., Daemon],
) -> None:
    here, elsewhere = both = [start_registry(nodes={"max_mib": 1}) for _ in range(2)]

    def is_full(text: str) -> bool:
        """Post nodes until one is rejected."""
        names = (f"{text}{number}" for number in range(MIB_OF_LARGE))
        return any(post_large(here, name, "a") == 507 for name in names)

    until(partial(is_full, "n"), "507", within=SOON_SECONDS)
    known = hostnames(here)
    until(partial(shows, elsewhere, known), "all nodes", within=SOON_SECONDS)
    assert post_large(elsewhere, "new", "a") == 507
    for registry in both:  # those that are known go on
        assert [post_large(registry, "n0", text) for text in "ab"] == [200, 200]

    decided, gone = 0, [known.pop()]
    for _ in range(RACES):
        until(partial(has_forgotten, here, gone), "a deletion", within=SOON_SECONDS)
        for registry in both:
            until(partial(shows, registry, known), "room for one", within=SOON_SECONDS)
        gone = ["r1", "r2"]
        with ThreadPoolExecutor(2) as threads:
            statuses = list(threads.map(post_large, both, gone, "aa"))
        if 503 in statuses:  # the servers were too slow for one of them
            continue
        taken = [name for name, status in zip(gone, statuses, strict=True) if status == 200]
        assert len(taken) + statuses.count(507) == 2
        assert taken
        for registry in both:
            until(partial(shows, registry, [*known, *taken]), "what is taken", within=SOON_SECONDS)
            assert post_large(registry, "new", "a") == 507
        decided += 1
    assert decided > RACES / 2


def test_of_two_hosts_that_take_a_name_at_once_one_is_rejected(registries: list[Daemon]) -> None:
    agents, decided = [f"agent-{number}" for number in range(3)], 0
    with ThreadPoolExecutor(3) as threads:
        for number in range(CHANGES):
            statuses = sorted(threads.map(partial(post_as, f"h{number}"), registries, agents))
            if 503 in statuses:  # the servers were too slow for one of them
                continue
            assert statuses == [200, 409, 409], statuses
            decided += 1
    assert decided > CHANGES / 2


def test_a_host_that_reports_elsewhere_does_not_get_stale(
    start_registry: Callable[..., Daemon],
) -> None:
    quick = {"nodes": {"stale_after_seconds": 4}}
    here, elsewhere = start_registry(**quick), start_registry(**quick)
    accept(here, "silent")
    accept(here, "alive")

    def one_is_stale_here() -> bool:
        accept(elsewhere, "alive")
        text = here.ask("GET", "/metrics").text
        states = [f'rollcall_registry_nodes{{state="{state}"}} 1.0' for state in ("fresh", "stale")]
        return all(state in text for state in states)

    until(one_is_stale_here, "one is stale", within=SOON_SECONDS)
    until(lambda: same_everywhere([here, elsewhere]), "the same bytes", within=SOON_SECONDS)


def test_a_registry_that_starts_has_all_nodes_and_their_ages(
    start_registry: Callable[..., Daemon],
) -> None:
    first = start_registry()
    accept(first, "one")
    first.terminate()

    second = start_registry()
    assert hostnames(second) == ["one"]
    assert second.ask("GET", "/nodes?max_age=60").json() != []


def differs_from(registry: Daemon, name: str = "denied") -> int:
    """Return how many other registries have another list, -1 until the other one is known."""
    status = registry.ask("GET", "/status").json()
    return len(status[name]["differs_from"]) if len(status["members"]) == 2 else -1


def have(registries: list[Daemon], count: int, name: str = "denied") -> bool:
    return {differs_from(registry, name) for registry in registries} == {count}


def deny(registry: Daemon, hostnames: list[str]) -> None:
    """Reload a registry with this list."""
    settings = yaml.safe_load(registry.config_path.read_text())
    settings.setdefault("nodes", {})["denied"] = hostnames
    registry.config_path.write_text(yaml.safe_dump(settings))
    os.kill(registry.pid, signal.SIGHUP)


def test_a_list_that_one_registry_lacks_is_seen_at_each_until_that_has_it(
    start_registry: Callable[..., Daemon],
) -> None:
    here = start_registry(nodes={"denied": DENIED})
    there = start_registry()
    both = [here, there]
    until(partial(have, both, 1), "the difference", within=SOON_SECONDS)
    assert (post(here, "web-7"), post(there, "web-7")) == (403, 200)
    assert here.ask("GET", "/nodes").json() == []

    deny(there, DENIED[::-1])

    until(partial(have, both, 0), "the same list", within=SOON_SECONDS)
    assert "restart to apply" not in there.log()
    assert there.ask("GET", "/nodes").json() == []
    assert post(there, "web-7") == 403


def test_each_registry_shows_that_another_one_expects_other_hosts(
    start_registry: Callable[..., Daemon], tmp_path: Path
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("web-1\nweb-2\n")
    other.write_text("WEB-2\n")
    here = start_registry(nodes={"expected": str(one)})
    there = start_registry(nodes={"expected": str(other)})
    until(partial(have, [here, there], 1, "expected"), "the difference", within=SOON_SECONDS)

    other.write_text("WEB-2\nWEB-1.\n")

    until(partial(have, [here, there], 0, "expected"), "the same list", within=SOON_SECONDS)
    accept(there, "web-1")
    until(partial(shows, here, ["web-1"]), "the host", within=SOON_SECONDS)
    [absent] = here.ask("GET", "/roll-call").json()["absent"]
    assert absent["hostname"] == "web-2"


def test_a_host_that_is_allowed_again_is_listed_where_it_does_not_report(
    start_registry: Callable[..., Daemon],
) -> None:
    here, there = both = [start_registry(nodes={"denied": DENIED}) for _ in range(2)]
    until(partial(have, both, 0), "the same list", within=SOON_SECONDS)
    deny(here, [])
    until(partial(have, both, 1), "the difference", within=SOON_SECONDS)
    accept(here, "web-7")
    accept(here, "web-8")
    until(partial(shows, there, ["web-8"]), "the other host", within=SOON_SECONDS)

    deny(there, [])

    until(partial(shows, there, ["web-7", "web-8"]), "both hosts", within=SOON_SECONDS)
    until(lambda: same_everywhere(both), "the same bytes", within=SOON_SECONDS)
