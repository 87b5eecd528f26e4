"""Shows how far a change of an app is, while it is under way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from agent.client.client import AgentClient
from agent.client.errors import AgentError
from cli.output.output import Output
from cli.output.text import visible

LOOK_SECONDS = 0.5


@asynccontextmanager
async def following(output: Output, agent: AgentClient, name: str) -> AsyncIterator[None]:
    """Show the state of an app and the progress of its pull, on a terminal alone."""
    if not (output.err.is_terminal and output.is_for_people):
        yield
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=output.err, transient=True) as progress:
        looking = asyncio.create_task(_look(progress, agent, name))
        try:
            yield
        finally:
            looking.cancel()


async def _look(progress: Progress, agent: AgentClient, name: str) -> None:
    task = progress.add_task(visible(name), total=None)
    while True:
        try:
            record = await agent.app(name)
        except AgentError:
            record = {}  # it does not exist yet, or no more
        change = record.get("progress") or {}
        step = change.get("step") or record.get("state", "...")
        percent = change.get("percent")
        progress.update(
            task,
            description=visible(f"{name}: {step}"),
            total=None if percent is None else 100,
            completed=percent or 0,
        )
        await asyncio.sleep(LOOK_SECONDS)
