"""A change of one app: made while its agent lives, shown, and told with what runs if it fails."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

from agent.client.client import AgentClient
from agent.client.errors import AgentError, AgentRefused
from cli.app_names import AppName, agent_of
from cli.changes.settling import wait_until_settled
from cli.connections.session import Session
from cli.connections.silence import TIMEOUTS, Silent, Watch, lives, telling
from cli.connections.wording import in_commands
from cli.errors import CommandError
from cli.output.app_changes import changed_by, failure, outcome, plan_lines
from cli.output.program import typed
from cli.output.progress import following

NOTHING_BEGUN = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
Change = Callable[[AgentClient], Awaitable[dict[str, Any]]]


def carry_out(
    session: Session,
    app: AppName,
    change: Change,
    *,
    dry_run: bool,
    wait: bool | None = None,
    is_new: bool = False,
    fields: Collection[str] = (),
) -> None:
    """Change an app, show how far it is, and print the record, or what a dry run tells.

    Of an update, which gives these ``fields``, it tells those that have changed.

    With ``wait``, CommandError if the app does not stay up afterwards, or does not get healthy.
    Unless it is None, an error of the agent is told with what runs now.
    """

    async def run() -> dict[str, Any]:
        async with agent_of(session, app, is_new=is_new) as agent:
            watch = watch_of(session, agent, app)
            if dry_run:
                return await watch.result(change(agent))
            before = await agent.app(app.name) if fields else {}
            async with following(session.output, agent, app.name):
                made = _made(session, agent, app, change, wait=wait, is_new=is_new)
                answer = await watch.result(made)
                if wait:
                    rollcall = session.rollcall
                    answer = await wait_until_settled(agent, app, answer, rollcall=rollcall)
            return answer | {"changed": changed_by(fields, before, answer)} if fields else answer

    try:
        answer = asyncio.run(run())
    except Silent as error:
        error.hint = typed(f"{session.rollcall} app show", str(app))
        raise
    except KeyboardInterrupt:
        if not dry_run:
            step = typed(f"{session.rollcall} app show", str(app))
            session.output.note("the agent goes on with what it has begun")
            session.output.next_steps(step)
        raise
    _print(session, app, answer, dry_run=dry_run)


def watch_of(
    session: Session, agent: AgentClient, app: AppName, *, timeouts: int = TIMEOUTS
) -> Watch:
    """Return what watches the agent of an app, and gives it up after so many timeouts."""
    return Watch(
        partial(lives, agent),
        timeout_seconds=session.timeout_seconds,
        told=telling(session.output.note, app.host),
        timeouts=timeouts,
    )


def _print(session: Session, app: AppName, answer: dict[str, Any], *, dry_run: bool) -> None:
    if not session.output.is_for_people:
        session.output.value(answer, name=str(app))
    elif dry_run:
        session.output.lines(plan_lines(str(app), answer))
    else:
        session.output.lines([outcome(str(app), answer)])


async def _made(
    session: Session,
    agent: AgentClient,
    app: AppName,
    change: Change,
    *,
    wait: bool | None,
    is_new: bool,
) -> dict[str, Any]:
    """Make a change; where it fails, CommandError with what runs now, if the agent tells it."""
    try:
        return await change(agent)
    except AgentRefused as error:
        if wait is None or error.status in NOTHING_BEGUN:
            raise
        with suppress(AgentError):
            record = await agent.app(app.name)
            told = failure(
                str(app), in_commands(str(error), app.host, rollcall=session.rollcall), record
            )
            is_other = is_new and record["state"] != "failed"
            raise CommandError(told, hint=_next(session, app, is_other=is_other)) from error
        raise


def _next(session: Session, app: AppName, *, is_other: bool) -> str:
    command = f"{session.rollcall} app"
    if is_other:
        return f"{command} update --help"
    return "\n".join(typed(f"{command} {step}", str(app)) for step in ("events", "logs"))
