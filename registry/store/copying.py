"""Moving nodes from one store to another, while registries use the first."""

import asyncio
import math
import time
from collections.abc import Callable

from registry.errors import StoreOpenError
from registry.store.protocol import CopyBackend, CopySource, CopyTarget

# How often to check whether registries still use the source.
LOOK_SECONDS = 1.0
# A registry that is restarted by systemd, or loses its NATS server for a moment, is back within it.
UNUSED_SECONDS = 6.0
# How often to print that registries still use the source.
WORD_SECONDS = 60.0
# Between two passes over all nodes, for the sake of what else runs there.
PAUSES_PER_PASS = 3
MAX_PAUSE_SECONDS = 10.0


async def copy(
    source: CopyBackend,
    target: CopyBackend,
    tell: Callable[[str], None],
    *,
    unused_seconds: float = UNUSED_SECONDS,
    look_seconds: float = LOOK_SECONDS,
) -> int:
    """Copy all nodes, and follow changes until no registry uses the source; return how many.

    It looks every `look_seconds`, and ends once the source was unused for `unused_seconds`. Then
    the target holds exactly what the source held, and registries refuse the source. If the copy is
    interrupted, they refuse the target, and the copy can be started again. Raises StoreOpenError.
    """
    if str(source) == str(target):
        raise StoreOpenError(f"{source} cannot be copied into itself")
    async with (
        source.copy_source() as old,
        target.copy_target(old.name, resume=old.was_moved) as new,
    ):
        await _follow(old, new, tell, unused_seconds, look_seconds)
        snapshot = await old.snapshot()
        await new.write(snapshot, final=True)
        # In this order: a copy that is killed in between leaves no store that could be used
        # although another one is used, too.
        await old.retire()
        await new.complete(snapshot)
    return len(snapshot.rows)


async def _follow(
    old: CopySource,
    new: CopyTarget,
    tell: Callable[[str], None],
    unused_seconds: float,
    look_seconds: float,
) -> None:
    """Copy what changes until the source is taken."""
    unused_since, next_pass, next_word = math.inf, 0.0, math.inf
    while True:
        users, now = await old.users(), time.monotonic()
        unused_since = math.inf if users else min(unused_since, now)
        if now - unused_since >= unused_seconds and await old.take(new.name):
            return
        if now >= next_pass:
            snapshot = await old.snapshot()
            await new.write(snapshot, final=False)
            ended = time.monotonic()
            next_pass = ended + min((ended - now) * PAUSES_PER_PASS, MAX_PAUSE_SECONDS)
            if next_word == math.inf:
                next_word = ended + WORD_SECONDS
                tell(
                    f"{len(snapshot.rows)} nodes copied; following the changes of {old.name.text}"
                    " until no registry uses it: stop what uses it to go on"
                )
        if users and now >= next_word:
            next_word = now + WORD_SECONDS
            tell(f"{old.name.text} is still used, by {users} in all: registries or other commands")
        await asyncio.sleep(look_seconds)
