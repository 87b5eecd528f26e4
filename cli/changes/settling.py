"""Whether an app stays up, and gets healthy, after a change of it."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from cli.errors import CommandError
from cli.output.text import typed
from cli.reach.choice import AWAY, AppName
from clients.errors import AgentError, AgentRejected, AgentUnreachable

if TYPE_CHECKING:
    from clients.agent import AgentClient


LOOK_SECONDS = 0.5
# As long as agents watch a new container, if nothing else is configured.
SETTLE_SECONDS = 5.0
# An app that the engine starts again and again is found out before.
UP_SECONDS = 2 * SETTLE_SECONDS
HEALTHY_SECONDS = 60.0
LAST_LINES = 10
MAX_LOG_BYTES = 2048
# An agent that starts, or whose engine does, answers so for a moment.
PASSING = (HTTPStatus.TOO_MANY_REQUESTS, *AWAY)


class Crashed(Exception):
    """The app was started again: it had ended by itself, or its check had failed."""


class Clock(NamedTuple):
    """The present time in seconds, and how to wait."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


CLOCK = Clock()


class Settling:
    """Judges the records of an app after a change of it, one after the other.

    ``answer`` is the record that the change was answered with: what is restarted later counts.
    """

    def __init__(self, answer: Mapping[str, Any]) -> None:
        self.answer = answer
        self._restarts: int | None = answer.get("restarts")

    def problem(self, record: Mapping[str, Any]) -> str | None:
        """Return what is not yet as it should be, None if nothing; Crashed."""
        restarts = record.get("restarts") or 0
        if self._restarts is None:
            self._restarts = restarts
        if restarts > self._restarts:
            raise Crashed
        reason = f": {record['message']}" if record["message"] else ""
        if record["state"] != "running":
            return f"it is {record['state']}{reason}"
        if record.get("health") is not None and record["healthy"] is not True:
            return f"it is not healthy{reason}"
        return f"it is unhealthy{reason}" if record["healthy"] is False else None


def is_passing(error: Exception) -> bool:
    """Return whether an agent may answer in a moment: it is not reached, or its engine is not."""
    if isinstance(error, AgentRejected):
        return error.status in PASSING
    return isinstance(error, AgentUnreachable)


def is_settled(record: Mapping[str, Any], agent: "AgentClient") -> bool:
    """Return whether an app has been up for long enough, by the clock of its agent."""
    now = time.time() + (agent.clock_offset_seconds or 0)
    began = unix_time(record.get("started_at"))
    # Without it, nobody knows since when.
    return began is None or now - began >= SETTLE_SECONDS


def unix_time(text: Any) -> float | None:
    """Return a time of an agent's answer as Unix time, None if it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


async def wait_until_settled(
    agent: "AgentClient",
    app: AppName,
    answer: Mapping[str, Any],
    *,
    rollcall: str,
    clock: Clock = CLOCK,
) -> dict[str, Any]:
    """Return the record of an app; of one that should run, once it has stayed up and is healthy.

    ``answer`` is that of the change, and ``rollcall`` begins the commands that an error names.

    Raises:
        CommandError: it does not stay up, or does not get healthy, with its last lines; or its
            agent cannot be asked.

    """
    settling, began, longest = Settling(answer), clock.now(), UP_SECONDS
    while True:
        try:
            record = await agent.app(app.name)
        except AgentError as error:
            if not is_passing(error) or clock.now() - began >= longest:
                reason = f"the change is done, but its agent cannot be asked about it: {error}"
                raise CommandError(reason, hint=typed(f"{rollcall} app show", str(app))) from error
            await clock.sleep(LOOK_SECONDS)
            continue
        if record["desired"] != "running":
            return record
        elapsed, longest = clock.now() - began, _longest(record)
        is_over = elapsed >= longest
        try:
            problem = settling.problem(record)
        except Crashed:
            raise _not_well(rollcall, app, await crash(agent, record, answer)) from None
        if problem is None and (is_over or is_settled(record, agent)):
            return record
        if is_over:
            reason = f"after {elapsed:.0f} s: {problem}"
            raise _not_well(rollcall, app, reason + await last_lines(agent, app.name))
        await clock.sleep(LOOK_SECONDS)


def _not_well(rollcall: str, app: AppName, reason: str) -> CommandError:
    return CommandError(reason, hint=typed(f"{rollcall} app logs", str(app)))


def _longest(record: Mapping[str, Any]) -> float:
    """Return how long an app may take, in seconds; as long as its check needs, if it has one."""
    check = record.get("health")
    if not isinstance(check, Mapping):
        return UP_SECONDS if record["healthy"] is None else HEALTHY_SECONDS
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        each = check["interval_seconds"] + check["timeout_seconds"]
        return max(HEALTHY_SECONDS, float(check["start_seconds"] + check["retries"] * each))
    return HEALTHY_SECONDS


async def crash(agent: "AgentClient", record: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """Return how an app ended that does not stay up after a change, and its last lines.

    Its agent restarts one whose check fails, and says so: that has not ended by itself.
    """
    message = record["message"] or ""
    if record.get("health") is not None and message.startswith("unhealthy"):
        reason = f"it does not stay up: it is {message}"
        return reason + await last_lines(agent, record["name"])
    code = await _exit_code(agent, record, answer)
    ended = "it ended by itself" if code is None else f"it ended with exit code {code}"
    if record.get("oom_killed"):
        ended += ", for want of memory"
    reason = f"it does not stay up: {ended}, and is started again and again"
    return reason + await last_lines(agent, record["name"])


async def _exit_code(
    agent: "AgentClient", record: Mapping[str, Any], answer: Mapping[str, Any]
) -> int | None:
    """Return with what an app ended last after a change, None if nobody knows.

    A record has no exit code once the app was started again.
    """
    if record["state"] != "running" and record.get("exit_code") is not None:
        return int(record["exit_code"])
    started = unix_time(answer.get("started_at"))
    if started is None:
        return None
    # A record has whole seconds, and no change is answered within a second of the start. So what
    # ended within the second of the start is the container before.
    since = math.floor(started) + 1
    with suppress(AgentError):
        for event in reversed(await agent.events(record["name"])):
            moment = unix_time(event.get("time"))
            if event.get("exit_code") is not None and moment is not None and moment >= since:
                return int(event["exit_code"])
    return None


async def last_lines(agent: "AgentClient", name: str) -> str:
    """Return what an app wrote last, as the end of a message; empty if that is nothing."""
    kept = b""
    with suppress(AgentError):
        async with agent.logs(name, tail=str(LAST_LINES), since=None, follow=False) as pieces:
            async for piece in pieces:
                kept = (kept + piece)[-MAX_LOG_BYTES - 1 :]
    if len(kept) > MAX_LOG_BYTES:
        kept = kept.partition(b"\n")[2] or kept[1:]  # without the line that is cut off
    text = kept.decode("utf-8", "replace").strip()
    return f"; it wrote:\n{text}" if text else ""
