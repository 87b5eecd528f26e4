"""With a shared store, the registry that has a callback posts the changes of all registries."""

from collections.abc import Callable

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon
from tests.support.registry.callback_receiver import callback_receiver

pytestmark = pytest.mark.real
SOON_SECONDS = 180.0


def post(registry: Daemon, hostname: str) -> None:
    """Report a host."""
    answer = registry.ask("POST", f"/nodes/{hostname}", json={"labels": [], "kv": {}})
    assert answer.status_code == 200, answer.text


def test_a_callback_gets_the_changes_that_any_registry_took(
    start_registry: Callable[..., Daemon],
) -> None:
    with callback_receiver() as receiver:
        first = start_registry(callbacks=[{"url": receiver.url, "key_file": "ops.key"}])
        second = start_registry()
        until(lambda: receiver.taken == ["resync started"], "the resync", within=SOON_SECONDS)

        post(first, "a")
        post(second, "b")
        assert second.ask("DELETE", "/nodes/a").status_code == 200
        until(lambda: receiver.taken[-1:] == ["gone a"], "the changes", within=SOON_SECONDS)
        assert receiver.taken == ["resync started", "added a", "added b", "gone a"]

        first.terminate()
        post(second, "c")
        first.start()
        post(second, "d")
        until(lambda: receiver.taken[-1:] == ["added d"], "the change", within=SOON_SECONDS)

    assert receiver.taken[4:] == ["resync started", "added d"]
