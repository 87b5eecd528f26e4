"""How often an app was started again and how it ended last, in the list as in the record."""

from pathlib import Path
from typing import Any

import docker
import msgspec
import pytest

from agent.apps.run_history import LastRun, Runs
from agent.engine.models import ContainerEvent, InspectedContainer
from agent.state.history import Event
from tests.support.agent.containers import derived_image
from tests.support.agent.engines.fake_state import FakeContainer, inspected
from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.waiting import async_until

NOON = 1_791_979_200.0  # 2026-10-14T12:00:00Z
AT_NOON = "2026-10-14T12:00:00.000Z"
SAME = ("finished_at", "exit_code", "restarts", "crashing")
CRASHING = 'CMD ["/bin/sh", "-c", "sleep 1; exit 3"]'


def event(action: str, *, actor: Any = "engine", **fields: Any) -> Event:
    values = {"time": NOON, "app": "web", "by": actor, **fields}
    return Event(actor=actor, action=action, **values)


def agent_started() -> Event:
    return event("start", actor="agent", outcome="done")


def died(container_id: str = "c1", *, at: float = 0, exit_code: int = 3) -> ContainerEvent:
    return ContainerEvent(
        action="die", container_id=container_id, app="web", time=NOON + at, exit_code=exit_code
    )


def container(container_id: str = "c1", **fields: Any) -> InspectedContainer:
    state = FakeContainer(
        id=container_id,
        name="web",
        image="app:1",
        labels={},
        env={},
        ports=[],
        volumes={},
        cpu=100,
        memory=64,
        image_id="i1",
        state="running",
    )
    values = msgspec.structs.asdict(inspected(state))
    return InspectedContainer(**{**values, **fields})


def last(runs: Runs, container_id: str = "c1") -> LastRun:
    return runs.last("web", container(container_id))


def test_restarts_by_the_engine_and_by_the_agent_add_up_until_an_operator_starts_the_app() -> None:
    runs = Runs()
    runs.inspected("web", container(restarts=3))
    assert last(runs).restarts == 3

    runs.add([agent_started()])  # the engine counts anew
    assert last(runs).restarts == 4
    runs.inspected("web", container(restarts=2))
    assert last(runs).restarts == 6
    runs.add([event("restart", actor="agent", outcome="failed")])
    assert last(runs).restarts == 6

    runs.add([event("start", actor="key", outcome="done")])
    runs.inspected("web", container(restarts=0))
    assert last(runs).restarts == 0


def test_an_inspection_between_a_start_and_its_event_loses_no_restart() -> None:
    runs = Runs()
    runs.inspected("web", container(restarts=3))
    runs.inspected("web", container(restarts=0))
    runs.add([agent_started()])

    assert last(runs).restarts == 4


def test_the_last_end_is_known_while_the_app_runs_again() -> None:
    runs = Runs()
    runs.inspected("web", container())
    runs.happened(died(exit_code=7))
    assert (last(runs).finished_at, last(runs).exit_code) == (AT_NOON, 7)

    precise = "2026-10-14T11:59:59.987654321Z"
    runs.inspected("web", container(finished_at=precise, exit_code=None))

    assert (last(runs).finished_at, last(runs).exit_code) == (precise, 7)


def test_an_end_that_nobody_saw_has_a_time_and_no_exit_code() -> None:
    runs = Runs()
    runs.happened(died(exit_code=7))
    later = "2026-10-14T13:00:00Z"

    runs.inspected("web", container(finished_at=later, exit_code=None))
    assert (last(runs).finished_at, last(runs).exit_code) == (later, None)

    runs.happened(died(at=-10, exit_code=1))  # an event of before, read late
    assert (last(runs).finished_at, last(runs).exit_code) == (later, None)


def test_another_container_begins_anew() -> None:
    runs = Runs()
    runs.inspected("web", container(restarts=3))
    runs.happened(died())

    assert last(runs, "c2") == LastRun()


def test_the_events_of_before_count_until_the_container_is_inspected() -> None:
    runs = Runs()
    start, die = event("start"), event("die", exit_code=3)
    runs.load([event("create", actor="key", outcome="done"), die, start, die, start])
    runs.load([agent_started(), die, start])
    assert last(runs) == LastRun(restarts=4, finished_at=AT_NOON, exit_code=3)

    runs.inspected("web", container(restarts=5, finished_at="2026-10-14T12:00:01Z"))

    assert last(runs) == LastRun(restarts=8, finished_at="2026-10-14T12:00:01Z", exit_code=3)


async def crashing_records(agent: InProcessAgent, name: str) -> dict[str, Any]:
    """Wait until an app crashes, and list and record say the same; return what they say."""
    found = list[dict[str, Any]]()

    async def agree() -> bool:
        record = await agent.get(name)
        answer = await agent.ask("GET", "")
        (listed,) = [each for each in answer.json if each["name"] == name]
        pair = [{field: each[field] for field in SAME} for each in (record, listed)]
        found[:] = pair
        return pair[0] == pair[1] and record["crashing"] and record["restarts"] >= 3

    await async_until(agree)
    return found[0]


@pytest.mark.real
async def test_list_and_record_of_a_crashing_app_agree_also_after_a_restart_of_the_agent(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    with derived_image(docker_client, busybox_image, CRASHING) as image:
        async with in_process_agent(tmp_path, engine_url, keep=True) as agent:
            name = (await agent.create(image))["name"]
            before = await crashing_records(agent, name)
            assert before["exit_code"] == 3
            assert before["finished_at"] is not None
        async with in_process_agent(tmp_path, engine_url) as again:
            again.used.append(name)
            after = await crashing_records(again, name)
            assert after["restarts"] >= before["restarts"]
            assert after["exit_code"] == 3
