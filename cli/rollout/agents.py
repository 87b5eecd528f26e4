"""The hosts of a rollout, by their agents."""

import asyncio
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from agent.client.client import AgentClient
from agent.client.errors import AgentError
from cli.connections.session import Session
from cli.connections.trust import agent_address
from cli.errors import CommandError
from cli.rollout.model import Bounds, Change
from cli.rollout.runner import HostFailed
from registry.message import Node

LOOK_SECONDS = 0.5
HTTP_SECONDS = 5
STOPPED = ("created", "exited", "dead")


class AgentHosts:
    """Changes and checks an app by the agents of its hosts."""

    def __init__(
        self, session: Session, nodes: Mapping[str, Node], *, change: Change, bounds: Bounds
    ) -> None:
        self._session = session
        self._nodes = nodes
        self._change = change
        self._bounds = bounds

    async def change(self, host: str) -> None:
        """Change the app of a host; HostFailed."""
        try:
            await self._ask(host, dry_run=False)
        except (AgentError, CommandError) as error:
            raise HostFailed(str(error)) from error

    async def plan(self, host: str) -> dict[str, Any]:
        """Return what a dry run of the change tells; AgentError, CommandError."""
        return await self._ask(host, dry_run=True)

    async def _ask(self, host: str, *, dry_run: bool) -> dict[str, Any]:
        change = self._change
        async with self._session.agent(self._node(host)) as agent:
            if change.action == "update":
                return await agent.update(change.app, change.fields, dry_run=dry_run)
            return await agent.change(change.app, change.action, dry_run=dry_run)

    async def check(self, host: str) -> None:
        """Wait until the app of a host is as it should be; HostFailed."""
        try:
            async with self._session.agent(self._node(host)) as agent:
                record = await self._settled(agent)
        except (AgentError, CommandError) as error:
            raise HostFailed(str(error)) from error
        if record["desired"] == "running" and self._bounds.http_path is not None:
            await self._answers(host, record["http_port"], self._bounds.http_path)

    def _node(self, host: str) -> Node:
        if host not in self._nodes:
            raise HostFailed("the registry does not know this host any more")
        return self._nodes[host]

    async def _settled(self, agent: AgentClient) -> dict[str, Any]:
        """Return the record once the app runs and is healthy, where a check tells; HostFailed."""
        until = time.monotonic() + self._bounds.check_seconds
        while True:
            record = await agent.app(self._change.app)
            problem = self._problem(record)
            if problem is None:
                return record
            if time.monotonic() > until:
                raise HostFailed(f"{problem} after {self._bounds.check_seconds:g} s")
            await asyncio.sleep(LOOK_SECONDS)

    def _problem(self, record: Mapping[str, Any]) -> str | None:
        """Return what is not yet as it should be."""
        if self._change.action == "stop":
            return None if record["state"] in STOPPED else f"it is {record['state']}"
        if record["desired"] == "stopped":
            return None  # it was before, and a change of it starts nothing
        if record["state"] != "running":
            return f"it is {record['state']}: {record['message']}"
        if record.get("health") is not None and record["healthy"] is not True:
            return "it is not healthy"
        return "it is unhealthy" if record["healthy"] is False else None

    async def _answers(self, host: str, port: int, path: str) -> None:
        """Ask the app itself, without a key, at the address of its agent; HostFailed."""
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
            raise HostFailed(f"{url} does not answer: {str(error) or 'too slow'}") from error
        if status >= HTTPStatus.BAD_REQUEST:
            raise HostFailed(f"{url} answers {status}")
