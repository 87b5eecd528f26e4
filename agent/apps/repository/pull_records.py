"""The records of the agent's pulls: those that have begun, and the images that they brought."""

from collections.abc import Collection, Mapping

import msgspec

from agent.state.database import AgentDatabase
from agent.state.history import Pull


class PullRecords:
    """The pulls that have begun and not ended, and the images that the agent pulled.

    Both are read from memory and written to the store.
    """

    def __init__(
        self,
        store: AgentDatabase,
        *,
        images: Mapping[str, frozenset[str]] | None = None,
        begun: Collection[Pull] = (),
    ) -> None:
        self._store = store
        self._images = dict(images or {})
        self._begun = {pull.reference: pull for pull in begun}

    @property
    def images(self) -> Mapping[str, frozenset[str]]:
        """The tags that images got when the agent pulled them, by the image's id."""
        return self._images

    @property
    def begun(self) -> Mapping[str, Pull]:
        """The pulls whose end was not written, by the reference."""
        return self._begun

    async def begin(self, pull: Pull) -> None:
        """Write down a pull before it is begun; it replaces one of the same reference."""
        await self._store.begin_pull(pull, then=lambda: self._begun.update({pull.reference: pull}))

    async def renew(self, pull: Pull, alive_at: float) -> None:
        """Record that a pull is in progress at this Unix time, unless it was replaced."""
        renewed = msgspec.structs.replace(pull, alive_at=alive_at)
        if self._is_latest(pull):
            self._begun[pull.reference] = renewed
            await self._store.renew_pull(renewed)

    def _is_latest(self, pull: Pull) -> bool:
        known = self._begun.get(pull.reference)
        return known is not None and known.began_at == pull.began_at

    async def end(self, pull: Pull, image_id: str | None, tags: frozenset[str]) -> None:
        """Write down that a pull has ended, and the image that it brought, if any.

        ``tags`` are those that the image got by this pull; those of earlier pulls remain.
        """

        def apply() -> None:
            if self._is_latest(pull):
                del self._begun[pull.reference]
            if image_id is not None:
                self._images[image_id] = self._images.get(image_id, frozenset()) | tags

        await self._store.end_pull(pull, image_id, tags, then=apply)

    async def forget(self, image_ids: Collection[str]) -> None:
        """Forget images that are gone."""

        def apply() -> None:
            for image_id in image_ids:
                self._images.pop(image_id, None)

        await self._store.forget_pulled(image_ids, then=apply)
