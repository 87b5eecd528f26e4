"""`make deb`: builds the package, in two steps, of which the second one needs no network."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from deploy.deb.package import Release, build, remove_other_versions
from deploy.deb.wheels import ARCHITECTURES, BuildError, download
from deploy.version import TOP, commit


def main(arguments: Sequence[str]) -> int:
    """Download wheels or build the package; return the exit status."""
    options = _parser().parse_args(arguments)
    architecture = ARCHITECTURES[options.architecture]
    try:
        if options.step == "download":
            download(TOP / "requirements-nats.txt", architecture, options.wheels)
            return 0
        epoch = _epoch(os.environ.get("SOURCE_DATE_EPOCH", ""))
        os.environ["SOURCE_DATE_EPOCH"] = str(epoch)  # pip builds by it, too
        release = Release(TOP, architecture, epoch)
        with tempfile.TemporaryDirectory(prefix="rollcall-deb-") as work:
            file = build(release, wheels=options.wheels, folder=options.output, work=Path(work))
    except BuildError as error:
        sys.stderr.write(f"rollcall: {error}\n")
        return 1
    if options.alone:
        remove_other_versions(file)
    sys.stdout.write(f"{file}\n")
    return 0


def _epoch(given: str) -> int:
    """Return the time of a package: the one that is given, that of the commit, or now."""
    if given:
        if not given.isdecimal():
            raise BuildError(f"SOURCE_DATE_EPOCH is {given!r}, not a number of seconds")
        return int(given)
    made = commit(TOP)
    return made.time if made else int(time.time())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.deb", description=__doc__)
    parser.add_argument("step", choices=["download", "build"])
    parser.add_argument("--architecture", choices=[*ARCHITECTURES], required=True)
    parser.add_argument("--wheels", type=Path, required=True, help="the folder of the wheels")
    parser.add_argument("--output", type=Path, default=Path("dist"), help="the package's folder")
    parser.add_argument("--alone", action="store_true", help="remove other versions from there")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
