"""`HOST/NAME`: an app on a host."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from difflib import get_close_matches
from http import HTTPStatus
from typing import NamedTuple

from agent.client.client import AgentClient
from agent.client.errors import AgentError, AgentRefused
from cli.connections.session import Session
from cli.connections.trust import AGENT_URL
from cli.errors import CommandError, NotReached, WrongUsage
from cli.output.program import typed

MAX_SHOWN = 3


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
async def agent_of(
    session: Session, app: AppName, *, is_new: bool = False
) -> AsyncIterator[AgentClient]:
    """Yield a client of the agent that an app is on; NotReached.

    Where the agent has no such app and it is not new, CommandError names those that may have been
    meant.
    """
    node = await session.node(app.host)
    if AGENT_URL not in node.kv:
        raise NotReached(
            f"{node.hostname} has no agent: its kv has no {AGENT_URL}",
            hint=typed(f"{session.rollcall} node", node.hostname),
        )
    async with session.agent(node) as agent:
        try:
            yield agent
        except AgentRefused as error:
            is_missing = error.status == HTTPStatus.NOT_FOUND and not is_new
            found = await apps_alike(agent, app.name) if is_missing else []
            if not found:
                raise
            meant = [str(app._replace(name=name)) for name in found]
            raise CommandError(
                f"there is no app {app}; did you mean {' or '.join(meant)}?",
                hint=typed(f"{session.rollcall} app show", meant[0]),
            ) from error


async def apps_alike(agent: AgentClient, name: str) -> list[str]:
    """Return the apps of a host that are named nearly so; none if it has an app of this name."""
    try:
        names = [record["name"] for record in await agent.apps()]
    except AgentError:
        return []
    return [] if name in names else get_close_matches(name, names, n=MAX_SHOWN)
