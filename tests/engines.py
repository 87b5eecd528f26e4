"""A Docker Engine of a test's own, which nothing leaves: it has no network but itself."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev import engine
from dev.processes import end
from dev.waiting import until

START_SECONDS = 60.0
STOP_SECONDS = 60.0


@contextmanager
def offline_engine(folder: Path) -> Iterator[str]:
    """Run an engine in a network namespace of its own; give its address.

    Apps run in it, but their ports are published where nobody can reach them, and a pull fails
    at once.
    """
    url = f"unix://{folder / 'docker.sock'}"
    log = folder / "dockerd.log"
    dockerd = (
        f"dockerd --host {url} --data-root {folder / 'data'} --exec-root {folder / 'exec'}"
        f" --pidfile {folder / 'pid'}"
    )
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", f"ip link set lo up && exec {dockerd}"],
            stdout=output,
            stderr=output,
        )

    def answers() -> bool:
        assert process.poll() is None, f"dockerd ended:\n{log.read_text(errors='replace')}"
        return engine.answers(url)

    try:
        until(answers, "the offline engine", within=START_SECONDS)
        yield url
    finally:
        end(process, within=STOP_SECONDS)
