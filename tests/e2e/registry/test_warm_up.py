"""A real Prometheus keeps its targets over whatever becomes of the registry's store."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.e2e.commands import run_command
from tests.support.prometheus import StartPrometheus, discovery
from tests.support.run.release import some_of

pytestmark = pytest.mark.real("prometheus")

HOSTS = [f"web-{number}" for number in range(4)]
WARM_UP_SECONDS = 8
SOON_SECONDS = 30.0


def post(registry: Daemon, hostname: str) -> None:
    body = {"labels": ["prometheus:web", f"prometheus:web:host:127.0.0.{hostname[-1]}"], "kv": {}}
    assert registry.ask("POST", f"/nodes/{hostname}", json=body).status_code == 200


def lost(registry: Daemon) -> None:
    """Lose the file of the store."""
    for file in folder_of(registry).glob("store.db*"):
        if file.suffix != ".stamp":
            file.unlink()


def not_mounted(registry: Daemon) -> None:
    """Leave the empty directory over which the data is mounted."""
    folder = folder_of(registry)
    folder.rename(folder.with_name("unmounted"))
    folder.mkdir()


def yesterday_copied(registry: Daemon) -> None:
    """Copy yesterday's backup over the store."""
    for file in folder_of(registry).glob("store.db-*"):
        file.unlink()
    shutil.copy(backup_of(registry), folder_of(registry) / "store.db")


def yesterday_restored(registry: Daemon) -> None:
    """Restore yesterday's backup."""
    done = run_command("rollcall-registry", registry, "restore", str(backup_of(registry)))
    assert done.returncode == 0, done.stderr


def folder_of(registry: Daemon) -> Path:
    store: str = yaml.safe_load(registry.config_path.read_text())["store"]
    return Path(store.removeprefix("sqlite://")).parent


def backup_of(registry: Daemon) -> Path:
    return registry.config_path.with_name("yesterday")


@pytest.fixture
def registry(daemons: Daemons, tmp_path: Path) -> Daemon:
    """Return a registry whose first warm-up is over; of its hosts, yesterday's backup has one."""
    data = tmp_path / "data"
    data.mkdir()
    registry = daemons.registry(store=f"sqlite:///{data}/store.db")
    post(registry, HOSTS[0])
    made = run_command("rollcall-registry", registry, "backup", str(backup_of(registry)))
    assert made.returncode == 0, made.stderr
    for hostname in HOSTS:
        post(registry, hostname)
    text = registry.config_path.read_text()
    assert "warm_up_seconds: 0" in text  # from the next start on:
    registry.config_path.write_text(
        text.replace("warm_up_seconds: 0", f"warm_up_seconds: {WARM_UP_SECONDS}")
    )
    return registry


@pytest.mark.parametrize(
    "harm",
    some_of(
        [lost, not_mounted, yesterday_copied, yesterday_restored],
        *(lost, yesterday_restored),
        reason="further ways to lose a store",
    ),
)
def test_prometheus_keeps_all_targets_over(
    registry: Daemon, prometheus: StartPrometheus, harm: Callable[[Daemon], None]
) -> None:
    server = prometheus(discovery({registry.base_url: registry.key}))
    until(lambda: server.hostnames() == set(HOSTS), "all targets", within=SOON_SECONDS)

    registry.terminate()
    harm(registry)
    registry.start()
    before = server.discovery_failures()
    until(
        lambda: server.discovery_failures() >= before + 3, "rejected fetches", within=SOON_SECONDS
    )
    assert server.hostnames() == set(HOSTS)
    assert registry.ask("GET", "/nodes").headers["Rollcall-Warming"]
    registry.kill()  # also in the midst of the warm-up
    registry.start()
    for hostname in HOSTS:
        post(registry, hostname)

    def served() -> bool:
        assert server.hostnames() == set(HOSTS)
        return registry.ask("GET", "/prometheus/web").status_code == 200

    until(served, "the end of the warm-up", within=SOON_SECONDS + WARM_UP_SECONDS)
    assert len(registry.ask("GET", "/prometheus/web").json()) == len(HOSTS)
    assert server.hostnames() == set(HOSTS)


def test_an_ordinary_restart_and_a_crash_need_no_warm_up(registry: Daemon) -> None:
    for end in (registry.terminate, registry.kill):
        end()
        registry.start()
        answer = registry.ask("GET", "/prometheus/web")

        assert answer.status_code == 200
        assert len(answer.json()) == len(HOSTS)
    assert "targets withheld" not in registry.log()


@pytest.mark.parametrize("end", [Daemon.terminate, Daemon.kill])
def test_a_copy_from_before_a_run_of_a_moment_is_warmed_up(
    registry: Daemon, end: Callable[[Daemon], object], tmp_path: Path
) -> None:
    registry.terminate()
    shutil.copy(folder_of(registry) / "store.db", tmp_path / "copy")
    registry.start()
    post(registry, "web-9")
    end(registry)
    for file in folder_of(registry).glob("store.db-*"):
        file.unlink()

    shutil.copy(tmp_path / "copy", folder_of(registry) / "store.db")
    registry.start()

    answer = registry.ask("GET", "/prometheus/web")
    assert answer.status_code == 503
    assert "restored from a copy" in answer.json()["message"]
