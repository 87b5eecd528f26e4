"""Errors of an event loop that nobody handles."""

import asyncio


def errors_told() -> list[str]:
    """Return a list to which the event loop adds each error that nobody handles."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(context["message"])
    )
    return told
