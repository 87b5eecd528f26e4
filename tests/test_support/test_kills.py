"""Which operations the tests of kills take, and what their checks find."""

import io
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import docker
import pytest
import requests
from structlog.testing import LogCapture

from agent.apps.containers.network import NETWORK
from tests.support.agent.consistency import DEFAULT_NETWORK, NEW, Expected, check
from tests.support.agent.engines.fake_engine import FakeEngine
from tests.support.agent.kills.engine_proxy import PULL, Call, Fault, Watch
from tests.support.agent.kills.host import Attempt, repeated
from tests.support.agent.kills.observed_app import ObservedApp
from tests.support.agent.kills.operations import REBUILDS, UPDATES
from tests.support.agent.kills.runs import faults_at, named
from tests.support.agent.kills.snapshot import Passwords, Snapshot, take_snapshot
from tests.support.agent.kills.subject import ATTEMPTS
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.daemons import Daemons


def test_a_part_of_a_name_takes_the_operations_with_it_and_none_takes_all() -> None:
    assert named(UPDATES, "update, ") == [each for each in UPDATES if "update, " in each.name]
    assert named(REBUILDS, UPDATES[0].name) == []
    assert named(UPDATES, "") == list(UPDATES)


def test_a_whole_name_takes_that_operation_alone() -> None:
    assert REBUILDS[0].name in REBUILDS[1].name
    assert named(REBUILDS, REBUILDS[0].name) == [REBUILDS[0]]


def test_a_part_of_no_name_is_an_error_that_shows_the_names() -> None:
    with pytest.raises(ValueError, match=f"ROLLCALL_OPERATION=rebiuld .*{REBUILDS[0].name}"):
        named(REBUILDS, "rebiuld")


def test_a_test_run_takes_one_fault_at_each_call_in_turns_and_a_kill_after_the_last() -> None:
    calls = [Call("POST /containers/ID/start", number) for number in range(1, 6)]

    faults = [(fault.call.number, fault.moment) for fault in faults_at(calls)]

    turns = [(5, "lost"), (4, "before"), (3, "late"), (2, "after"), (1, "lost")]
    assert faults == [(5, "after"), *turns]


def test_of_an_operation_like_another_it_takes_the_calls_that_differ() -> None:
    calls = [Call(PULL, 1), Call("POST /containers/create", 1)]

    assert faults_at(calls, only=PULL) == [Fault(calls[0], "after"), Fault(calls[0], "lost")]
    assert {each.call for each in faults_at(calls, "all", only=PULL)} == set(calls)


def test_a_pull_which_may_take_long_is_never_answered_late() -> None:
    calls = [Call(PULL, number) for number in range(1, 5)]

    assert [fault.moment for fault in faults_at(calls)] == [
        *("after", "lost", "before", "lost", "after")
    ]


def attempt(status: int, message: str, *, struck: bool = False) -> Attempt:
    answer = requests.Response()
    answer.status_code, answer.raw = status, io.BytesIO(message.encode())
    watch = Watch()
    if struck:
        watch.struck.set()
    return Attempt(Snapshot(), watch, answer)


SLOW = (503, "the container engine does not answer in time")


def test_an_operation_is_repeated_if_the_engine_was_slow_and_no_fault_struck() -> None:
    attempts = [attempt(*SLOW), attempt(*SLOW), attempt(200, "")]
    left, settled = iter(attempts), list[str]()

    assert repeated(lambda: next(left), lambda: settled.append("")) is attempts[2]
    assert len(settled) == 2


@pytest.mark.parametrize(
    "only", [attempt(*SLOW, struck=True), attempt(503, "away"), attempt(409, SLOW[1])]
)
def test_an_operation_is_not_repeated_after_a_fault_or_another_answer(only: Attempt) -> None:
    left = iter([only])

    assert repeated(lambda: next(left), lambda: None) is only


def test_an_operation_at_which_the_engine_is_always_slow_is_given_up() -> None:
    made = [attempt(*SLOW) for _ in range(ATTEMPTS)]
    left = iter(made)

    assert repeated(lambda: next(left), lambda: None) is made[-1]


async def check_passes(apps: AskedApps, engine: FakeEngine, expected: Expected) -> bool:
    try:
        await check(apps, engine, expected)
    except AssertionError:
        return False
    return True


async def test_a_container_in_another_network_than_before_or_than_it_was_made_for_is_found(
    tmp_path: Path,
) -> None:
    engine, isolated = FakeEngine(), replace(AT_ONCE, isolated=True)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=isolated) as apps:
        await apps.create(NEW, ASKER)
        (container,) = engine.state.containers.values()
        volumes = set(engine.state.volumes)

        def expected(network: str, **networks: str) -> Expected:
            return Expected(volumes=volumes, network=network, networks=networks)

        assert await check_passes(apps, engine, expected(NETWORK))
        assert not await check_passes(apps, engine, expected(DEFAULT_NETWORK))
        before = {container.id: NETWORK}
        assert await check_passes(apps, engine, expected(DEFAULT_NETWORK, **before))
        container.network = DEFAULT_NETWORK
        assert not await check_passes(apps, engine, expected(DEFAULT_NETWORK, **before))


@contextmanager
def other_network(client: docker.APIClient) -> Iterator[str]:
    """Yield the name of a network that is removed in the end."""
    name = f"rollcall-test-{secrets.token_hex(4)}"
    client.create_network(name)
    try:
        yield name
    finally:
        client.remove_network(name)


@pytest.mark.real
def test_a_snapshot_has_the_network_of_the_container(
    daemons: Daemons, engine_url: str, docker_client: docker.APIClient, busybox_image: str
) -> None:
    app = ObservedApp(daemons.agent(engine=engine_url), docker_client)
    with other_network(docker_client) as network:
        try:
            body = {"name": app.name, "image": busybox_image, "memory": 32}
            created = app.agent.ask("POST", "/v1/apps", json=body)
            assert created.status_code == 201, created.text
            container = created.json()["container_id"]
            before = take_snapshot(app, Passwords(), busybox_image)

            docker_client.connect_container_to_network(container, network)
            docker_client.disconnect_container_from_network(container, "bridge")
            after = take_snapshot(app, Passwords(), busybox_image)
        finally:
            app.delete()

    assert after.differences(before) == f"network: {network} and not bridge"
