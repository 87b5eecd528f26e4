"""A file made by a template, and the command that follows a change of it."""

from collections.abc import Awaitable, Callable

from cli.render.errors import RenderError
from cli.render.nodes import NodeSet
from cli.render.output import OutputFile
from cli.render.template import NodeTemplate


class RenderedFile:
    """Written when its content differs; then ``command`` is due, if there is one.

    ``command`` may raise CommandFailed.
    With fewer nodes than ``min_nodes`` it is not written. ``say`` tells of each change.
    """

    def __init__(
        self,
        template: NodeTemplate,
        output: OutputFile,
        *,
        command: Callable[[], Awaitable[None]] | None,
        min_nodes: int,
        say: Callable[[str], None],
    ) -> None:
        self._template = template
        self._output = output
        self._command = command
        self._min_nodes = min_nodes
        self._say = say

    @property
    def is_command_due(self) -> bool:
        """Whether the command has not succeeded since the last change, in an earlier run too."""
        return self._command is not None and self._output.is_command_due

    def write(self, nodes: NodeSet) -> None:
        """Write the file if it differs. Raises RenderError."""
        if len(nodes) < self._min_nodes:
            raise RenderError(
                f"{len(nodes)} nodes pass the filters, and --min-nodes is {self._min_nodes}:"
                " the file stays as it is"
            )
        content = self._template.render(nodes).encode()
        if self._output.replace(content, with_command=self._command is not None):
            self._say(f"{self._output} is written, of {len(nodes)} nodes")

    async def run_command(self) -> None:
        """Run the command. Raises CommandFailed."""
        if self._command is not None:
            await self._command()
            self._output.command_done()
