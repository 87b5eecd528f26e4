"""What becomes of a host at a group of registries when it is deregistered."""

from collections.abc import Sequence
from pathlib import Path

from agent.reporting.connections import RegistryGroup
from agent.reporting.deregister import DeregistrationResult, deregister_host
from agent.state.identity import Identity
from clients.errors import HostnameTaken, WrongKey
from tests.support.agent.reporter_harness import UNREACHABLE, FakeRegistry

A, B = URLS = ["http://a:7655", "http://b:7655"]
KEY = "k" * 20


class GroupOfTwo:
    """The registries A and B, of which none knows the host, and the host's identity."""

    def __init__(self, folder: Path) -> None:
        self.a, self.b = map(FakeRegistry, URLS)
        self.identity = Identity(directory=folder, machine=None)
        for registry in (self.a, self.b):
            registry.unknown = {"web-1", "web-0"}

    def claim(self, name: str) -> None:
        """Save the name, as an agent does before a heartbeat."""
        for url in URLS:
            self.identity.claim(url, name, KEY)

    async def deregister(self) -> Sequence[DeregistrationResult]:
        """Deregister the host."""
        group = RegistryGroup(clients=[self.a, self.b], key=lambda: KEY, client_tls=None)
        return list(
            await deregister_host(group, hostname="web-1", identity=self.identity, force=False)
        )


async def test_one_that_takes_the_host_out_is_enough_and_again_nothing_is_left_to_do(
    tmp_path: Path,
) -> None:
    group = GroupOfTwo(tmp_path)
    group.claim("web-1")
    group.a.forget_failure = UNREACHABLE
    group.b.unknown.clear()

    results = await group.deregister()
    group.b.unknown.add("web-1")
    again = await group.deregister()

    said = "NOT taken out: Connection refused; another registry of the group has answered"
    assert [(each.done, each.outcome) for each in results] == [(True, said), (True, "taken out")]
    assert [(each.done, each.outcome) for each in again] == [(True, said), (True, "was not listed")]


async def test_a_registry_that_may_list_the_host_alone_must_answer(tmp_path: Path) -> None:
    group = GroupOfTwo(tmp_path)
    group.claim("web-1")
    group.a.forget_failure = UNREACHABLE

    first, second = await group.deregister()

    assert (first.done, first.outcome) == (False, "NOT taken out: Connection refused")
    assert second.done
    assert group.identity.has_name(A, "web-1")


async def test_a_rejection_is_not_made_up_for_by_another_registry(tmp_path: Path) -> None:
    group = GroupOfTwo(tmp_path)
    group.b.unknown.clear()
    for failure, words in (
        (WrongKey("401"), "NOT taken out"),
        (HostnameTaken("409"), "left alone"),
    ):
        group.a.forget_failure = failure

        first, second = await group.deregister()

        assert (first.done, first.outcome.startswith(words)) == (False, True)
        assert second.done
