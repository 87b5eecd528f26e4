"""rollcall-registry: the daemon and its commands."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from config import logs
from config.command_line import argument_parsers
from config.load import ConfigError
from httpd.server import listener
from registry import commands, daemon
from registry.errors import StoreOpenError
from registry.message import HostnameInvalid
from registry.settings import RegistryConfiguration

DEFAULT = "/etc/rollcall/registry.yml"
WRONG_SETTINGS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon or a command; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        configuration = RegistryConfiguration(options.config)
        configuration.validate()
        if options.check:
            commands.warn(configuration)
            return 0
        return _run(options, configuration)
    except ConfigError as error:
        sys.stderr.writelines(f"rollcall-registry: {mistake}\n" for mistake in error.mistakes)
        return WRONG_SETTINGS
    except HostnameInvalid as error:
        sys.stderr.write(f"rollcall-registry: {error}\n")
        return WRONG_SETTINGS
    except (StoreOpenError, listener.ListenError) as error:
        sys.stderr.write(f"rollcall-registry: {error}\n")
        return 1


def _run(options: argparse.Namespace, configuration: RegistryConfiguration) -> int:
    match options.command:
        case "node-key":
            commands.node_key(configuration, options.host)
        case "backup":
            commands.backup(configuration, options.file)
        case "restore":
            commands.restore(configuration, options.file)
        case "check":
            commands.check(configuration)
        case "delete":
            return 0 if commands.delete(configuration, options.hosts) else 1
        case _:
            log = configuration.settings.log
            asyncio.run(
                daemon.run(configuration, logs.configure_logging(level=log.level, style=log.format))
            )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser, common = argument_parsers("rollcall-registry", "Who is out there.", DEFAULT)
    parser.set_defaults(command=None)
    subparsers = parser.add_subparsers(title="commands (without one, the registry runs)")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        subparser = subparsers.add_parser(name, parents=[common], help=text, description=text)
        subparser.set_defaults(command=name)
        return subparser

    command("node-key", "print the key that is good for one host alone").add_argument("host")
    command("backup", "copy the store to a new file, also while the registry runs").add_argument(
        "file", type=Path
    )
    command("restore", "put a backup in the store's place, while no registry runs").add_argument(
        "file", type=Path
    )
    command("check", "check the settings and each row of the store")
    command("delete", "delete nodes from the store, while no registry runs").add_argument(
        "hosts", nargs="+", metavar="host"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
