"""Callbacks of a real registry to the receiver of docs/integrations.md; either goes away."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from dev.waiting import until
from registry.callbacks.receiver import signature
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.e2e.commands import change_settings, metric_value
from tests.support.pages import Page

pytestmark = pytest.mark.real

SOON = 30.0
# A post that has failed often is tried again within a minute.
LATER = 100.0
CALLBACK_KEY = "callback-key-0123456789"
WEB = "service:web"


class PageReceiver:
    """The receiver of the page as a process, and the lines that it printed over all its starts."""

    def __init__(self, folder: Path, *, port: int) -> None:
        code = re.search(
            r"cat > receiver.py <<'END'\n(.*?)^END$", _page(), re.DOTALL | re.MULTILINE
        )
        assert code is not None
        folder.mkdir()
        (folder / "receiver.py").write_text(code[1])
        (folder / "callback.key").write_text(CALLBACK_KEY)
        self.url = f"http://127.0.0.1:{port}/changes"
        self._folder = folder
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, registry: Daemon) -> None:
        """Start it, with the address and a key of a registry."""
        (self._folder / "ops.key").write_text(registry.key)
        with (self._folder / "changes.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "receiver.py"],
                cwd=self._folder,
                env={"REGISTRY": registry.base_url, "PORT": str(self._port)},
                stdout=output,
                stderr=subprocess.DEVNULL,
            )

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def lines(self) -> list[str]:
        """Return what it printed."""
        return (self._folder / "changes.txt").read_text().splitlines()

    def until_last(self, line: str, within: float = SOON) -> None:
        """Wait until the last line is this one."""
        until(lambda: self.lines()[-1:] == [line], f"the last line is {line}", within=within)


def _page() -> str:
    return Page("docs/integrations.md").text


@pytest.fixture
def receiver(tmp_path: Path, free_port: FreePort) -> Iterator[PageReceiver]:
    """Yield a receiver that is not started yet."""
    made = PageReceiver(tmp_path / "receiver", port=free_port())
    yield made
    made.stop()


def registry_with(daemons: Daemons, receiver: PageReceiver, key: str = CALLBACK_KEY) -> Daemon:
    """Start a registry that posts to a receiver; its key is the file `callback.key`."""
    registry = daemons.registry()
    (registry.config_path.parent / "callback.key").write_text(key)
    add_callback(registry, receiver)
    return registry


def add_callback(registry: Daemon, receiver: PageReceiver, **more: Any) -> None:
    """Set the callback, and reload."""
    callback = {"url": receiver.url, "key_file": "callback.key", "labels": [WEB], **more}
    change_settings(registry, callbacks=[callback])
    os.kill(registry.pid, signal.SIGHUP)


def post(registry: Daemon, name: str, **kv: str) -> None:
    """Report a host."""
    answer = registry.ask("POST", f"/nodes/{name}", json={"labels": [WEB], "kv": kv})
    assert answer.status_code == 200, answer.text


def until_failing(registry: Daemon, receiver: PageReceiver) -> None:
    """Wait until the registry has found out that the receiver is away."""
    line = f'rollcall_registry_callback_failing_seconds{{callback="{receiver.url}"}}'
    until(lambda: metric_value(registry, line), "the callback fails", within=SOON)


def test_a_receiver_that_is_lost_for_a_while_gets_each_change_in_order(
    daemons: Daemons, receiver: PageReceiver
) -> None:
    registry = registry_with(daemons, receiver)
    receiver.start(registry)
    receiver.until_last("resync started", within=LATER)
    post(registry, "h1")
    receiver.until_last("added h1")

    receiver.stop()
    post(registry, "h2")
    until_failing(registry, receiver)
    post(registry, "h1", rack="r1")
    registry.ask("DELETE", "/nodes/h2")
    registry.ask("POST", "/nodes/other", json={"labels": [], "kv": {}})
    post(registry, "h2")
    receiver.start(registry)
    receiver.until_last("added h2", within=LATER)

    assert receiver.lines() == [
        "resync started",
        "added h1",
        "added h2",
        "changed h1",
        "gone h2",
        "added h2",
    ]
    assert "callback works again" in registry.log()


def test_after_a_kill_the_receiver_has_to_read_all_nodes(
    daemons: Daemons, receiver: PageReceiver
) -> None:
    registry = registry_with(daemons, receiver)
    receiver.start(registry)
    receiver.until_last("resync started", within=LATER)
    post(registry, "h1")
    receiver.until_last("added h1")

    receiver.stop()
    post(registry, "h2")
    registry.kill()
    receiver.start(registry)
    registry.start()
    receiver.until_last("resync started h1 h2", within=LATER)
    post(registry, "h3")
    receiver.until_last("added h3")

    assert receiver.lines() == [
        "resync started",
        "added h1",
        "resync started h1 h2",
        "added h3",
    ]


def test_a_receiver_that_is_away_beyond_the_bound_has_to_read_all_nodes(
    daemons: Daemons, receiver: PageReceiver
) -> None:
    registry = registry_with(daemons, receiver)
    receiver.start(registry)
    receiver.until_last("resync started", within=LATER)

    receiver.stop()
    post(registry, "small")
    until_failing(registry, receiver)
    for number in range(40):  # of each, the registry keeps the mebibyte that it replaced
        post(registry, "large", number=str(number), **{f"k{n}": "x" * 16_000 for n in range(60)})
    receiver.start(registry)
    receiver.until_last("resync missed large small", within=LATER)
    post(registry, "h1")
    receiver.until_last("added h1")

    assert receiver.lines() == ["resync started", "resync missed large small", "added h1"]
    resyncs = f'rollcall_registry_callback_resyncs_total{{callback="{receiver.url}"}}'
    assert metric_value(registry, resyncs) == 2


def test_a_wrong_key_is_reported_and_a_reload_takes_the_right_one(
    daemons: Daemons, receiver: PageReceiver
) -> None:
    registry = registry_with(daemons, receiver, key="wrong-key-0123456789")
    receiver.start(registry)
    until_failing(registry, receiver)
    until(lambda: "it answers 403" in registry.log(), "the reason is logged", within=LATER)
    assert receiver.lines() == []

    (registry.config_path.parent / "callback.key").write_text(CALLBACK_KEY)
    os.kill(registry.pid, signal.SIGHUP)
    receiver.until_last("resync started", within=LATER)
    post(registry, "h1")
    receiver.until_last("added h1")

    add_callback(registry, receiver, labels=[WEB, "rack:r1"])
    receiver.until_last("resync settings h1")
    add_callback(registry, receiver, key_file="none.key")
    until(lambda: "callbacks[0].key_file" in registry.log(), "the mistake is reported", within=SOON)
    registry.ask(
        "POST", "/nodes/h2", json={"labels": [WEB, "rack:r1"], "kv": {}}
    ).raise_for_status()
    receiver.until_last("added h2")


def test_the_receiver_rejects_what_is_old_or_altered(
    daemons: Daemons, receiver: PageReceiver
) -> None:
    registry = daemons.registry()
    receiver.start(registry)
    node = {"hostname": "h1", "labels": [WEB], "kv": {}, "last_update": 1}
    body = json.dumps({"changes": [{"id": "1", "change": "added", "node": node}]}).encode()

    def answer(timestamp: float, sent: bytes = body, key: str = CALLBACK_KEY) -> int | None:
        signed = signature(key.encode(), timestamp=int(timestamp), body=body)
        headers = {"Rollcall-Signature": signed}
        try:
            return requests.post(receiver.url, sent, headers=headers, timeout=10).status_code
        except requests.ConnectionError:
            return None

    now = time.time()
    assert until(lambda: answer(now), "it listens", within=SOON) == 204
    assert answer(now - 250) == 204
    assert answer(now - 400) == 403
    assert answer(now + 400) == 403
    assert answer(now, body.replace(b"h1", b"h2")) == 403
    assert answer(now, key="another-key-0123456789") == 403
    assert requests.post(receiver.url, body, timeout=10).status_code == 403
    assert receiver.lines() == ["added h1", "added h1"]
