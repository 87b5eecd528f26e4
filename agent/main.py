"""The program rollcall-agent: the daemon, and its commands."""

import argparse
import asyncio
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from agent import daemon, maintenance
from agent.settings import DEFAULT_SETTINGS_FILE, AgentConfiguration, state_directory
from agent.state.database import StoreTooNew, StoreUnusable
from agent.state.files import StateError
from config import logs
from config.command_line import CommandLine
from config.load import ConfigError, lines_in_mistakes
from httpd.process import exit_without_threads, run_to_end
from httpd.server.listener import ListenError
from runtime.standard_streams import open_closed_streams

# After this exit status, systemd does not start the agent again.
PERMANENT = 2
STARTUP_ERRORS = (ListenError, StateError, StoreUnusable)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon or a command and return the exit status.

    0 is success, 1 a failure that standard error explains, 2 one that another try does not mend:
    wrong settings or arguments, or the database of a newer agent.
    """
    open_closed_streams()
    options = command_line().parser.parse_args(arguments)
    try:
        return _run_with_settings(options)
    except STARTUP_ERRORS as error:
        return _print_error(error)
    except PermissionError as error:
        sys.stderr.write(f"rollcall-agent: {error.filename}: {error.strerror}; try it as root\n")
    except (IsADirectoryError, NotADirectoryError) as error:
        sys.stderr.write(f"rollcall-agent: {error.filename}: {error.strerror}\n")
    return 1


def _run_with_settings(options: argparse.Namespace) -> int:
    try:
        with lines_in_mistakes(options.config):
            configuration = AgentConfiguration(options.config)
            if options.check:
                _print_lines(configuration.warnings())
                _print_lines(f"warning: {each}" for each in configuration.unsafe_settings())
                return 0
            return _run(options, configuration)
    except ConfigError as error:
        _print_lines(error.mistakes)
        if options.command == "status" and not options.check:
            _show_last_status(options, error.mistakes)
        return PERMANENT


def _show_last_status(options: argparse.Namespace, mistakes: Sequence[str]) -> None:
    """Print what the agent left, though its settings have mistakes, which are printed already."""
    directory = state_directory(options.config)
    if directory is None:
        return
    try:
        maintenance.show_last_status(directory, mistakes, as_json=options.json)
    except OSError as error:
        _print_lines([f"{error.filename}: {error.strerror}"])


def _run(options: argparse.Namespace, configuration: AgentConfiguration) -> int:
    match options.command:
        case "status":
            return maintenance.show_status(configuration, as_json=options.json)
        case "deregister":
            return asyncio.run(
                maintenance.deregister(
                    configuration, force=options.force, wait_seconds=options.wait
                )
            )
        case "adopt":
            wanted = None if options.all else options.identities
            return asyncio.run(maintenance.adopt(configuration, wanted=wanted))
        case "backup":
            maintenance.backup(configuration, options.file)
            return 0
        case _:
            status = _serve(configuration)
            exit_without_threads(status)
            return status


def _serve(configuration: AgentConfiguration) -> int:
    log = configuration.settings.log
    try:
        run_to_end(
            daemon.run(configuration, logs.configure_logging(level=log.level, style=log.format))
        )
    except STARTUP_ERRORS as error:
        return _print_error(error)
    return 0


def _print_lines(texts: Iterable[str]) -> None:
    sys.stderr.writelines(f"rollcall-agent: {text}\n" for text in texts)


def _print_error(error: Exception) -> int:
    sys.stderr.write(f"rollcall-agent: {error}\n")
    return PERMANENT if isinstance(error, StoreTooNew) else 1


def command_line() -> CommandLine:
    """Return the command line of the daemon, with its commands."""
    line = CommandLine(
        "rollcall-agent",
        "Runs this host's apps, and reports the host to registries.",
        DEFAULT_SETTINGS_FILE,
    )
    command = line.command
    command(
        "status", "show what is reported to the registries, when each last took it, and why not"
    ).add_argument("--json", action="store_true", help="print JSON")
    deregister_parser = command("deregister", "remove this host from the registries for good")
    deregister_parser.add_argument(
        "--force", action="store_true", help="even if another identity has the name"
    )
    deregister_parser.add_argument(
        "--wait",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="how long to wait until a heartbeat that is being sent has ended "
        "(default: %(default)s)",
    )
    adopt_group = command(
        "adopt", "take over the apps on this host's engine whose agents are gone"
    ).add_mutually_exclusive_group()
    adopt_group.add_argument(
        "identities",
        nargs="*",
        default=[],
        metavar="AGENT",
        help="those of the agent with this identity, as `status` shows it; without any, list them",
    )
    adopt_group.add_argument(
        "--all",
        action="store_true",
        help="those of every other agent that does not run now, also of one that is being upgraded",
    )
    command(
        "backup", "copy the agent's database to a new file, also while the agent runs"
    ).add_argument("file", type=Path)
    return line


if __name__ == "__main__":
    sys.exit(main())
