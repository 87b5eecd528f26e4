"""/roll-call: which of the expected hosts report."""

from aiohttp import web

from httpd.bodies import query
from registry.api.queries import PAGE, page
from registry.api.representation import Answers, next_page
from registry.nodes.queries import NodeQueries
from registry.nodes.roll_call import Answer, RollCalls
from registry.responses.readers import Expected
from registry.responses.time_slices import TimeSlices


class RollCallApi:
    """The handler of /roll-call."""

    def __init__(
        self, *, calls: RollCalls, queries: NodeQueries, answers: Answers, slices: TimeSlices
    ) -> None:
        self._calls = calls
        self._queries = queries
        self._answers = answers
        self._slices = slices

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [web.get("/roll-call", self.call)]

    async def call(self, request: web.Request) -> web.StreamResponse:
        """Answer 200 with the hosts that are missing, away or unexpected, or a page of them.

        404 if no hosts are expected; 503 until their list and all nodes are known.
        """
        after, limit = page(query(request, PAGE))
        self._calls.require()
        await self._queries.prepare_read()
        self._calls.require()
        expected = Expected(object(), self._calls.expected_bytes)
        async with self._answers.reading(request, expected=expected) as reader:
            answer = Answer(after=after, limit=limit)
            await self._slices.run(self._calls.read(answer))
            body, next_after = answer.encoded()
            headers = next_page(request, next_after)
            return await self._answers.respond_whole(request, reader, body, headers=headers)
