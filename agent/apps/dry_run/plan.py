"""Carries out a change on a copy, and returns what it would do."""

from collections.abc import Awaitable, Callable

import msgspec

from agent.apps.containers.containers import UP_STATES
from agent.apps.containers.network import NETWORK
from agent.apps.dry_run.engine import PREFIX, DryEngine
from agent.apps.host import Host
from agent.apps.repository.outcomes import changed_names
from agent.apps.views.apps import AppView
from agent.engine.errors import EngineRefused
from agent.engine.models import InspectedContainer
from agent.engine.protocol import Engine
from agent.model import App

# The time that the engine needs to start a container.
START_SECONDS = 1


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a change would do.

    Attributes:
        app: The record as it would be, None if the app would be gone. What is known only afterwards
            is None in it: the new container, and the id and the volumes of an image that would be
            pulled.
        replaces_container: The app's container would be replaced by another.
        seconds_without_service: The most seconds in which the app would not run, None if it would
            be down afterwards.
        changed: The names of the fields that would change, ``image_id`` and ``labels`` among them;
            None if the app would be made, or gone.
        message: Further notes for the operator.

    """

    app: AppView | None
    replaces_container: bool
    seconds_without_service: int | None
    changed: tuple[str, ...] | None
    message: str | None


async def plan_change(
    host: Host,
    dry: Host,
    engine: DryEngine,
    name: str,
    change: Callable[[], Awaitable[AppView | None]],
) -> Plan:
    """Return what a change of an app would do: ``change`` carries it out on the ``dry`` host.

    Raises:
        AppError, EngineError, StoreError: the change would fail so.

    """
    app = dry.context.repository.find(name)
    before = await _container(host.context.engine, app)
    view = await change()
    would_be = dry.context.repository.find(name)
    after = None if view is None else await _container(engine, would_be)
    return Plan(
        app=None if view is None else _as_known(view, engine),
        replaces_container=after is not None and before is not None and before.id != after.id,
        seconds_without_service=_seconds(engine, before, after),
        changed=_changed(app, would_be),
        message="; ".join(_notes(engine, before, after)) or None,
    )


async def _container(engine: Engine, app: App | None) -> InspectedContainer | None:
    if app is None or app.container_id is None:
        return None
    try:
        return await engine.inspect(app.container_id)
    except EngineRefused:
        return None


def _changed(before: App | None, after: App | None) -> tuple[str, ...] | None:
    return None if before is None or after is None else changed_names(before, after)


def _as_known(view: AppView, engine: DryEngine) -> AppView:
    """Leave out what a container and an image get only when they are made."""
    is_new = view.container_id is not None and view.container_id.startswith(PREFIX)
    if is_new and (not view.image_id or view.image in engine.pulled):
        # The image says which paths of the app are volumes.
        view = msgspec.structs.replace(view, image_id=None, volumes=None)
    return msgspec.structs.replace(view, container_id=None if is_new else view.container_id)


def _seconds(
    engine: DryEngine, before: InspectedContainer | None, after: InspectedContainer | None
) -> int | None:
    if before is None or before.state not in UP_STATES:
        return 0  # there is no service that could be interrupted
    if after is None or after.state not in UP_STATES:
        return None
    stops = [stop.seconds for stop in engine.stops if stop.container_id == before.id]
    return sum(stops) + START_SECONDS if stops else 0


def _notes(
    engine: DryEngine, before: InspectedContainer | None, after: InspectedContainer | None
) -> list[str]:
    notes = [f"the image `{reference}` is pulled" for reference in sorted(engine.pulled)]
    if after is not None and before is not None:
        # Without isolation, the network's name depends on the engine's version.
        was, is_isolated = before.network == NETWORK, after.network == NETWORK
        if was != is_isolated:
            where = "into" if is_isolated else "out of"
            notes.append(f"the app moves {where} the network `{NETWORK}`, which isolates apps")
    return notes
