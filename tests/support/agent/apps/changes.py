"""Changes of apps that a test asks for in a dry run, and then carries out."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from agent.apps.errors import AppError
from agent.apps.runner.runner import Requester
from agent.apps.service.apps import Apps
from agent.apps.views.apps import AppView
from agent.engine.errors import EngineError
from agent.model import AppChanges, HealthCheck, NewApp
from tests.support.agent.engines.fake_engine import DATA_IMAGE, IMAGE, OTHER_IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER
from tests.support.agent.tars import packed

PASSWORD = "correct horse battery"
Ask = Callable[[Apps, Requester], Awaitable[AppView | None]]
# What is known only afterwards: of the container, its image, and of ports that are picked.
LATER = {
    *("container_id", "image_id", "created_at", "ssh_port", "http_port"),
    *("started_at", "finished_at", "exit_code", "oom_killed"),
}


async def sent() -> AsyncIterator[bytes]:
    """Yield a tar of other data."""
    yield packed({"srv": None, "srv/a": b"new"})


async def nonsense() -> AsyncIterator[bytes]:
    """Yield what is no tar."""
    yield b"no tar" * 200


CHANGES: dict[str, Ask] = {
    "create": lambda apps, asker: apps.create(NewApp(name="new", image=IMAGE), asker),
    "create with all": lambda apps, asker: apps.create(
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
        asker,
    ),
    "create a name in use": lambda apps, asker: apps.create(NewApp(name="web", image=IMAGE), asker),
    "create with a bad name": lambda apps, asker: apps.create(NewApp(name="_", image=IMAGE), asker),
    "create with a port in use": lambda apps, asker: apps.create(
        NewApp(name="new", image=IMAGE, http_port=21001), asker
    ),
    "create with too much memory": lambda apps, asker: apps.create(
        NewApp(name="new", image=IMAGE, memory=1 << 20), asker
    ),
    "create with more memory than may be promised": lambda apps, asker: apps.create(
        NewApp(name="new", image=IMAGE, memory=4000), asker
    ),
    "create from an image that is nowhere": lambda apps, asker: apps.create(
        NewApp(name="new", image="nowhere:1"), asker
    ),
    "create under a foreign container's name": lambda apps, asker: apps.create(
        NewApp(name="theirs", image=IMAGE), asker
    ),
    "change the record": lambda apps, asker: apps.update(
        "web", AppChanges(description="Shop"), asker
    ),
    "change limits": lambda apps, asker: apps.update("web", AppChanges(memory=64, cpu=70), asker),
    "change nothing": lambda apps, asker: apps.update("web", AppChanges(memory=32), asker),
    "change env": lambda apps, asker: apps.update("web", AppChanges(env={"A": "c"}), asker),
    "change the image": lambda apps, asker: apps.update(
        "web", AppChanges(image=OTHER_IMAGE), asker
    ),
    "change to an image that is nowhere": lambda apps, asker: apps.update(
        "web", AppChanges(image="nowhere:1"), asker
    ),
    "change to a port in use": lambda apps, asker: apps.update(
        "web", AppChanges(http_port=21003), asker
    ),
    "change to equal ports": lambda apps, asker: apps.update(
        "web", AppChanges(ssh_port=21001), asker
    ),
    "change a stopped app": lambda apps, asker: apps.update(
        "off", AppChanges(env={"A": "c"}), asker
    ),
    "restart": lambda apps, asker: apps.restart("web", asker),
    "start": lambda apps, asker: apps.start("off", asker),
    "start what runs": lambda apps, asker: apps.start("web", asker),
    "start what has lost its container": lambda apps, asker: apps.start("lost", asker),
    "stop": lambda apps, asker: apps.stop("web", asker),
    "stop what is stopped": lambda apps, asker: apps.stop("off", asker),
    "stop what is not there": lambda apps, asker: apps.stop("nobody", asker),
    "rebuild": lambda apps, asker: apps.rebuild("web", asker),
    "rebuild what is stopped": lambda apps, asker: apps.rebuild("off", asker),
    "roll back": lambda apps, asker: apps.rollback("web", None, asker),
    "roll back to the present revision": lambda apps, asker: apps.rollback("web", 2, asker),
    "roll back to a revision that is not there": lambda apps, asker: apps.rollback("web", 9, asker),
    "roll back what was never changed": lambda apps, asker: apps.rollback("off", None, asker),
    "set a password": lambda apps, asker: apps.set_password("web", PASSWORD, asker),
    "set a password of a stopped app": lambda apps, asker: apps.set_password(
        "off", PASSWORD, asker
    ),
    "set a bad password": lambda apps, asker: apps.set_password("web", "x", asker),
    "add a label": lambda apps, asker: apps.add_label("web", "a:b", asker),
    "add a bad label": lambda apps, asker: apps.add_label("web", "ab", asker),
    "remove a label that is not there": lambda apps, asker: apps.remove_label("web", "a:b", asker),
    "restore": lambda apps, asker: apps.restore("off", sent(), asker),
    "restore what runs": lambda apps, asker: apps.restore("web", sent(), asker),
    "restore nonsense": lambda apps, asker: apps.restore("off", nonsense(), asker),
    "delete": lambda apps, asker: apps.delete("web", asker),
    "delete and keep the data": lambda apps, asker: apps.delete("off", asker, keep_data=True),
}


async def prepare(apps: Apps, engine: FakeEngine) -> None:
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
