"""The hosts of a rollout, by their agents."""

import asyncio
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from agent.client.errors import AgentError, AgentRefused, AgentUnreachable
from cli.connections.session import Session
from cli.connections.trust import agent_address
from cli.errors import CommandError
from cli.rollout.model import Bounds, Change, HostProgress
from cli.rollout.runner import HostFailed
from registry.message import Node

LOOK_SECONDS = 0.5
HTTP_SECONDS = 5
STOPPED = ("created", "exited", "dead")
# An agent that starts, or whose engine does, answers so for a moment.
PASSING = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)


class AgentHosts:
    """Changes and checks an app by the agents of its hosts."""

    def __init__(
        self, session: Session, nodes: Mapping[str, Node], *, change: Change, bounds: Bounds
    ) -> None:
        self._session = session
        self._nodes = nodes
        self._change = change
        self._bounds = bounds

    async def change(self, host: HostProgress) -> None:
        """Change the app of a host; HostFailed."""
        fields = None if host.revision is None else {"revision": host.revision}
        try:
            await self._ask(host.host, fields)
        except (AgentError, CommandError) as error:
            raise HostFailed(str(error)) from error

    async def plan(self, host: str) -> dict[str, Any]:
        """Return what a dry run of the change tells; AgentError, CommandError."""
        return await self._ask(host, dry_run=True)

    async def _ask(
        self, host: str, fields: Mapping[str, Any] | None = None, *, dry_run: bool = False
    ) -> dict[str, Any]:
        change = self._change
        async with self._session.agent(self._node(host)) as agent:
            if change.action == "update":
                return await agent.update(change.app, change.fields, dry_run=dry_run)
            return await agent.change(change.app, change.action, fields, dry_run=dry_run)

    async def check(self, host: str) -> None:
        """Wait until the app of a host is as it should be; HostFailed."""
        until = time.monotonic() + self._bounds.check_seconds
        while (problem := await self._problem(host)) is not None:
            if time.monotonic() > until:
                raise HostFailed(f"{problem} after {self._bounds.check_seconds:g} s")
            await asyncio.sleep(LOOK_SECONDS)

    def _node(self, host: str) -> Node:
        if host not in self._nodes:
            raise HostFailed("the registry does not know this host any more")
        return self._nodes[host]

    async def _problem(self, host: str) -> str | None:
        """Return what is not yet as it should be; HostFailed for what does not pass by waiting."""
        try:
            async with self._session.agent(self._node(host)) as agent:
                record = await agent.app(self._change.app)
        except AgentUnreachable as error:
            return str(error)
        except (AgentError, CommandError) as error:
            if isinstance(error, AgentRefused) and error.status in PASSING:
                return str(error)
            raise HostFailed(str(error)) from error
        problem = self._problem_of(record)
        if problem is None and record["desired"] == "running" and self._bounds.http_path:
            return await self._http_problem(host, record["http_port"], self._bounds.http_path)
        return problem

    def _problem_of(self, record: Mapping[str, Any]) -> str | None:
        if self._change.action == "stop":
            return None if record["state"] in STOPPED else f"it is {record['state']}"
        if record["desired"] == "stopped" and self._change.action != "start":
            return None  # it was before, and a change of it starts nothing
        if record["state"] != "running":
            return f"it is {record['state']}: {record['message']}"
        if record.get("health") is not None and record["healthy"] is not True:
            return "it is not healthy"
        return "it is unhealthy" if record["healthy"] is False else None

    async def _http_problem(self, host: str, port: int, path: str) -> str | None:
        """Ask the app itself, without a key, at the address of its agent."""
        address = urlsplit(agent_address(self._node(host), self._session.context).url).hostname
        name = f"[{address}]" if ":" in (address or "") else address
        url = f"http://{name}:{port}{path}"
        limit = aiohttp.ClientTimeout(total=HTTP_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=limit) as client,
                client.get(url, allow_redirects=False) as response,
            ):
                status = response.status
        except (aiohttp.ClientError, TimeoutError) as error:
            return f"{url} does not answer: {str(error) or 'too slow'}"
        return f"{url} answers {status}" if status >= HTTPStatus.BAD_REQUEST else None
