"""Whether the labels of a container are its own, or may come from its image."""

from agent.apps.ownership.labels import MARK_LABEL
from agent.engine.errors import EngineRefused
from agent.engine.models import Container
from agent.engine.protocol import Engine

# Images whose marks are remembered; an id stands for one content.
MOST_IMAGES = 1024


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
            except EngineRefused:
                image = None
            if image is None:
                return False
            if len(self._of_images) >= MOST_IMAGES:
                self._of_images.clear()
            self._of_images[image_id] = image.labels.get(MARK_LABEL)
        return self._of_images[image_id] != mark
