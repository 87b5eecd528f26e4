"""The hosts of a rollout, by their agents."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from cli.changes.change import SilenceWatch, Silent, watch_of
from cli.changes.settling import (
    LOOK_SECONDS,
    Crashed,
    Settling,
    crash,
    is_passing,
    is_settled,
    last_lines,
    unix_time,
)
from cli.errors import CommandError
from cli.reach.choice import NOT_PERMITTED
from cli.reach.session import Session
from cli.reach.trust import Origin, agent_address
from cli.rollout.rollout import (
    DOWN,
    AppNow,
    Bounds,
    Cause,
    HostFailed,
    HostProgress,
    NotBegun,
    RolloutChange,
    app_now,
)
from clients.errors import AgentError, AgentNotConnected, AgentRejected
from clients.message import Node

if TYPE_CHECKING:
    from clients.agent import AgentClient


HTTP_SECONDS = 5
# An agent's clock is known to a second, and so is the time of an answer.
CLOCK_SECONDS = 2
# Rejections for which the key or the host is to blame, whatever the fields are.
OF_HOST = (*NOT_PERMITTED, HTTPStatus.INSUFFICIENT_STORAGE)


class Look(NamedTuple):
    """What a look at an app has found: what is wrong, and whether it has been up for long.

    With ``is_silent``, only the agent could not be asked.
    """

    problem: str | None
    is_settled: bool
    is_silent: bool = False


class AgentHosts:
    """Changes and checks an app by the agents of its hosts."""

    def __init__(
        self, session: Session, nodes: Mapping[str, Node], *, change: RolloutChange, bounds: Bounds
    ) -> None:
        self._session = session
        self._nodes = nodes
        self._change = change
        self._bounds = bounds
        self._invalid: set[str] = set()
        self._settling: dict[str, Settling] = {}
        self._watches: dict[str, SilenceWatch] = {}

    @property
    def invalid(self) -> AbstractSet[str]:
        """The hosts whose agents have rejected what the change says; nothing has changed there."""
        return self._invalid

    @property
    def silent(self) -> list[str]:
        """The hosts that are changed now and whose agents do not answer."""
        return [host for host, watch in self._watches.items() if watch.is_silent]

    async def change(self, host: HostProgress) -> None:
        """Change the app of a host; HostFailed, and NotBegun if its agent cannot be asked."""
        fields = None if host.revision is None else {"revision": host.revision}
        began = time.time()
        try:
            answer = await self._ask(host.host, fields)
            host.now = app_now(answer)
            self._settling[host.host] = Settling(answer)
        except Silent as error:
            raise HostFailed(str(error)) from error
        except (AgentNotConnected, CommandError) as error:
            raise NotBegun(str(error)) from error
        except AgentError as error:
            is_invalid = isinstance(error, AgentRejected) and error.status == HTTPStatus.BAD_REQUEST
            if is_invalid and self._change.action == "update":
                self._invalid.add(host.host)
            host.now, ended = await self._after(host.host, began)
            # The agent's own answer has the reason already.
            raise HostFailed(
                f"{error}{ended if is_passing(error) else ''}", cause=self._cause(error)
            ) from error

    def _cause(self, error: AgentError) -> Cause | None:
        """Return "app" where the agent rejected or failed an update: its fields are to blame."""
        if self._change.action != "update" or is_passing(error):
            return None
        is_of_host = (
            isinstance(error, AgentRejected) and error.status in OF_HOST and not error.is_of_setting
        )
        return None if is_of_host else "app"

    async def _after(self, host: str, began: float) -> tuple[AppNow | None, str]:
        """Return what an app is, and by its events how the change ended, as an end of a message.

        None and nothing if its agent cannot be asked.
        """
        app, now, ended = self._change.app, None, ""
        with suppress(AgentError, CommandError):
            async with self._session.agent(self._node(host)) as agent:
                now = app_now(await agent.app(app))
                began += (agent.clock_offset_seconds or 0) - CLOCK_SECONDS
                ended = _ended(await agent.events(app), self._change.action, began)
        return now, ended

    async def plan(self, host: str) -> dict[str, Any]:
        """Return the plan of a dry run; AgentError, CommandError."""
        return await self._ask(host, dry_run=True)

    async def _ask(
        self, host: str, fields: Mapping[str, Any] | None = None, *, dry_run: bool = False
    ) -> dict[str, Any]:
        change = self._change
        async with self._session.agent(self._node(host)) as agent:
            watch = self._watches[host] = watch_of(self._session, agent, host)
            if change.action == "update":
                asked = agent.update(change.app, change.fields, dry_run=dry_run)
            else:
                asked = agent.change(change.app, change.action, fields, dry_run=dry_run)
            try:
                return await watch.result(asked)
            finally:
                del self._watches[host]

    async def check(self, progress: HostProgress) -> None:
        """Wait until the app of a host is as it should be, and stays so; HostFailed.

        An app that fails is rolled back, if the bounds say so.
        """
        try:
            await self._until_well(progress)
            await self._soak(progress)
        except HostFailed as error:
            if not self._bounds.rolls_back:
                raise
            message = f"{await self._roll_back(progress)}; {error}"
            raise HostFailed(message, cause=error.cause) from error

    async def _soak(self, progress: HostProgress) -> None:
        """Watch an app that is well; HostFailed once it is not. The agent may be away meanwhile."""
        began = time.monotonic()
        until = began + self._bounds.soak_seconds
        while (left := until - time.monotonic()) > 0:
            progress.health = f"well, for {left:.0f} s more"
            await asyncio.sleep(min(LOOK_SECONDS, left))
            look = await self._look(progress, self._settling[progress.host])
            if look.problem is not None and (not look.is_silent or time.monotonic() > until):
                reason = f"{time.monotonic() - began:.0f} s after the check: {look.problem}"
                raise HostFailed(reason + await self._last_lines(progress.host), cause="check")

    async def _roll_back(self, progress: HostProgress) -> str:
        """Roll back the app of a host that failed; return what came of it.

        It stays as it is where it has another revision than this rollout made.
        """
        host, name = progress.host, self._change.app
        before = None if progress.before is None else progress.before.revision
        made = self._settling[host].answer.get("revision")
        if before is None or made is None or before == made:
            return "not rolled back, since the change made no revision"
        progress.health = "rolling back"
        try:
            async with self._session.agent(self._node(host)) as agent:
                found = (await agent.app(name)).get("revision")
                if found != made:
                    return f"not rolled back, since revision {found} is not that of this rollout"
                answer = await agent.change(name, "rollback", {"revision": before})
        except (AgentError, CommandError) as error:
            is_lost = is_passing(error) or isinstance(error, CommandError)
            what = "unknown, and not rolled back" if is_lost else "the rollback failed"
            return f"{what}: {error}"
        progress.now, progress.is_rolled_back = app_now(answer), True
        return f"rolled back to revision {before}"

    async def _until_well(self, progress: HostProgress) -> None:
        host = progress.host
        settling = self._settling[host]
        until = time.monotonic() + self._bounds.check_seconds
        while True:
            look = await self._look(progress, settling)
            progress.health = look.problem or ("well" if look.is_settled else "up")
            is_over = time.monotonic() > until
            if look.problem is None and (is_over or look.is_settled):
                return
            if look.problem is not None and is_over:
                reason = f"after {self._bounds.check_seconds:g} s: {look.problem}"
                raise HostFailed(reason + await self._last_lines(host), cause="check")
            await asyncio.sleep(LOOK_SECONDS)

    def _node(self, host: str) -> Node:
        if host not in self._nodes:
            raise NotBegun("the registry does not know this host any more")
        return self._nodes[host]

    async def _look(self, progress: HostProgress, settling: Settling) -> Look:
        """Return what is not yet as it should be; HostFailed for what does not pass by waiting."""
        host = progress.host
        try:
            async with self._session.agent(self._node(host)) as agent:
                record = await agent.app(self._change.app)
                progress.now = app_now(record)
                problem = await self._problem(agent, record, settling)
                is_done = self._is_left(record) or is_settled(record, agent)
        except (AgentError, CommandError) as error:
            if is_passing(error):
                return Look(str(error), is_settled=False, is_silent=True)
            raise HostFailed(str(error)) from error
        if problem is None and record["desired"] == "running" and self._bounds.http_path:
            problem = await self._http_problem(host, record["http_port"], self._bounds.http_path)
        return Look(problem, is_settled=is_done)

    def _is_left(self, record: Mapping[str, Any]) -> bool:
        """Return whether an app is not to run: it was stopped before, or is now."""
        action = self._change.action
        return action == "stop" or (
            record["desired"] == "stopped" and action not in {"start", "restart"}
        )

    async def _problem(
        self, agent: "AgentClient", record: Mapping[str, Any], settling: Settling
    ) -> str | None:
        if self._change.action == "stop":
            return None if record["state"] in DOWN else f"it is {record['state']}"
        if self._is_left(record):
            return None
        try:
            return settling.problem(record)
        except Crashed:
            message = await crash(agent, record, settling.answer)
            raise HostFailed(message, cause="app") from None

    async def _last_lines(self, host: str) -> str:
        """Return what the app wrote last, as the end of a message."""
        if self._change.action == "stop":
            return ""
        with suppress(AgentError, CommandError):
            async with self._session.agent(self._node(host)) as agent:
                return await last_lines(agent, self._change.app)
        return ""

    async def _http_problem(self, host: str, port: int, path: str) -> str | None:
        """Ask the app itself, without a key, at the address of its agent."""
        import aiohttp

        agent = agent_address(self._node(host), self._session.context)
        url = str(Origin("http", agent.host, port, path))
        limit = aiohttp.ClientTimeout(total=HTTP_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=limit) as client,
                client.get(url, allow_redirects=False) as response,
            ):
                status = response.status
        except (aiohttp.ClientError, TimeoutError) as error:
            return f"{url} does not answer: {_why(error)}"
        return f"{url} answers {status}" if status >= HTTPStatus.BAD_REQUEST else None


def _why(error: Exception) -> str:
    """Return why there was no answer, without the address: who reads it has the URL."""
    if isinstance(error, TimeoutError):
        return f"it took more than {HTTP_SECONDS} s"
    if isinstance(error, OSError):
        number = error.errno or 0
        # Those of the resolver are negative.
        return os.strerror(number) if number > 0 else error.strerror or "no connection"
    return str(error) or type(error).__name__


def _ended(events: Sequence[Mapping[str, Any]], action: str, since: float) -> str:
    """Return how the last such operation ended, as the end of a message; empty if none has."""
    for event in reversed(events):
        moment = unix_time(event.get("time"))
        if event.get("action") == action and event.get("outcome") and (moment or 0) >= since:
            why = f": {event['message']}" if event.get("message") else ""
            return f"; by its events, the {action} is {event['outcome']}{why}"
    return ""
