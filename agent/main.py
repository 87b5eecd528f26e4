"""rollcall-agent: the daemon and its commands."""

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import Sequence

from agent import commands, daemon
from agent.settings import AgentConfiguration
from agent.state.identity import IdentityError
from agent.state.lock import StateInUse, StateUnusable
from agent.state.store import StoreUnusable
from config import logs
from config.command_line import argument_parsers
from config.load import ConfigError
from httpd.server.listener import ListenError

DEFAULT = "/etc/rollcall/agent.yml"
WRONG_SETTINGS = 2
STARTUP_ERRORS = (ListenError, StateInUse, StateUnusable, StoreUnusable, IdentityError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; give the exit status.

    0 is success, 1 a failure that standard error tells about, 2 wrong settings or arguments.
    """
    options = _parser().parse_args(arguments)
    try:
        configuration = AgentConfiguration(options.config)
        return 0 if options.check else _run(options, configuration)
    except ConfigError as error:
        sys.stderr.write(f"rollcall-agent: {error}\n")
        return WRONG_SETTINGS
    except STARTUP_ERRORS as error:
        return _print_error(error)
    except PermissionError as error:
        sys.stderr.write(f"rollcall-agent: {error.filename}: {error.strerror}; try it as root\n")
    except (IsADirectoryError, NotADirectoryError) as error:
        sys.stderr.write(f"rollcall-agent: {error.filename}: {error.strerror}\n")
    return 1


def _run(options: argparse.Namespace, configuration: AgentConfiguration) -> int:
    match options.command:
        case "status":
            return commands.show_status(configuration, as_json=options.json)
        case "deregister":
            return asyncio.run(
                commands.deregister(configuration, force=options.force, wait_seconds=options.wait)
            )
        case _:
            status = _serve(configuration)
            _exit_without_threads(status)
            return status


def _serve(configuration: AgentConfiguration) -> int:
    log = configuration.settings.log
    try:
        asyncio.run(
            daemon.run(configuration, logs.configure_logging(level=log.level, style=log.format))
        )
    except STARTUP_ERRORS as error:
        return _print_error(error)
    return 0


def _print_error(error: Exception) -> int:
    sys.stderr.write(f"rollcall-agent: {error}\n")
    return 1


def _exit_without_threads(status: int) -> None:
    """End now, though a thread may still wait for an engine that says nothing.

    All that is kept is on disk and closed by now; Python itself would wait for the thread.
    """
    if threading.active_count() > 1:
        sys.stderr.flush()
        os._exit(status)


def _parser() -> argparse.ArgumentParser:
    parser, common = argument_parsers(
        "rollcall-agent", "Runs this host's apps and answers the roll call.", DEFAULT
    )
    parser.set_defaults(command=None)
    subparsers = parser.add_subparsers(title="commands (without one, the agent runs)")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        made = subparsers.add_parser(name, parents=[common], help=text, description=text)
        made.set_defaults(command=name)
        return made

    command(
        "status", "show what the registries are told, when they last took it, and why not"
    ).add_argument("--json", action="store_true", help="for programs")
    deregister_parser = command("deregister", "take this host out of the registries for good")
    deregister_parser.add_argument(
        "--force", action="store_true", help="even where another identity holds the name"
    )
    deregister_parser.add_argument(
        "--wait",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="how long to wait until the agent has ended what it says (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
