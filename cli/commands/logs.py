"""`logs`: what an app writes on all of its hosts, from the place up to which it was read."""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

import click

from cli.command import choice_options, command, log_options
from cli.errors import DONE, FAILED, CommandError, WrongUsage
from cli.output.output import Format
from cli.output.text import duration_seconds
from cli.reach.choice import AWAY, MAX_AT_ONCE, HostChoice, ask_all, selected_agents
from cli.reach.session import Session
from cli.table import completed
from clients.errors import AgentError, AgentRejected
from clients.message import Node

if TYPE_CHECKING:
    from clients.agent import AgentClient

# A longer line is taken as several.
MAX_LINE_BYTES = 1024 * 1024
# The engine writes a longer line in pieces, each with its time where times are asked for.
PIECE_BYTES = 16 * 1024
TIME = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{9}Z ")
SECOND_CHARS = len("2026-01-31T12:00:00")
MAX_FOLLOWED = 100
MAX_TRIES = 3
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 15.0
# The app may have no container at this moment.
PASSING = (HTTPStatus.CONFLICT, *AWAY)
# What an app is between two of its containers, or two runs of one.
GOES_ON = frozenset(
    {"running", "restarting", "pulling", "creating", "created", "rebuilding", "updating", "paused"}
)


async def log_lines(
    agent: "AgentClient",
    name: str,
    *,
    tail: str,
    since: str | None,
    follow: bool,
    timestamps: bool = False,
) -> AsyncIterator[list[bytes]]:
    """Yield the lines of an app's log as they arrive; AgentError.

    ``since`` is a time, or a duration such as `10m`, which is counted by the clock of the host.
    """
    seconds = duration_seconds(since)
    if seconds is not None:
        await agent.app(name)
        now = time.time() + (agent.clock_offset_seconds or 0)
        since = f"{now - seconds:.0f}"
    pending = b""
    async with agent.logs(
        name, tail=tail, since=since, follow=follow, timestamps=timestamps
    ) as pieces:
        yield []  # it has begun
        async for piece in pieces:
            *lines, pending = (pending + piece).split(b"\n")
            if len(pending) > MAX_LINE_BYTES:
                lines, pending = [*lines, pending], b""
            yield lines
    if pending:
        yield [pending]


def time_and_line(line: bytes) -> tuple[str, str]:
    """Return the time of a line that begins with it, and the line as it was written."""
    found = TIME.match(line)
    if found is None:
        return "", line.decode("utf-8", "replace")
    text, place = line[found.end() :], PIECE_BYTES
    while again := TIME.match(text, place):
        text = text[:place] + text[again.end() :]
        place += PIECE_BYTES
    return found[0].decode().rstrip(), text.decode("utf-8", "replace")


class LogPlace:
    """The place up to which a log was read, from which it is read on after a break.

    The engine knows times to seconds here: what it sends again of the last second is skipped, and
    what stands before the first line that was read.
    """

    def __init__(self) -> None:
        self._first = b""
        self._second = b""
        self._seen = Counter[bytes]()
        self._again = Counter[bytes]()

    @property
    def since(self) -> str | None:
        """Return the time from which to ask now; None if no line was read."""
        return f"{self._second.decode()}Z" if self._second else None

    def resume(self) -> None:
        """Expect what was read of the last second once more."""
        self._again = self._seen.copy()

    def is_new(self, line: bytes) -> bool:
        """Note a line that begins with its time; return whether it was not read before."""
        if self._again[line]:
            self._again[line] -= 1
            return False
        found = TIME.match(line)
        written = found[0] if found else self._first
        if written < self._first:
            return False
        self._first = self._first or written
        second = written[:SECOND_CHARS]
        if second > self._second:
            self._second = second
            self._seen.clear()
        self._seen[line] += 1
        return True


