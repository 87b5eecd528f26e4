"""The options that both daemons' command lines share."""

import argparse
from pathlib import Path

from config import VERSION


class CommandLine:
    """The command line of a daemon: ``--config``, ``--check``, ``--version``, and commands.

    Attributes:
        parser: parses a whole command line; ``command`` is None if it names no command.
        commands: the parser of each command, by its name.

    """

    def __init__(self, program: str, description: str, settings_file: str) -> None:
        self.parser = argparse.ArgumentParser(prog=program, description=description)
        self.parser.add_argument(
            "--config",
            metavar="FILE",
            type=Path,
            default=Path(settings_file),
            help="settings (default: %(default)s)",
        )
        self.parser.add_argument(
            "--check", action="store_true", help="validate the settings and end"
        )
        self.parser.add_argument("--version", action="version", version=f"{program} {VERSION}")
        self.parser.set_defaults(command=None)
        self.commands: dict[str, argparse.ArgumentParser] = {}
        daemon = program.removeprefix("rollcall-")
        self._subparsers = self.parser.add_subparsers(
            title=f"commands (without one, the {daemon} runs)"
        )
        # The option may also follow a command.
        self._common = argparse.ArgumentParser(add_help=False)
        self._common.add_argument(
            "--config", metavar="FILE", type=Path, default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )

    def command(self, name: str, text: str, description: str = "") -> argparse.ArgumentParser:
        """Add a command, and return its parser; ``text`` stands in the list of all commands."""
        added = self._subparsers.add_parser(
            name, parents=[self._common], help=text, description=description or text
        )
        added.set_defaults(command=name)
        self.commands[name] = added
        return added
