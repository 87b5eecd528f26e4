"""`render`: a file from the nodes, written anew when they change."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from random import SystemRandom

import click

from cli.command import FILE, command, filter_options
from cli.errors import WrongUsage
from cli.reach.choice import HostChoice, filters_of
from cli.reach.contexts import VARIABLE
from cli.reach.session import Session
from cli.render.file import Follower, RenderedFile, command_line, run_command
from clients.errors import RegistryError
from clients.models import ADDRESS, Query, filter_parameters
from runtime.pauses import Backoff

MAX_PAUSE_SECONDS = 60.0


@command(
    click.argument("template", type=FILE, metavar="TEMPLATE", help="A template of Jinja2."),
    click.argument("out", type=FILE, metavar="OUT", help="The file to write."),
    filter_options,
    click.option("--watch", is_flag=True, help="Go on until Ctrl-C, and write each change."),
    click.option(
        "--on-change",
        metavar="COMMAND",
        help="Run this after the file was changed, again until it ends with 0.",
    ),
    click.option("--shell", is_flag=True, help="Run the command by a shell, not as words."),
    click.option(
        "--min-nodes",
        type=click.IntRange(min=0),
        default=1,
        show_default=True,
        help="Write nothing if fewer nodes are left.",
    ),
    prints=False,
)
def render(
    session: Session,
    *,
    template: Path,
    out: Path,
    choice: HostChoice,
    watch: bool,
    on_change: str | None,
    shell: bool,
    min_nodes: int,
) -> None:
    """Write a file from the nodes, such as the list of a load balancer, by a template.

    The file is replaced as a whole, and only where it differs. While the registry is away or does
    not know all nodes yet, it stays as it is.

    Examples:
        rollcall render upstreams.j2 upstreams.conf --label service:web

        rollcall render upstreams.j2 upstreams.conf --watch --on-change "systemctl reload nginx"

    """
    from cli.render.template import NodeTemplate

    say = Notes(session.output.note)
    file = RenderedFile(
        out,
        render=NodeTemplate(template).render,
        command=_command(on_change, session.environment, shell=shell),
        min_nodes=min_nodes,
        say=say,
    )
    filters = filter_parameters(**filters_of(choice))
    asyncio.run(_render(session, file, filters, say, watch=watch))


class Notes:
    """Prints a note, unless it was the last one."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._last = ""

    def __call__(self, text: str) -> None:
        """Print a note."""
        if text != self._last:
            self._last = text
            self._note(text)


def _command(
    on_change: str | None, environment: Mapping[str, str], *, shell: bool
) -> Callable[[], Awaitable[None]] | None:
    """Return what runs the command of `--on-change`, which does not get the operator's key."""
    if on_change is None:
        if shell:
            raise WrongUsage("--shell says how the command of --on-change is run; it is missing")
        return None
    try:
        words = command_line(on_change, by_shell=shell)
    except ValueError as error:
        raise WrongUsage(f"--on-change: {error}") from error
    without_key = {name: value for name, value in environment.items() if name != VARIABLE}
    return partial(run_command, words, environment=without_key)


async def _render(
    session: Session, file: RenderedFile, filters: Query, say: Notes, *, watch: bool
) -> None:
    from clients.watch import NodeWatch

    def lost(error: RegistryError) -> None:
        if not watch:
            raise error
        say(f"the registry is away, so the file stays as it is: {error}")

    async with session.registry() as registry:
        follower = Follower(
            NodeWatch(registry, [*filters, ADDRESS], lost=lost).events(),
            file,
            backoff=Backoff(max_seconds=MAX_PAUSE_SECONDS, random=SystemRandom()),
            say=say,
        )
        await (follower.forever() if watch else follower.once())
