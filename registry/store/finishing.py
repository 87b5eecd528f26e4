"""How an operation of a store ends."""

import asyncio

from registry.store.protocol import DoneCallback


class Finishing:
    """A future, and the `done` that is called right before it, as NodeStore says."""

    def __init__(self, done: DoneCallback) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = done
        self.future: asyncio.Future[None] = self._loop.create_future()

    def finish(self, error: Exception | None) -> None:
        """Call `done`, then finish the future with the same outcome."""
        try:
            self._done(error)
        except Exception as defect:
            context = {"message": "defect of the store", "exception": defect}
            self._loop.call_exception_handler(context)
        if error is not None:
            self.give_up(error)
        elif not self.future.done():
            self.future.set_result(None)

    def give_up(self, error: Exception) -> None:
        """Fail the future, unless it was cancelled or failed before; `done` is still to come."""
        if not self.future.done():
            self.future.set_exception(error)
