"""Which containers and volumes are this agent's own."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec
from structlog.typing import FilteringBoundLogger

from agent.apps.errors import AppOfAnother
from agent.apps.labels import AGENT_LABEL, APP_LABEL, MARK_LABEL, OPERATION_LABEL
from agent.apps.ownership.claims import (
    UNNAMED,
    adopted_by_others,
    withdraw_claims,
)
from agent.apps.repository.repository import AppRepository
from agent.engine.engine import Engine
from agent.engine.errors import EngineRejected
from agent.engine.models import Container
from agent.model import App, ForeignObject
from agent.state.identity import Identity

# Images whose marks are remembered; an id stands for one content.
MOST_IMAGES = 1024
ContainerT = TypeVar("ContainerT", bound=Container)


class Marks:
    """Compares the marks of containers with those of their images."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._of_images: dict[str, str | None] = {}

    async def is_marked(self, container: Container) -> bool:
        """Return whether a container was given a mark of its own.

        One whose image cannot be read counts as not marked: its labels may come from there.
        """
        mark = container.labels.get(MARK_LABEL)
        if not mark:
            return False
        image_id = container.image_id
        if image_id not in self._of_images:
            try:
                image = await self._engine.image(image_id)
            except EngineRejected:
                image = None
            if image is None:
                return False
            if len(self._of_images) >= MOST_IMAGES:
                self._of_images.clear()
            self._of_images[image_id] = image.labels.get(MARK_LABEL)
        return self._of_images[image_id] != mark


class Ownership:
    """Knows which containers and volumes are this agent's own. All others are left alone.

    Its own are the containers that its database names, those that carry one of its identities and a
    mark that their image does not have, and the volumes that carry one of its identities. What
    carries an identity that another agent has adopted belongs to that agent, whatever the database
    says.
    """

    def __init__(
        self,
        engine: Engine,
        repository: AppRepository,
        identity: Identity,
        log: FilteringBoundLogger,
    ) -> None:
        self.foreign: tuple[ForeignObject, ...] = ()
        self._engine = engine
        self._repository = repository
        self._identity = identity
        self._log = log
        self._adopted: Mapping[str, str] = {}
        self._own = identity.all
        self._marks = Marks(engine)
        # Called when other foreign containers or volumes are there than before.
        self.listeners: list[Callable[[], None]] = []
        # Called when `rollcall-agent adopt` has added to the identities.
        self.adopted: list[Callable[[], None]] = []

    @property
    def agent(self) -> str:
        """The identity that is written on what this agent makes."""
        return self._identity.id

    async def guard(self) -> None:
        """Remove the claims that others make on this agent's identities; EngineError."""
        before = self._identity.all
        self._identity.refresh()
        if self._identity.all != before:
            for listener in self.adopted:
                listener()
        for agent in await withdraw_claims(self._engine, self._own, names=self._identity.own):
            self._log.warning("claim of another agent withdrawn", agent=agent)

    async def containers(self) -> list[Container]:
        """List this agent's containers of apps; note those of others, and what others adopted."""
        self._identity.refresh()
        volumes = await self._engine.volumes()
        adopted = adopted_by_others(volumes, names=self._identity.own)
        for identity in self._identity.all & (adopted.keys() - self._adopted.keys()):
            self._log.error(
                "another agent has adopted the apps of this one",
                identity=identity,
                agent=adopted[identity],
            )
        self._adopted = adopted
        self._own = self._identity.all - adopted.keys()
        listed = [
            each
            for each in await self._engine.containers(label=APP_LABEL)
            if each.labels[APP_LABEL]  # others serve no app
        ]
        own = await self.own(listed)
        kept = {each.id for each in own}
        foreign = [await self._foreign(each) for each in listed if each.id not in kept]
        foreign += [
            _foreign("volume", name, labels)
            for name, labels in volumes.items()
            if APP_LABEL in labels and not self.owns_volume(labels)
        ]
        self._note(foreign)
        return own

    async def _foreign(self, container: Container) -> ForeignObject:
        found = _foreign("container", container.name, container.labels)
        if await self._marks.is_marked(container):
            return found
        return msgspec.structs.replace(found, agent=None)  # whom an image names made nothing

    def _note(self, foreign: Iterable[ForeignObject]) -> None:
        found = tuple(foreign)
        for each in found:
            if each not in self.foreign:
                whose = "another" if each.agent else "no"
                self._log.warning(
                    f"{each.kind} of {whose} agent left alone",
                    name=each.name,
                    app=each.app,
                    agent=each.agent,
                )
        if found != self.foreign:
            self.foreign = found
            for listener in self.listeners:
                listener()

    async def own(self, containers: Iterable[ContainerT]) -> list[ContainerT]:
        """Return those of these containers that are this agent's. EngineError."""
        return [each for each in containers if await self.owns(each)]

    async def owns(self, container: Container) -> bool:
        """Return whether a container is this agent's. EngineError."""
        agent = container.labels.get(AGENT_LABEL)
        if agent in self._adopted:
            return False
        if self._repository.has_container(container.id):
            return True
        return agent in self._own and await self._marks.is_marked(container)

    async def check(self, app: str, container: Container) -> None:
        """Check that the container of an app is not another agent's by now; AppOfAnother."""
        if not await self.owns(container):
            agent = container.labels.get(AGENT_LABEL) or UNNAMED
            raise AppOfAnother(
                f"app `{app}` was adopted by the agent with the identity"
                f" `{self._adopted.get(agent, agent)}`; ask that one, or end it and run"
                " `rollcall-agent adopt` here"
            )

    def check_agent(self) -> None:
        """Check that no other agent has adopted this identity; AppOfAnother."""
        if self.agent in self._adopted:
            raise AppOfAnother(
                "the identity of this agent was adopted by the agent"
                f" `{self._adopted[self.agent]}`; end that one and run"
                f" `rollcall-agent adopt {self.agent}` here"
            )

    def owns_volume(self, labels: Mapping[str, str]) -> bool:
        """Return whether the volume with these labels is this agent's."""
        return labels.get(AGENT_LABEL) in self._own

    def is_orphan(self, container: Container) -> bool:
        """Return whether an operation made it that was undone or replaced by another."""
        return self._repository.is_undone(container.labels.get(OPERATION_LABEL, ""))

    def app_of(self, container: Container) -> App | None:
        """Return the app whose name the container carries, None if there is none."""
        return self._repository.find(container.labels.get(APP_LABEL, ""))


def _foreign(kind: str, name: str, labels: Mapping[str, str]) -> ForeignObject:
    return ForeignObject(kind=kind, name=name, app=labels[APP_LABEL], agent=labels.get(AGENT_LABEL))
