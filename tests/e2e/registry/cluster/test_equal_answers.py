"""Registries on one bucket answer with equal bytes and equal ETags."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import requests

from dev.waiting import until
from tests.support.daemons import Daemon

pytestmark = pytest.mark.real
SOON_SECONDS = 180.0
# More than one block of targets has, so that blocks are split where hosts are added.
HOSTS = [f"web-{number:03}" for number in range(150)]
PATHS = ["/nodes", "/nodes?label=parity:1", "/nodes?search=web-1", "/nodes?limit=40"]
TARGETS = ["/prometheus/web?format=nested", "/prometheus/web?format=http_sd", "/prometheus/no"]
CODINGS = ["identity", "gzip", "zstd"]
# The ETag and the bytes of a path in a coding.
Answers = dict[tuple[str, str], tuple[str, bytes]]


def post(registry: Daemon, hostname: str, revision: int) -> None:
    number = int(hostname.rpartition("-")[2])
    labels = ["prometheus:web", f"parity:{number % 2}", f"revision:{revision}"]
    body = {"labels": labels, "kv": {"agent.id": hostname}}
    answer = registry.ask("POST", f"/nodes/{hostname}", json=body)
    assert answer.status_code == 200, answer.text


def change(registries: Sequence[Daemon], stop: Event) -> None:
    """Change and remove hosts, and add others between them, until `stop` is set.

    Each host is on one registry throughout.
    """
    revision = 0
    while not stop.is_set():
        revision += 1
        for number, hostname in enumerate(HOSTS[revision % 7 :: 7]):
            registry = registries[number % len(registries)]
            post(registry, hostname, revision)
            post(registry, f"{hostname}-{revision % 3}", revision)
            if revision % 2:
                registry.ask("DELETE", f"/nodes/{hostname}-{revision % 3}")


def answers_of(registry: Daemon) -> Answers:
    """Return all answers of a registry, pages included."""
    found: Answers = {}
    for coding in CODINGS:
        paths = [*PATHS, *TARGETS]
        for path in paths:
            answer = ask(registry, path, coding)
            found[path, coding] = answer.headers["ETag"], answer.raw.read(decode_content=False)
            if "next" in answer.links:
                paths.append(f"/{answer.links['next']['url']}")
    return found


def ask(registry: Daemon, path: str, coding: str) -> requests.Response:
    answer = registry.ask("GET", path, headers={"Accept-Encoding": coding}, stream=True)
    assert answer.status_code == 200, answer.text
    return answer


def bodies(answers: Answers) -> dict[tuple[str, str], bytes]:
    return {key: body for key, (_, body) in answers.items()}


@pytest.mark.release("equal answers of two registries are in tests/registry/api")
def test_after_a_restart_under_changes_all_registries_answer_alike(
    registries: list[Daemon],
) -> None:
    for hostname in HOSTS:
        post(registries[0], hostname, 0)
    stop = Event()
    with ThreadPoolExecutor() as pool:
        changing = pool.submit(change, registries[:2], stop)
        try:
            for _ in range(2):
                registries[2].terminate()
                registries[2].start()
                answers_of(registries[2])
        finally:
            stop.set()
        changing.result()

    def equal_bodies() -> list[Answers] | None:
        answers = [answers_of(registry) for registry in registries]
        same = bodies(answers[0])
        return answers if all(bodies(each) == same for each in answers) else None

    first, *others = until(equal_bodies, "the same bodies", within=SOON_SECONDS)
    assert len(first) > len(CODINGS) * (len(PATHS) + len(TARGETS))  # with the pages
    assert [each == first for each in others] == [True, True]
