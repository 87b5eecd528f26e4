"""What an operator asks on the host itself: ``status`` and ``deregister``."""

import sys
import time
from contextlib import AsyncExitStack

import msgspec

from agent.identity import Identity, machine_id
from agent.leaving import Farewell, take_out
from agent.lock import running_agent
from agent.presence import Presence
from agent.roll_call import NOTHING_KNOWN
from agent.settings import Configuration
from agent.standing import Standing
from agent.status import Status, StatusFile, View, in_words, registered

LATE_HEARTBEATS = 2.5


def show_status(configuration: Configuration, *, as_json: bool) -> int:
    """Print what would be sent, to whom, when it was last taken and why not; give the exit status.

    That is 0 where an agent runs and every registry took one of its last two heartbeats, else 1.
    """
    now = time.time()
    view = _view(configuration, StatusFile(directory=configuration.state).read())
    if as_json:
        text = msgspec.json.format(msgspec.json.encode(view)).decode()
    else:
        text = "\n".join(in_words(view, now=now))
    sys.stdout.write(f"{text}\n")
    fresh_seconds = LATE_HEARTBEATS * configuration.settings.heartbeat_seconds
    return 0 if registered(view, now=now, fresh_seconds=fresh_seconds) else 1


def _view(configuration: Configuration, status: Status | None) -> View:
    agent_id = status.agent_id if status else None
    faults: list[str] = []
    host = configuration.host(agent_id=agent_id or "", complain=faults.append)
    known = {standing.url: standing for standing in status.registries} if status else {}
    return View(
        hostname=configuration.address.hostname,
        agent_id=agent_id,
        pid=running_agent(configuration.state),
        started_at=status.started_at if status else None,
        left=Presence(directory=configuration.state).has_left(),
        heartbeat=host.heartbeat(status.hosting if status else NOTHING_KNOWN),
        left_out=faults,
        registries=[known.get(line.url, Standing(url=line.url)) for line in configuration.lines],
    )


async def deregister(configuration: Configuration, *, force: bool) -> int:
    """Take this host out of every registry for good; give the exit status, 0 where all did it.

    A running agent says nothing from now on until it is started again.
    """
    identity = Identity(directory=configuration.state, machine=machine_id())
    Presence(directory=configuration.state).leave()
    farewells: list[Farewell] = []
    async with AsyncExitStack() as stack:
        for line in configuration.lines:
            farewells += await take_out(
                url=line.url,
                registry=await stack.enter_async_context(line.client),
                hostname=configuration.address.hostname,
                identity=identity,
                force=force,
            )
    for farewell in farewells:
        sys.stdout.write(f"{farewell.url}: {farewell.hostname}: {farewell.words}\n")
    if running_agent(configuration.state) is not None:
        sys.stdout.write(
            "The agent still runs its apps. It registers again once it is started again;\n"
            "to prevent that: systemctl disable --now rollcall-agent\n"
        )
    return 0 if all(farewell.done for farewell in farewells) else 1
