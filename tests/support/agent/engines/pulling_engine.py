"""A container engine in memory with a server of images, which it pulls from and removes again."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from agent.engine.errors import AnswerTooLong, EngineConflict, ImageNotFound, ImageTooLarge
from agent.engine.models import EngineInfo, Image, ImageEvent, ListedImage, PullProgress
from tests.support.agent.engines.fake_engine import FakeEngine, fake_image
from tests.support.agent.engines.fake_state import FakeEngineState


def served_image(image_id: str, digest: str) -> Image:
    """Return an image that a server knows by this digest."""
    return replace(fake_image(image_id), local=False, digest=digest, digests=(digest,))


class PullingEngine(FakeEngine):
    """An engine; ``served`` are the images of the server, by tag, which knows them by digest too.

    ``full_tags`` are the tags that the engine gives where a reference is written otherwise.
    ``stuck`` are the ids of images that the engine fails to remove, ``too_large`` the references of
    those that cannot be read; ``unlistable`` images make the list too long. The disk is that of
    ``data_root``; by default it cannot be measured.
    """

    def __init__(self, state: FakeEngineState | None = None) -> None:
        super().__init__(state)
        self.served = dict[str, Image]()
        self.by_digest = dict[str, Image]()
        self.pulls = list[str]()
        self.full_tags = dict[str, str]()
        self.stuck = set[str]()
        self.too_large = set[str]()
        self.unlistable = False
        self.data_root = "/nowhere"

    async def info(self) -> EngineInfo:
        return replace(await super().info(), data_root=self.data_root)

    async def image(self, reference: str) -> Image | None:
        if reference in self.too_large and reference in self._images:
            raise ImageTooLarge(reference)
        return await super().image(reference)

    async def images(self) -> list[ListedImage]:
        if self.unlistable:
            raise AnswerTooLong("the list is too long")
        return await super().images()

    def serve(self, tags: Mapping[str, str]) -> None:
        """Give tags at the server to images, by their ids."""
        for tag, image_id in tags.items():
            digest = f"{tag.partition(':')[0]}@sha256:{image_id}"
            self.served[tag] = self.by_digest[digest] = served_image(image_id, digest)

    def here(self) -> set[str]:
        """Return the ids of the images of the server that are on this host."""
        ids = {each.id for each in self.by_digest.values()}
        return ids & {each.id for each in self._images.values()}

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        self.pulls.append(reference)
        progress(PullProgress(done_bytes=0, total_bytes=1))
        async with self._step("pull"):
            image = self.served.get(reference) or self.by_digest.get(reference)
            if image is None:
                raise ImageNotFound(f"manifest unknown: {reference}")
            self.bring(reference, image)
            self.note(reference, "pull")

    def note(self, reference: str, action: str) -> None:
        """Remember that this happened to an image now."""
        event = ImageEvent(action=action, time=time.time())
        self.image_history.setdefault(reference, []).append(event)

    async def find_manifest(self, reference: str) -> None:
        if reference not in self.served.keys() | self.by_digest.keys():
            raise ImageNotFound(f"manifest unknown: {reference}")

    def bring(self, reference: str, image: Image) -> None:
        """Put an image on this host, as a pull does by hand too; a tag moves to it."""
        tag = frozenset({self.full_tags.get(reference, reference)} - self.by_digest.keys())
        known = self._images.get(image.id, image)
        for name, each in list(self._images.items()):
            self._images[name] = replace(each, tags=each.tags - tag)
        moved = replace(known, tags=known.tags - tag | tag)
        names = {reference, image.id, *([image.digest] if image.digest else []), *moved.tags}
        self._images |= dict.fromkeys(names, moved)

    async def remove_image(self, reference: str) -> None:
        image = await super().image(reference)
        if image is not None and image.id in self.stuck:
            raise EngineConflict("the image cannot be removed")
        if image is not None and reference == image.id and len(image.tags) > 1:
            raise EngineConflict("the image is referenced in multiple repositories")
        if image is not None and reference in image.tags and len(image.tags) > 1:
            del self._images[reference]
            fewer = replace(image, tags=image.tags - {reference})
            for name, each in list(self._images.items()):
                if each.id == image.id:
                    self._images[name] = fewer
            return
        await super().remove_image(reference)
