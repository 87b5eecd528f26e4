"""Takes over the apps of agents that are gone, when an operator asks for it."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from agent.apps.labels import AGENT_LABEL, APP_LABEL
from agent.apps.ownership.claims import (
    CLAIM_SECONDS,
    LOOK_SECONDS,
    adopted_by_others,
    claimant,
    grant_claim,
    make_claim,
)
from agent.apps.ownership.ownership import Marks
from agent.engine.engine import Engine
from agent.state.identity import Identity


@dataclass(frozen=True, kw_only=True)
class AdoptionResult:
    """The result for one identity; if ``done``, its apps are this agent's now.

    Else its agent lives, or ``rival`` is another one that adopts it at the same time.
    """

    identity: str
    apps: tuple[str, ...]
    done: bool
    rival: str | None = None


class Adopter:
    """Takes over what other agents have left on the engine.

    ``claim_seconds`` is how long a claim stands before it is granted.
    """

    def __init__(
        self, *, engine: Engine, identity: Identity, claim_seconds: float = CLAIM_SECONDS
    ) -> None:
        self._engine = engine
        self._identity = identity
        self._claim_seconds = claim_seconds
        self._marks = Marks(engine)

    async def foreign(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the apps of each identity that is not this agent's. EngineError."""
        containers = [
            each
            for each in await self._engine.containers(label=APP_LABEL)
            if each.labels[APP_LABEL] and await self._marks.is_marked(each)
        ]
        volumes = await self._engine.volumes()
        # An identity of ours that another agent adopted can be taken back, even if nothing carries
        # it.
        adopted = adopted_by_others(volumes, names=self._identity.own)
        own = self._identity.all - adopted.keys()
        found: dict[str, set[str]] = {each: set() for each in self._identity.all - own}
        for labels in [*(each.labels for each in containers), *volumes.values()]:
            identity = labels.get(AGENT_LABEL)
            if APP_LABEL in labels and identity is not None and identity not in own:
                found.setdefault(identity, set()).add(labels[APP_LABEL])
        return {identity: tuple(sorted(found[identity])) for identity in sorted(found)}

    async def adopt(self, wanted: Collection[str]) -> list[AdoptionResult]:
        """Take over these identities, except those of agents that live; all at the same time.

        Raises:
            EngineError: nothing is adopted, or not all.
            IdentityError: the file of the identity cannot be written; nothing is adopted.

        """
        apps = await self.foreign()
        holders = dict(zip(wanted, await asyncio.gather(*map(self._claim, wanted)), strict=True))
        agent = self._identity.id
        granted = [each for each, holder in holders.items() if holder == agent]
        self._identity.adopt(granted)
        return [
            AdoptionResult(
                identity=each,
                apps=apps.get(each, ()),
                done=holder == agent,
                rival=holder if holder != agent else None,
            )
            for each, holder in holders.items()
        ]

    async def _claim(self, identity: str) -> str | None:
        """Return who has an identity then, None if its own agent lives."""
        claim = await make_claim(self._engine, identity, agent=self._identity.id)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._claim_seconds
        while loop.time() < deadline:
            holder = await claimant(self._engine, claim)
            if holder != claim.agent:  # what is lost is not granted, though the other may go
                await self._engine.remove_volume(claim.volume)
                return holder
            await asyncio.sleep(min(LOOK_SECONDS, self._claim_seconds) / 10)
        return await grant_claim(self._engine, claim)
