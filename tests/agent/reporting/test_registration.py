"""A host that was renamed removes its former name."""

from pathlib import Path

import pytest

from agent.state.identity import Identity
from clients.errors import HostnameTaken, NotPermitted
from tests.support.agent.reporter_harness import UNREACHABLE, URL, ReporterHarness
from tests.support.machine.clocks import in_virtual_time


@in_virtual_time
async def test_a_renamed_host_takes_its_old_name_out_with_the_old_key(tmp_path: Path) -> None:
    async with ReporterHarness(tmp_path).running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)
    renamed = ReporterHarness(tmp_path, hostname="web-2")
    renamed.key = "rk1.web-2.secret"

    async with renamed.running() as registry:
        await registry.until(lambda: len(registry.forgotten) == 1)

    assert registry.taken[0][0] == "web-2"
    assert registry.forgotten == [("web-1", renamed.identity.id, "rk1.web-1.secret")]
    assert Identity(directory=tmp_path, machine=None).other_names(URL, "web-2") == []


@in_virtual_time
async def test_a_name_that_was_never_permitted_is_no_former_name(tmp_path: Path) -> None:
    mistyped = ReporterHarness(tmp_path, hostname="wbe-1")
    async with mistyped.running() as registry:
        registry.failure = NotPermitted("403: the key is for web-1")
        await registry.until(lambda: registry.reports >= 3)

    assert not mistyped.identity.has_name(URL, "wbe-1")


@in_virtual_time
async def test_a_name_that_may_have_been_taken_before_it_was_forbidden_is_kept(
    tmp_path: Path,
) -> None:
    harness = ReporterHarness(tmp_path)
    async with harness.running() as registry:
        registry.failure = UNREACHABLE
        await registry.until(lambda: registry.reports >= 1)
        registry.failure = NotPermitted("403: another key")
        await registry.until(lambda: registry.reports >= 3)

    assert harness.identity.has_name(URL, "web-1")


@in_virtual_time
async def test_the_old_name_stays_until_the_new_one_is_taken(tmp_path: Path) -> None:
    async with ReporterHarness(tmp_path).running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)
    renamed = ReporterHarness(tmp_path, hostname="web-2")

    async with renamed.running() as registry:
        registry.failure = UNREACHABLE
        await registry.until(lambda: registry.reports >= 5)
        assert registry.forgotten == []
        registry.failure = None
        await registry.until(lambda: len(registry.forgotten) == 1)


@pytest.mark.parametrize("failure", [HostnameTaken("409: another's by now"), None])
@in_virtual_time
async def test_an_old_name_that_is_no_longer_this_hosts_is_struck_off(
    tmp_path: Path, failure: HostnameTaken | None
) -> None:
    Identity(directory=tmp_path, machine=None).claim(URL, "web-0", "k" * 20)
    harness = ReporterHarness(tmp_path)
    harness.registry.unknown.add("web-0")
    harness.registry.forget_failure = failure

    async with harness.running() as registry:
        await registry.until(lambda: harness.identity.other_names(URL, "web-1") == [])

    assert registry.forgotten == []


@in_virtual_time
async def test_an_old_name_is_tried_again_until_the_registry_answers(tmp_path: Path) -> None:
    Identity(directory=tmp_path, machine=None).claim(URL, "web-0", "k" * 20)
    harness = ReporterHarness(tmp_path, max_silence_seconds=1)
    harness.registry.forget_failure = UNREACHABLE

    async with harness.running() as registry:
        await registry.until(lambda: registry.forgets == 3)
        registry.forget_failure = None
        await registry.until(lambda: len(registry.forgotten) == 1)

    assert harness.events() == [("registered", ""), ("former name removed", "")]


@in_virtual_time
async def test_an_old_name_that_may_not_be_taken_out_is_reported_once_and_tried_at_the_next_start(
    tmp_path: Path,
) -> None:
    Identity(directory=tmp_path, machine=None).claim(URL, "web-0", "k" * 20)
    harness = ReporterHarness(tmp_path, max_silence_seconds=1)
    harness.registry.forget_failure = NotPermitted("403: not yours")

    async with harness.running() as registry:
        await registry.until(lambda: len(registry.taken) == 3)

    assert registry.forgets == 1
    assert harness.events() == [("registered", ""), ("former name not removed", "")]
    assert harness.identity.other_names(URL, "web-1") == ["web-0"]
