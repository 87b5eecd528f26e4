"""Event loops for tests: about time, and about errors that nobody handles."""

import asyncio


class FastForwardLoop(asyncio.SelectorEventLoop):
    """An event loop on which time passes when a test says so, too."""

    _ahead = 0.0

    def time(self) -> float:
        return super().time() + self._ahead

    async def advance(self, seconds: float) -> None:
        """Advance the clock, and run what is due by then."""
        self._ahead += seconds
        await asyncio.sleep(0.01)


def errors_reported() -> list[str]:
    """Return a list to which the event loop adds each error that nobody handles."""
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["message"])
    )
    return reported
