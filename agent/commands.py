"""What an operator asks on the host itself: ``status`` and ``deregister``."""

import sys
import time
from contextlib import AsyncExitStack

import msgspec

from agent.identity import Identity, IdentityError, machine_id
from agent.labels import LabelFiles
from agent.leaving import take_out
from agent.lock import StateUnusable, running_agent
from agent.presence import Presence
from agent.roll_call import NOTHING_KNOWN
from agent.settings import Configuration
from agent.standing import Standing
from agent.status import Status, StatusFile, View, in_words, registered

LATE_HEARTBEATS = 2.5
STILL_RUNNING = """\
The agent still runs its apps. It registers again once it is started again;
to prevent that: systemctl disable --now rollcall-agent
"""
NOT_LEFT = "nothing was taken out, but the agent is silent until it is started again"
NOT_SILENT = """\
The agent (pid {pid}) has not ended what it was just saying: is its process stopped? Once it goes
on, that may still arrive. Let it go on or end it, and do this again.
"""


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
    host = configuration.host(
        configuration.settings.node,
        agent_id=agent_id or "",
        label_files=LabelFiles(complain=faults.append),
        complain=faults.append,
    )
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


async def deregister(configuration: Configuration, *, force: bool, wait_seconds: float) -> int:
    """Take this host out of every registry for good; give the exit status, 0 where all did it.

    A running agent says nothing from now on until it is started again; what it is just saying may
    take so long. An agent that is stopped in the middle of that is not waited for without end.
    Raises StateUnusable.
    """
    silent = _leave(configuration, wait_seconds=wait_seconds)
    try:
        identity = Identity(directory=configuration.state, machine=machine_id())
    except IdentityError as error:
        raise IdentityError(f"{error}; {NOT_LEFT}") from error
    async with AsyncExitStack() as stack:
        farewells = [
            farewell
            for line in configuration.lines
            for farewell in await take_out(
                url=line.url,
                registry=await stack.enter_async_context(line.client),
                hostname=configuration.address.hostname,
                identity=identity,
                force=force,
            )
        ]
    sys.stdout.writelines(f"{bye.url}: {bye.hostname}: {bye.words}\n" for bye in farewells)
    pid = running_agent(configuration.state)
    if not silent:
        sys.stdout.write(NOT_SILENT.format(pid=pid))
    elif pid is not None:
        sys.stdout.write(STILL_RUNNING)
    return 0 if silent and all(farewell.done for farewell in farewells) else 1


def _leave(configuration: Configuration, *, wait_seconds: float) -> bool:
    presence = Presence(directory=configuration.state)
    try:
        return presence.leave(within_seconds=wait_seconds)
    except PermissionError:
        raise
    except OSError as error:
        raise StateUnusable(
            f"{error.filename} cannot be written: {error.strerror}; nothing was taken out"
        ) from error
