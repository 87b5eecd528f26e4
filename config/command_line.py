"""The options that both daemons' command lines share."""

import argparse
from pathlib import Path

from config import VERSION


def argument_parsers(
    program: str, description: str, default: str
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """Return the parser of a daemon's command line, and a parent for its subcommands' parsers.

    The first has ``--config``, ``--check`` and ``--version``. With the second, ``--config`` may
    also follow a subcommand. ``default`` is the settings file that is read without ``--config``.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=Path(default),
        help="settings (default: %(default)s)",
    )
    parser.add_argument("--check", action="store_true", help="validate the settings and end")
    parser.add_argument("--version", action="version", version=f"{program} {VERSION}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--config", metavar="FILE", type=Path, default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    return parser, common
