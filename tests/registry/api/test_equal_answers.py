"""Registries that know the same answer with equal bytes and ETags, whatever led to it."""

import pytest

from tests.support.registry.in_process import InProcessRegistry, in_process_registry

HOSTS = [f"web-{number:03}" for number in range(400)]
CODINGS = ("identity", "gzip", "zstd")
PATHS = [
    "/services",
    "/nodes",
    "/nodes?limit=150&after=web-100",
    "/nodes?label=rack:1",
    "/nodes?search=web-2",
    "/prometheus/web?format=nested",
    "/prometheus/web?format=http_sd",
]


async def post_all(registry: InProcessRegistry, hostnames: list[str]) -> None:
    for hostname in hostnames:
        number = int(hostname.rpartition("-")[2])
        labels = ["prometheus:web", f"prometheus:own-{number}", f"rack:{number % 4}"]
        assert (await registry.post(hostname, labels, {"text": "x" * 100})).status == 200


async def answers_of(registry: InProcessRegistry, coding: str) -> dict[str, tuple[str, bytes]]:
    """Return the ETag and the body of each path."""
    found = {}
    for path in PATHS:
        answer = await registry.ask("GET", path, headers={"Accept-Encoding": coding})
        found[path] = answer.headers["ETag"], answer.body
    return found


@pytest.mark.slow
async def test_answers_do_not_depend_on_the_order_in_which_nodes_came() -> None:
    async with in_process_registry() as one, in_process_registry() as other:
        await post_all(one, HOSTS)
        await post_all(other, [f"between-{number}" for number in range(100)])
        await post_all(other, HOSTS[1::2])
        await post_all(other, HOSTS[::-2])
        for number in range(100):
            assert (await other.ask("DELETE", f"/nodes/between-{number}")).status == 200
        await post_all(other, HOSTS)

        for coding in CODINGS:
            assert await answers_of(one, coding) == await answers_of(other, coding)


@pytest.mark.slow
async def test_an_answer_with_other_bytes_has_another_etag(registry: InProcessRegistry) -> None:
    await post_all(registry, HOSTS)

    found = [await answers_of(registry, coding) for coding in CODINGS]

    assert len({etag for answers in found for etag, _ in answers.values()}) == 3 * len(PATHS)
