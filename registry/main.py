"""rollcall-registry: the daemon and its commands."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from clients.message import HostnameInvalid
from config import logs
from config.command_line import CommandLine
from config.load import ConfigError, lines_in_mistakes
from httpd.process import exit_without_threads, run_to_end
from httpd.server.listener import ListenError
from registry import daemon, maintenance
from registry.errors import StoreOpenError, StoreVersionError
from registry.settings import RegistryConfiguration
from runtime.standard_streams import open_closed_streams

DEFAULT = "/etc/rollcall/registry.yml"
WRONG_SETTINGS = WRONG_RELEASE = 2  # systemd does not try again: it would not help
INTERRUPTED = 130
STARTUP_ERRORS = (StoreOpenError, ListenError)
COPY = """Copy all nodes of FROM, a store that no registry uses, to TO, a store without nodes. Both
are URLs as in the setting `store`; the settings' section `nats` is used for both. FROM stays as it
is. A registry that starts on TO warms up. Exit status: 0 if TO has all nodes, 1 if not (the message
says why), 2 if the settings or a URL are wrong or this release does not know the version of a
store, 130 after Ctrl-C (run it again)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon or a command; return the exit status."""
    open_closed_streams()
    options = command_line().parser.parse_args(arguments)
    try:
        with lines_in_mistakes(options.config):
            configuration = RegistryConfiguration(options.config)
            configuration.validate()
            if options.check:
                maintenance.warn(configuration)
                return 0
            return _run(options, configuration)
    except ConfigError as error:
        sys.stderr.writelines(f"rollcall-registry: {mistake}\n" for mistake in error.mistakes)
        return WRONG_SETTINGS
    except HostnameInvalid as error:
        sys.stderr.write(f"rollcall-registry: {error}\n")
        return WRONG_SETTINGS
    except KeyboardInterrupt:
        sys.stderr.write("rollcall-registry: interrupted\n")
        return INTERRUPTED
    except STARTUP_ERRORS as error:
        return _print_error(error)


def _run(options: argparse.Namespace, configuration: RegistryConfiguration) -> int:
    match options.command:
        case "node-key":
            maintenance.node_key(configuration, options.host)
        case "backup":
            maintenance.backup(configuration, options.file)
        case "restore":
            maintenance.restore(configuration, options.file)
        case "copy":
            maintenance.copy(configuration, options.source, options.target)
        case "check":
            maintenance.check(configuration)
        case "delete":
            return 0 if maintenance.delete(configuration, options.hosts) else 1
        case _:
            status = _serve(configuration)
            exit_without_threads(status)
            return status
    return 0


def _serve(configuration: RegistryConfiguration) -> int:
    log = configuration.settings.log
    try:
        run_to_end(
            daemon.run(configuration, logs.configure_logging(level=log.level, style=log.format))
        )
    except STARTUP_ERRORS as error:
        return _print_error(error)
    return 0


def _print_error(error: Exception) -> int:
    sys.stderr.write(f"rollcall-registry: {error}\n")
    return WRONG_RELEASE if isinstance(error, StoreVersionError) else 1


def command_line() -> CommandLine:
    """Return the command line of the daemon, with its commands."""
    line = CommandLine(
        "rollcall-registry",
        "Keeps the hosts that report to it, for operators and Prometheus.",
        DEFAULT,
    )
    command = line.command
    command("node-key", "print the key that is good for one host alone").add_argument("host")
    command("backup", "copy the store to a new file, also while the registry runs").add_argument(
        "file", type=Path
    )
    command("restore", "put a backup in the store's place, while no registry runs").add_argument(
        "file", type=Path
    )
    copying = command("copy", "copy all nodes to another store, while no registry runs", COPY)
    copying.add_argument("source", metavar="FROM", help="the store that has the nodes")
    copying.add_argument("target", metavar="TO", help="the store that is to have them")
    command("check", "check the settings and each row of the store")
    command("delete", "delete nodes; from a file, while no registry runs").add_argument(
        "hosts", nargs="+", metavar="host"
    )
    return line


if __name__ == "__main__":
    sys.exit(main())
