"""`HOST/NAME`: an app on a host."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from agent.client.client import AgentClient
from cli.connections.session import Session
from cli.connections.trust import AGENT_URL
from cli.errors import NotReached, WrongUsage


class AppName(NamedTuple):
    """The name of an app, and the host that it is on."""

    host: str
    name: str

    def __str__(self) -> str:
        """Return it as operators write it."""
        return f"{self.host}/{self.name}"


def app_name(text: str) -> AppName:
    """Return what `HOST/NAME` names; WrongUsage."""
    host, slash, name = text.partition("/")
    if not (slash and host and name):
        raise WrongUsage(f"{text!a} is not HOST/NAME, such as web-1/shop", hint="rollcall apps")
    return AppName(host, name)


@asynccontextmanager
async def agent_of(session: Session, app: AppName) -> AsyncIterator[AgentClient]:
    """Yield a client of the agent that an app is on; NotReached."""
    node = await session.node(app.host)
    if AGENT_URL not in node.kv:
        raise NotReached(
            f"{node.hostname} has no agent: its kv has no {AGENT_URL}",
            hint=f"{session.rollcall} node {node.hostname}",
        )
    async with session.agent(node) as agent:
        yield agent
