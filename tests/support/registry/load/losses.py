"""Whether registries still show from memory what the bucket has lost."""

import asyncio
from collections.abc import Sequence

from registry.store.nats.work import CONFIRMED_WITHIN_SECONDS
from tests.support.daemons import Daemon
from tests.support.registry.load.histories import faults_after_loss
from tests.support.registry.load.load import Load, values_on
from tests.support.waiting import async_until

# A registry may be disconnected for so long before its answers say so.
UNNOTICED_SECONDS = 2 * CONFIRMED_WITHIN_SECONDS


class LossCheck:
    """Compares what each registry shows after a loss with what it must have known before.

    What was acknowledged within `unnoticed` seconds before the loss, another registry may not have
    been notified of, and so long a registry may not notice that it is disconnected.
    """

    def __init__(
        self,
        registries: Sequence[Daemon],
        load: Load,
        *,
        within: float,
        unnoticed: float = UNNOTICED_SECONDS,
    ) -> None:
        self._registries = registries
        self._load = load
        self._within = within
        self._unnoticed = unnoticed
        self._known_until = 0.0

    async def begin(self) -> None:
        """Wait until each registry has what was acknowledged some seconds ago, before a loss."""
        await async_until(self._are_current, within=self._within)

    async def faults(self) -> list[str]:
        """Return what registries have forgotten, once each has gone on in the bucket.

        No client may do anything meanwhile, and no node may have been reported again.
        """
        known_until = self._known_until
        await asyncio.sleep(self._unnoticed)
        await async_until(self._are_current, within=self._within)
        found: list[str] = []
        for number, registry in enumerate(self._registries):
            shown = await asyncio.to_thread(values_on, registry)
            found += [
                f"registry {number} after a loss: {fault}"
                for fault in faults_after_loss(self._load.history, shown, known_until)
            ]
        return found

    async def _are_current(self) -> bool:
        """Return whether all registries have all changes of some seconds ago."""
        self._known_until = asyncio.get_running_loop().time() - self._unnoticed
        return await asyncio.to_thread(lambda: all(map(_is_current, self._registries)))


def _is_current(registry: Daemon) -> bool:
    if registry.ask("GET", "/healthz").status_code != 200:
        return False
    return "Rollcall-Store-Age" not in registry.ask("GET", "/nodes").headers
