"""`make engines`: runs the tests of the agent on this machine's Docker Engine and on newer ones.

The newer engines are of a later Debian, in a tree that mmdebstrap makes once. Nothing of it is
installed: a program `dockerd`, found before this machine's, starts the one in the tree.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev import engine
from dev.debian import DebianError, debian_root
from dev.test import can_isolate

TOP = Path(__file__).parents[1]
RELEASE = "sid"
PACKAGES = ("docker.io", "iptables", "procps")
TESTS = (
    *("tests/agent", "tests/docs/test_api.py", "tests/docs/test_apps.py"),
    *("tests/e2e/agent", "tests/e2e/reporting/test_apps.py", "tests/e2e/test_app_to_prometheus.py"),
)
DOCKERD = """\
#!/bin/sh
exec sh {become} {tree} "$@" {options}
"""


@dataclass(frozen=True)
class NewerEngine:
    """An engine of the later Debian, with the ``options`` of its dockerd."""

    name: str
    options: str = ""


NEWER_ENGINES = (
    NewerEngine("newer"),
    NewerEngine("newer, containerd image store", "--feature containerd-snapshotter=true"),
)


def main(arguments: Sequence[str]) -> int:
    """Run the tests on one engine after the other; return the first exit status that is not 0."""
    parser = argparse.ArgumentParser(prog="make engines", description=__doc__)
    parser.add_argument(
        "--sample",
        action="store_true",
        help="run only the tests with the mark `engines`, and only on the newer engines",
    )
    options, further = parser.parse_known_args(arguments)
    chosen = ["-m", "engines" if options.sample else "real", *further, *TESTS]
    os.environ["PATH"] = engine.system_path(os.environ)
    if not can_isolate():
        print("rollcall: newer engines need root and unshare, and no DOCKER_HOST", file=sys.stderr)
        return 2
    statuses = [] if options.sample else [_run("this machine's", os.environ, chosen)]
    for newer in NEWER_ENGINES:
        try:
            path = f"{programs(newer)}:{os.environ['PATH']}"
        except (DebianError, OSError) as error:
            print(f"rollcall: no newer engine: {error}", file=sys.stderr)
            return 2
        statuses.append(_run(newer.name, {**os.environ, "PATH": path}, chosen))
    return next(filter(None, statuses), 0)


def programs(newer: NewerEngine) -> Path:
    """Return a folder with the program ``dockerd`` of an engine, which needs root; make it first.

    Raises:
        DebianError: the tree of the later Debian is missing, and cannot be made.

    """
    tree = debian_root(RELEASE, *PACKAGES)
    folder = TOP / "var" / "engines" / newer.name.replace(", ", "-").replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    become = TOP / "dev" / "shell" / "dockerd_in_tree.sh"
    script = DOCKERD.format(
        become=shlex.quote(str(become)), tree=shlex.quote(str(tree)), options=newer.options
    )
    part = folder / f"part-{os.getpid()}"  # workers that run side by side make the same
    part.write_text(script)
    part.chmod(0o755)
    part.rename(folder / "dockerd")
    return folder


def _run(name: str, environ: Mapping[str, str], arguments: Sequence[str]) -> int:
    version = subprocess.run(
        ["dockerd", "--version"], env=environ, capture_output=True, text=True, check=False
    )
    print(f"== {name}: {version.stdout.strip()}", flush=True)
    command = [sys.executable, "-m", "dev.test", *arguments]
    begin = time.monotonic()
    status = subprocess.run(command, env=environ, check=False).returncode
    print(f"== {name}: {time.monotonic() - begin:.0f} s", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