@command(
    click.argument("name", metavar="NAME", help="The app.", shell_complete=completed("app_names")),
    choice_options,
    log_options(tail="20"),
)
def logs(
    session: Session,
    *,
    name: str,
    follow: bool,
    tail: str,
    since: str | None,
    timestamps: bool,
    choice: HostChoice,
) -> int:
    """Print the log of an app on all hosts that have it, or on some of them.

    Each line begins with its host. A host that fails is named on the standard error, and the others
    go on. A connection that breaks is made again, and the log goes on where it was. With -o json,
    each line is an object.

    Examples:
        rollcall logs shop -n 5

        rollcall logs shop web-1 web-2 --since 10m

        rollcall logs shop --label service:web --follow

    """
    if not choice.hosts:
        choice = replace(choice, labels=[*choice.labels, f"app:{name}"])
    log = FleetLog(session, name, Window(tail, since, follow, timestamps))
    return FAILED if asyncio.run(_read(session, choice, log)) else DONE


async def _read(session: Session, choice: HostChoice, log: "FleetLog") -> bool:
    """Read the logs of the chosen hosts; return whether one of them failed."""
    nodes = await selected_agents(session, choice)
    at_once = MAX_FOLLOWED if log.window.follow else MAX_AT_ONCE
    if log.window.follow and len(nodes) > MAX_FOLLOWED:
        raise WrongUsage(
            f"{len(nodes)} hosts have the app, and at most {MAX_FOLLOWED} can be followed;"
            " choose some of them by name or --label"
        )
    answers = await ask_all(nodes, log.read, at_once=at_once)
    return any(each.error is not None for each in answers)


class Window(NamedTuple):
    """Which lines are printed, and how."""

    tail: str
    since: str | None
    follow: bool
    timestamps: bool


class FleetLog:
    """Prints the log of an app on several hosts, each line with its host."""

    def __init__(self, session: Session, name: str, window: Window) -> None:
        self._session = session
        self._name = name
        self.window = window

    async def read(self, node: Node) -> None:
        """Print the log of a host; AgentError, CommandError, which are printed, too."""
        try:
            await self._read(node)
        except WrongUsage:
            raise
        except (AgentError, CommandError) as error:
            self._session.output.note(f"{node.hostname}: {error}")
            raise

    async def _read(self, node: Node) -> None:
        place, has_begun, tries, pause = LogPlace(), False, 0, FIRST_PAUSE_SECONDS
        while True:
            try:
                async with self._session.agent(node) as agent:
                    async for lines in self._lines(agent, place):
                        has_begun, tries, pause = True, 0, FIRST_PAUSE_SECONDS
                        self._print(node.hostname, [each for each in lines if place.is_new(each)])
                    if not (self.window.follow and await self._goes_on(agent)):
                        return
            except AgentError as error:
                tries += 1
                is_final = isinstance(error, AgentRejected) and error.status not in PASSING
                is_last = tries > MAX_TRIES and not self.window.follow
                if is_final or is_last or not has_begun:
                    raise
                if tries == MAX_TRIES:
                    message = f"{node.hostname}: {error}; it is asked until it answers"
                    self._session.output.note(message)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _lines(self, agent: "AgentClient", place: LogPlace) -> AsyncIterator[list[bytes]]:
        """Return the lines behind the place, or those of the window where nothing was read yet."""
        tail, since = self.window.tail, self.window.since
        if place.since is not None:
            tail, since = "all", place.since
            place.resume()
        return log_lines(
            agent, self._name, tail=tail, since=since, follow=self.window.follow, timestamps=True
        )

    async def _goes_on(self, agent: "AgentClient") -> bool:
        """Return whether an app whose log has ended writes on soon."""
        record = await agent.app(self._name)
        return record["desired"] == "running" and record["state"] in GOES_ON

    def _print(self, host: str, lines: Sequence[bytes]) -> None:
        output, found = self._session.output, map(time_and_line, lines)
        if output.form in (Format.JSON, Format.YAML):
            output.lines(
                json.dumps({"host": host, "time": time, "line": line}) for time, line in found
            )
        elif self.window.timestamps:
            output.log(f"{host} | {time} {line}" for time, line in found)
        else:
            output.log(f"{host} | {line}" for _, line in found)
