"""Shows how far a rollout is: a table that lives on a terminal, lines elsewhere."""

from types import TracebackType
from typing import Self

from rich.live import Live

from cli.output.output import Output, make_table
from cli.rollout.model import HostProgress, Rollout

TITLES = ("HOST", "STATE", "MESSAGE")


class Display:
    """Shows a rollout on the standard error; a context manager."""

    def __init__(self, output: Output, rollout: Rollout) -> None:
        self._output = output
        self._rollout = rollout
        is_live = output.err.is_terminal and output.is_for_people
        self._live = Live(console=output.err, transient=True) if is_live else None

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
        """End; what was shown live is removed."""
        if self._live is not None:
            self._live.stop()

    def show(self, host: HostProgress) -> None:
        """Show that the state of a host has changed."""
        if self._live is not None:
            rows = ((each.host, each.state, each.message) for each in self._rollout.hosts)
            self._live.update(make_table(TITLES, rows))
        elif self._output.is_for_people:
            reason = f": {host.message}" if host.message else ""
            self._output.note(f"{host.host}: {host.state}{reason}")
