"""What GET /metrics of a running registry shows."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons, FreePort

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, free_port: FreePort) -> Iterator[Daemon]:
    """Yield a registry to which something of each kind has happened."""
    folder = tmp_path_factory.mktemp("metrics") / "daemons"
    with Daemons(folder=folder, free_port=free_port) as daemons:
        yield _busy(daemons.registry(log={"level": "info"}))


def _busy(registry: Daemon) -> Daemon:
    for labels in (["a"], ["a"], ["prometheus:web:host:a b", "prometheus:web:port:80"]):
        body = {"labels": labels, "kv": {"agent.id": "first"}}
        assert registry.ask("POST", "/nodes/web-1", json=body).ok
    clone = {"labels": [], "kv": {"agent.id": "second"}}
    assert registry.ask("POST", "/nodes/web-1", json=clone).status_code == 409
    assert registry.ask("POST", "/nodes/web-2", json=clone).ok
    assert registry.ask("DELETE", "/nodes/web-2").ok
    assert registry.ask("GET", "/nodes/none").status_code == 404
    assert registry.ask("GET", "/prometheus/web", headers={"User-Agent": "Prometheus/2.42"}).ok
    return registry


def samples(registry: Daemon) -> dict[str, float]:
    """Return each sample by its name and labels, as they are written."""
    text = registry.ask("GET", "/metrics").text
    return {
        f"{sample.name}{sorted(sample.labels.items()) or ''}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_happened_is_counted_by_its_kind(registry: Daemon) -> None:
    found = samples(registry)

    def reported(name: str, *labels: tuple[str, str]) -> float:
        return found[f"rollcall_{name}{list(labels) or ''}"]

    assert reported("registry_nodes", ("state", "fresh")) == 1
    assert reported("registry_nodes", ("state", "stale")) == 0
    assert (
        reported("registry_nodes_max_bytes") == 512 * 1024**2 > reported("registry_nodes_bytes") > 0
    )
    folder = str(registry.config_path.parent)
    assert reported("disk_size_bytes", ("folder", folder)) > reported(
        "disk_free_bytes", ("folder", folder)
    )
    assert reported("loop_delay_seconds_count") >= 0
    assert reported("registry_available") == 1
    for outcome, times in (("added", 2), ("unchanged", 1), ("changed", 1)):
        assert reported("registry_heartbeats_total", ("outcome", outcome)) == times
    assert reported("registry_heartbeats_rejected_total", ("reason", "clone")) == 1
    assert reported("registry_nodes_forgotten_total", ("reason", "deleted")) == 1
    assert reported("registry_targets_left_out", ("reason", "host")) == 1
    scraper = (("key", "ops"), ("user_agent", "Prometheus/2.42"))
    assert reported("registry_consumer_last_fetch_age_seconds", *scraper) >= 0
    assert reported("http_rejections_total", ("status", "409")) == 1
    assert reported("http_connections") >= 1
    route = (("method", "POST"), ("route", "/nodes/{hostname}"), ("status", "200"))
    assert reported("http_request_duration_seconds_count", *route) == 4


def change_many(registry: Daemon, rounds: Iterator[int]) -> None:
    """Send many changes at once, so that some become durable in one go."""

    def send(number: int) -> bool:
        body = {"labels": [], "kv": {"round": str(number)}}
        return registry.ask("POST", f"/nodes/many-{number}", json=body).ok

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(send, islice(rounds, 100)))


def test_batches_of_the_store_are_in_histograms_of_sizes_and_durations(registry: Daemon) -> None:
    size, duration = "store_batch_operations", "store_batch_duration_seconds"
    rounds = count()

    def several() -> dict[str, float] | None:
        change_many(registry, rounds)
        found = samples(registry)
        single = found[f"rollcall_registry_{size}_bucket[('le', '1.0')]"]
        return found if single < found[f"rollcall_registry_{size}_count"] else None

    found = until(several, "a batch of several operations", within=30)
    batches = found[f"rollcall_registry_{size}_count"]
    operations = found[f"rollcall_registry_{size}_sum"]
    assert batches == found[f"rollcall_registry_{duration}_count"] >= 4
    assert operations == found["rollcall_registry_store_operations_total"] > batches
    assert found[f"rollcall_registry_{duration}_sum"] > 0
    for name, bounds in ((size, ("1.0", "512.0")), (duration, ("0.00025", "5.0"))):
        for bound in (*bounds, "+Inf"):
            assert found[f"rollcall_registry_{name}_bucket[('le', '{bound}')]"] <= batches
        assert found[f"rollcall_registry_{name}_bucket[('le', '+Inf')]"] == batches


@pytest.mark.real("promtool")
def test_prometheus_own_linter_finds_no_fault_with_them(registry: Daemon) -> None:
    text = registry.ask("GET", "/metrics").text

    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
