"""Images that were built for another CPU than the host's: their programs cannot be run."""

from contextlib import suppress

from agent.engine.engine import Engine
from agent.engine.errors import EngineError

# The programs of these also run on a host with the other CPU.
RUN_THERE = frozenset({("386", "amd64"), ("arm", "arm64")})


async def wrong_cpu(engine: Engine, image_id: str) -> str | None:
    """Return that an image was built for another CPU, and what helps; None if it was not.

    A host may run such programs all the same, by emulation. So this explains a failure, and causes
    none.
    """
    with suppress(EngineError):
        image, host = await engine.image(image_id), (await engine.info()).architecture
        built_for = image.architecture if image is not None else ""
        if built_for and host and built_for != host and (built_for, host) not in RUN_THERE:
            return (
                f"its image is built for the CPU {built_for}; use one for {host}, this host's CPU"
            )
    return None
