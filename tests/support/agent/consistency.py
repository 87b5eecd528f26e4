"""Whether record, container and volumes of an app agree, however an operation ended."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from agent.apps.errors import AppError
from agent.apps.labels import APP_LABEL
from agent.apps.records import AppView
from agent.engine.errors import EngineUnavailable
from agent.model import NewApp, spec_values
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.engines.fake_state import FakeContainer
from tests.support.agent.running_apps import ASKER, AskedApps
from tests.support.waiting import async_until

DEFAULT_NETWORK = "default"
NEW = NewApp(name="web", image=IMAGE)
BACKGROUND = replace(ASKER, respond_async=True)
Action = Callable[[AskedApps], Awaitable[object]]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What must remain of what there was before an operation, and how it is to make containers.

    Attributes:
        volumes: The names of the volumes.
        volumes_go: Whether the volumes go with the operation if there is no app any more.
        networks: The network of each container before, by its id.
        network: The network of each container that the operation makes.

    """

    volumes: Collection[str] = ()
    volumes_go: bool = False
    networks: Mapping[str, str] = field(default_factory=dict)
    network: str = DEFAULT_NETWORK


async def until_idle(apps: AskedApps) -> None:
    async def idle() -> bool:
        return all(record.progress is None for record in await apps.queries.all())

    await async_until(idle)


async def check(apps: AskedApps, engine: FakeEngine, expected: Expected | None = None) -> None:
    """Assert that record, container, network and volumes agree, and that no volume is lost or left.

    Without ``expected`` there was nothing before the operation.
    """
    expected = expected or Expected()
    await until_idle(apps)
    records = await apps.queries.all()
    containers = [each for each in engine.state.containers.values() if each.labels[APP_LABEL]]
    volumes = set(engine.state.volumes)
    named = {name for record in records for name in record.volumes.values()}
    stay: set[str] = set() if expected.volumes_go and not records else set(expected.volumes)
    assert volumes == stay | named
    made = [record for record in records if record.state != "failed"]
    for record, container in zip(made, containers, strict=True):
        assert container.volumes
        assert container.volumes.items() <= record.volumes.items()
        assert container.network == expected.networks.get(container.id, expected.network)
        assert (record.container_id, record.name) == (container.id, container.name)
        assert record.state == ("running" if record.desired == "running" else container.state)
        assert (record.image, record.cpu) == (container.image, container.cpu)
        assert sorted(container.ports) == sorted((record.ssh_port, record.http_port))
        has_password = bool(container.shadow)
        assert has_password or record.password != "set"
        await check_history(apps, record, container)


async def check_history(apps: AskedApps, record: AppView, container: FakeContainer) -> None:
    """Assert that the newest revision is the app as it is, and that none was written twice."""
    revisions = (await apps.history(record.name))[::-1]
    assert [each.revision for each in revisions] == list(range(1, len(revisions) + 1))
    newest = revisions[-1]
    assert record.revision == newest.revision
    assert spec_values(newest) == spec_values(record)
    assert newest.image_id == container.image_id
    for before, after in pairwise(revisions):
        assert (spec_values(before), before.image_id) != (spec_values(after), after.image_id)


async def run_to_its_end(run: Action, apps: AskedApps) -> None:
    try:
        await run(apps)
    except (AppError, EngineUnavailable):
        return
    finally:
        await until_idle(apps)
