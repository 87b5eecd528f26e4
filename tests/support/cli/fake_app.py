"""An app of an agent that is played: each change makes a revision, unless it is rejected."""

from typing import Any

from aiohttp import web

from tests.support.cli.fake_agent import APP_RECORD, FakeAgent

PATH = "/v1/apps/shop"


class FakeApp:
    """The app `shop` of a fake agent, which runs shop:1 as revision 3.

    ``record`` is what the agent reports it. An update, a rebuild or a rollback makes it shop:2 as
    revision 4, unless ``next_revision`` is another. With ``rejection``, a message,
    the agent answers that to each, and the app stays.
    """

    def __init__(self, agent: FakeAgent, *, http_port: int = 1) -> None:
        self.record: dict[str, Any] = {
            **APP_RECORD,
            "health": None,
            "http_port": http_port,
            "revision": 3,
        }
        self.rejection: str | None = None
        self.rejected_with = 409
        self.next_revision = 4
        agent.answers["GET", PATH] = self._show
        for action in ("rebuild", "rollback"):
            agent.answers["PUT", f"{PATH}/{action}"] = self._replace
        agent.answers["PUT", PATH] = self._replace
        for action, state in (("start", "running"), ("restart", "running"), ("stop", "exited")):
            agent.answers["PUT", f"{PATH}/{action}"] = self._to(state)

    async def _show(self, _request: web.Request) -> web.Response:
        return web.json_response(self.record)

    async def _replace(self, _request: web.Request) -> web.Response:
        if self.rejection is not None:
            return web.json_response({"message": self.rejection}, status=self.rejected_with)
        self.record |= {"image": "shop:2", "revision": self.next_revision}
        return web.json_response(self.record)

    def _to(self, state: str) -> Any:
        async def change(_request: web.Request) -> web.Response:
            desired = "running" if state == "running" else "stopped"
            self.record |= {"state": state, "desired": desired}
            return web.json_response(self.record)

        return change
