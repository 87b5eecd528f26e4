"""Shows how far a rollout is: an overview that lives on a terminal, lines elsewhere."""

from collections import Counter
from types import TracebackType
from typing import Self, get_args

from rich.console import ConsoleDimensions, Group
from rich.live import Live
from rich.text import Text

from cli.output.output import Output, fitted
from cli.output.text import first_line
from cli.rollout.model import HostProgress, HostState, Rollout

TITLES = ("HOST", "STATE", "HEALTH", "MESSAGE")
STATES: tuple[HostState, ...] = get_args(HostState)
ACTIVE: tuple[HostState, ...] = ("changing", "checking")


class Display:
    """Shows a rollout on the standard error; a context manager."""

    def __init__(self, output: Output, rollout: Rollout) -> None:
        self._output = output
        self._rollout = rollout
        is_live = output.err.is_terminal and output.is_for_people
        self._live = self._shown() if is_live else None

    def _shown(self) -> Live:
        """Return the overview, which is drawn anew some times a second."""
        console = self._output.err
        return Live(
            get_renderable=lambda: overview(self._rollout, console.size),
            console=console,
            transient=True,
        )

    def __enter__(self) -> Self:
        """Begin."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End; what was shown live is removed, and why hosts failed is told."""
        if self._live is not None:
            self._live.stop()
            for host in self._rollout.hosts:
                if host.state == "failed":
                    self._tell(host)

    def show(self, host: HostProgress) -> None:
        """Show that the state of a host has changed."""
        if self._live is not None:
            self._live.refresh()
        elif self._output.is_for_people:
            self._tell(host)

    def _tell(self, host: HostProgress) -> None:
        reason = f": {host.message}" if host.message else ""
        self._output.note(f"{host.host}: {host.state}{reason}")


def overview(rollout: Rollout, size: ConsoleDimensions) -> Group:
    """Return how many hosts are in each state, and a row for each that is changed or has failed.

    It has no more rows than the terminal has lines. Those that are changed now come first.
    """
    counts = Counter(host.state for host in rollout.hosts)
    numbers = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    told = [
        host for states in (ACTIVE, ("failed",)) for host in rollout.hosts if host.state in states
    ]
    rows = [
        (host.host, host.state, host.health, first_line(host.message))
        for host in told[: max(size.height - 2, 0)]
    ]
    table = fitted(TITLES, rows, available=size.width) if rows else ()
    return Group(Text(numbers), *table)
