"""Changes of apps that a test asks for in a dry run, and then carries out."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from agent.apps import requests
from agent.apps.errors import AppError
from agent.apps.records import AppView
from agent.apps.requests import Request
from agent.engine.errors import EngineError
from agent.model import AppChanges, HealthCheck, NewApp
from tests.support.agent.engines.fake_engine import DATA_IMAGE, IMAGE, OTHER_IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AskedApps
from tests.support.agent.tars import packed

PASSWORD = "correct horse battery"
# What is known only afterwards: of the container, its image, of ports that are picked, and what the
# agent does then by itself.
LATER = {
    "progress",
    *("container_id", "image_id", "created_at", "ssh_port", "http_port"),
    *("started_at", "finished_at", "exit_code", "oom_killed"),
}


async def sent() -> AsyncIterator[bytes]:
    """Yield a tar of other data."""
    yield packed({"srv": None, "srv/a": b"new"})


async def nonsense() -> AsyncIterator[bytes]:
    """Yield what is no tar."""
    yield b"no tar" * 200


CHANGES: dict[str, Callable[[], Request]] = {
    "create": lambda: requests.Create("new", NewApp(name="new", image=IMAGE)),
    "create with all": lambda: requests.Create(
        "new",
        NewApp(
            name="new",
            image=DATA_IMAGE,
            ssh_port=21111,
            http_port=21112,
            cpu=20,
            memory=64,
            env={"A": "b"},
            data=("/srv",),
            health=HealthCheck(path="/"),
        ),
    ),
    "create a name in use": lambda: requests.Create("web", NewApp(name="web", image=IMAGE)),
    "create with a bad name": lambda: requests.Create("_", NewApp(name="_", image=IMAGE)),
    "create with a port in use": lambda: requests.Create(
        "new", NewApp(name="new", image=IMAGE, http_port=21001)
    ),
    "create with too much memory": lambda: requests.Create(
        "new", NewApp(name="new", image=IMAGE, memory=1 << 20)
    ),
    "create with more memory than may be promised": lambda: requests.Create(
        "new", NewApp(name="new", image=IMAGE, memory=4000)
    ),
    "create from an image that is nowhere": lambda: requests.Create(
        "new", NewApp(name="new", image="nowhere:1")
    ),
    "create under a foreign container's name": lambda: requests.Create(
        "theirs", NewApp(name="theirs", image=IMAGE)
    ),
    "change the record": lambda: requests.Update("web", AppChanges(description="Shop")),
    "change limits": lambda: requests.Update("web", AppChanges(memory=64, cpu=70)),
    "change nothing": lambda: requests.Update("web", AppChanges(memory=32)),
    "change env": lambda: requests.Update("web", AppChanges(env={"A": "c"})),
    "change the image": lambda: requests.Update("web", AppChanges(image=OTHER_IMAGE)),
    "change to an image that is nowhere": lambda: requests.Update(
        "web", AppChanges(image="nowhere:1")
    ),
    "change to a port in use": lambda: requests.Update("web", AppChanges(http_port=21003)),
    "change to equal ports": lambda: requests.Update("web", AppChanges(ssh_port=21001)),
    "change a stopped app": lambda: requests.Update("off", AppChanges(env={"A": "c"})),
    "restart": lambda: requests.Restart("web"),
    "start": lambda: requests.Start("off"),
    "start what runs": lambda: requests.Start("web"),
    "start what has lost its container": lambda: requests.Start("lost"),
    "stop": lambda: requests.Stop("web"),
    "stop what is stopped": lambda: requests.Stop("off"),
    "stop what is not there": lambda: requests.Stop("nobody"),
    "rebuild": lambda: requests.Rebuild("web"),
    "rebuild what is stopped": lambda: requests.Rebuild("off"),
    "roll back": lambda: requests.Rollback("web", None),
    "roll back to the present revision": lambda: requests.Rollback("web", 2),
    "roll back to a revision that is not there": lambda: requests.Rollback("web", 9),
    "roll back what was never changed": lambda: requests.Rollback("off", None),
    "set a password": lambda: requests.SetPassword("web", PASSWORD),
    "set a password of a stopped app": lambda: requests.SetPassword("off", PASSWORD),
    "set a bad password": lambda: requests.SetPassword("web", "x"),
    "add a label": lambda: requests.AddLabel("web", "a:b"),
    "add a bad label": lambda: requests.AddLabel("web", "ab"),
    "remove a label that is not there": lambda: requests.RemoveLabel("web", "a:b"),
    "restore": lambda: requests.Restore("off", sent()),
    "restore what runs": lambda: requests.Restore("web", sent()),
    "restore nonsense": lambda: requests.Restore("off", nonsense()),
    "delete": lambda: requests.Delete("web"),
    "delete and keep the data": lambda: requests.Delete("off", True),
}


async def prepare(apps: AskedApps, engine: FakeEngine) -> None:
    """Make an app that runs, with two revisions, one that is stopped, and one without container."""
    for number, name in enumerate(("web", "off", "lost")):
        ports = {"ssh_port": 21000 + 2 * number, "http_port": 21001 + 2 * number}
        await apps.create(NewApp(name=name, image=IMAGE, env={"A": "b"}, **ports), ASKER)
    await apps.update("web", AppChanges(env={"A": "z"}), ASKER)
    await apps.stop("off", ASKER)
    lost = await apps.queries.one("lost")
    del engine.state.containers[str(lost.container_id)]
    theirs = msgspec.structs.replace(next(iter(engine.state.containers.values())))
    theirs.id, theirs.name, theirs.labels = "theirs", "theirs", {}
    theirs.ports, theirs.volumes = [], {}
    engine.state.containers["theirs"] = theirs


async def outcome(change: Awaitable[Any]) -> Any:
    """Return what a change returns, or the error that it raises."""
    try:
        return await change
    except (AppError, EngineError) as error:
        return type(error), str(error)


def shown(view: AppView | None) -> Any:
    """Return the part of a record that is known beforehand."""
    if view is None:
        return None
    fields = msgspec.to_builtins(view)
    if "volumes" in fields:  # those of restored data have the operation in their names
        fields["volumes"] = {path: name[:12] for path, name in fields["volumes"].items()}
    return {field: value for field, value in fields.items() if field not in LATER}
