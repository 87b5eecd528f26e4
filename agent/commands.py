"""What an operator asks on the host itself: ``status`` and ``deregister``."""

import sys
import time
from contextlib import AsyncExitStack

import msgspec

from agent.reporting.deregister import deregister_host
from agent.reporting.group import NO_APPS_KNOWN
from agent.reporting.label_files import LabelFiles
from agent.reporting.registry_status import RegistryStatus
from agent.reporting.status import AgentStatus, StatusFile, StatusView, format_text, is_registered
from agent.settings import AgentConfiguration
from agent.state.deregistration import Deregistration
from agent.state.identity import Identity, IdentityError, machine_id
from agent.state.lock import StateUnusable, lock_holder_pid

FRESH_INTERVALS = 2.5
STILL_RUNNING = """\
The agent still runs its apps. It registers again once it is started again;
to prevent that: systemctl disable --now rollcall-agent
"""
NOT_DEREGISTERED = "nothing was taken out, but the agent is silent until it is started again"
STILL_SENDING = """\
The agent (pid {pid}) has not ended what it was just saying: is its process stopped? Once it goes
on, that may still arrive. Let it go on or end it, and do this again.
"""


def show_status(configuration: AgentConfiguration, *, as_json: bool) -> int:
    """Print what would be sent, to whom, when it was last taken and why not; give the exit status.

    That is 0 where an agent runs and every registry took one of its last two heartbeats, else 1.
    """
    now = time.time()
    view = _status_view(configuration, StatusFile(directory=configuration.state_directory).read())
    if as_json:
        text = msgspec.json.format(msgspec.json.encode(view)).decode()
    else:
        text = "\n".join(format_text(view, now=now))
    sys.stdout.write(f"{text}\n")
    fresh_seconds = FRESH_INTERVALS * configuration.settings.heartbeat_seconds
    return 0 if is_registered(view, now=now, fresh_seconds=fresh_seconds) else 1


def _status_view(configuration: AgentConfiguration, status: AgentStatus | None) -> StatusView:
    agent_id = status.agent_id if status else None
    faults: list[str] = []
    host = configuration.host(
        configuration.settings.node,
        agent_id=agent_id or "",
        label_files=LabelFiles(warn=faults.append),
        warn=faults.append,
    )
    known = (
        {registry_status.url: registry_status for registry_status in status.registries}
        if status
        else {}
    )
    return StatusView(
        hostname=configuration.address.hostname,
        agent_id=agent_id,
        pid=lock_holder_pid(configuration.state_directory),
        started_at=status.started_at if status else None,
        left=Deregistration(directory=configuration.state_directory).is_deregistered(),
        heartbeat=host.heartbeat(status.hosting if status else NO_APPS_KNOWN),
        left_out=faults,
        registries=[
            known.get(connection.url, RegistryStatus(url=connection.url))
            for connection in configuration.registry_connections
        ],
    )


async def deregister(configuration: AgentConfiguration, *, force: bool, wait_seconds: float) -> int:
    """Take this host out of every registry for good; give the exit status, 0 where all did it.

    A running agent says nothing from now on until it is started again; what it is just saying may
    take so long. An agent that is stopped in the middle of that is not waited for without end.
    Raises StateUnusable.
    """
    stopped = _stop_reporting(configuration, wait_seconds=wait_seconds)
    try:
        identity = Identity(directory=configuration.state_directory, machine=machine_id())
    except IdentityError as error:
        raise IdentityError(f"{error}; {NOT_DEREGISTERED}") from error
    async with AsyncExitStack() as stack:
        results = [
            result
            for connection in configuration.registry_connections
            for result in await deregister_host(
                url=connection.url,
                registry=await stack.enter_async_context(connection.client),
                hostname=configuration.address.hostname,
                identity=identity,
                force=force,
            )
        ]
    sys.stdout.writelines(
        f"{result.url}: {result.hostname}: {result.outcome}\n" for result in results
    )
    pid = lock_holder_pid(configuration.state_directory)
    if not stopped:
        sys.stdout.write(STILL_SENDING.format(pid=pid))
    elif pid is not None:
        sys.stdout.write(STILL_RUNNING)
    return 0 if stopped and all(result.done for result in results) else 1


def _stop_reporting(configuration: AgentConfiguration, *, wait_seconds: float) -> bool:
    deregistration = Deregistration(directory=configuration.state_directory)
    try:
        return deregistration.begin(within_seconds=wait_seconds)
    except PermissionError:
        raise
    except OSError as error:
        raise StateUnusable(
            f"{error.filename} cannot be written: {error.strerror}; nothing was taken out"
        ) from error
