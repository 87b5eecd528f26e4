"""A server in the place of an agent: it answers what a test says, and keeps what it is asked."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aiohttp import web

# What each record has that clients use.
APP_RECORD: dict[str, Any] = {
    "name": "shop",
    "image": "shop:1",
    "http_port": 20080,
    "ssh_port": 20022,
    "state": "running",
    "desired": "running",
    "healthy": None,
    "crashing": False,
    "message": None,
}
NOT_FOUND = {"message": "there is no such app"}


class Asked(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    body: bytes


class FakeAgent:
    """What the agent answers by method and path: JSON, or a response that a function makes.

    An answer to a path with this very query goes before one to the path.
    """

    def __init__(self) -> None:
        self.url = ""
        self.answers: dict[tuple[str, str], Any] = {}
        self.asked: list[Asked] = []

    def changes(self) -> list[Asked]:
        """Return the requests that are no reads."""
        return [each for each in self.asked if each.method != "GET"]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        self.asked.append(Asked(request.method, request.path_qs, await request.read()))
        always = self.answers.get((request.method, request.path))
        found = self.answers.get((request.method, request.path_qs), always)
        if callable(found):
            response: web.StreamResponse = await found(request)
            return response
        if found is None:
            return web.json_response(NOT_FOUND, status=404)
        return web.json_response(found)


def rejection(status: int, message: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return an answer with an error."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"message": message}, status=status)

    return answer


# The fixture ``fake_agent`` starts one on 127.0.0.1.
StartAgent = Callable[[], Awaitable[FakeAgent]]
