"""An engine that has one image and lets nobody make a container, for an agent that is a process."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from aiohttp import web

from tests.support.agent.engines.fake_docker_api import FakeDockerApi, fake_docker_api

IMAGE = "image:1"
ABSENT_IMAGE = "absent:1"
PATIENCE_SECONDS = 30.0


@contextmanager
def empty_engine() -> Iterator[str]:
    """Yield the URL of an engine that has IMAGE, can pull no other, and gives no container a name.

    So an app is checked and begun, and what was made for it is removed again.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        urls, ready, ended = list[str](), Event(), asyncio.Event()

        async def serve() -> None:
            async with fake_docker_api() as api:
                _fill(api)
                urls.append(api.url)
                ready.set()
                await ended.wait()

        thread = Thread(target=runner.run, args=(serve(),))
        thread.start()
        try:
            assert ready.wait(PATIENCE_SECONDS)
            yield urls[0]
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


def _fill(api: FakeDockerApi) -> None:
    image = {"Id": "sha256:1", "RepoTags": [IMAGE], "RepoDigests": [], "Config": {}}
    api.respond("GET /containers/json", (200, []))
    api.respond("GET /volumes", (200, {"Volumes": []}))
    api.respond("GET /images/json", (200, [image]))
    api.respond(f"GET /images/{IMAGE}/json", (200, image))
    api.handle("GET /events", _nothing_happens)
    api.respond("POST /volumes/create", (201, {"Name": "volume"}))
    taken = {"message": 'Conflict. The container name "/app" is already in use by container "1".'}
    api.respond("POST /containers/create", (409, taken))
    absent = {"message": f"No such image: {ABSENT_IMAGE}"}
    for question in (f"GET /images/{ABSENT_IMAGE}/json", "POST /images/create"):
        api.respond(question, (404, absent))
    api.respond_otherwise((404, {"message": "no such object"}))


async def _nothing_happens(request: web.Request) -> web.StreamResponse:
    """Answer with events that never come."""
    response = web.StreamResponse()
    await response.prepare(request)
    await asyncio.Event().wait()
    return response
