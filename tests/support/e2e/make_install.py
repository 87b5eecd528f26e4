"""``make install`` on a host without a network, which has its libraries already."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.deb.environment import SOURCE_FOLDERS
from tests.support.e2e.systemd_host import SystemdHost

TOP = Path(__file__).parents[3]
FOLDERS = (*SOURCE_FOLDERS, "docs", "systemd", "deploy")
FILES = (
    *("pyproject.toml", "LICENSE", "CHANGELOG.md"),
    *("requirements-build.txt", "requirements-nats.txt"),
)
FOLDER = "/make-install"
# The script makes its environment by this Python. All is in it already, and its pip does nothing.
PYTHON = f"""\
#!/bin/sh
case "$1 $2" in
"-m venv")
    cp -a {FOLDER}/venv "$5"
    cd "$5"/lib/*/site-packages && rm -r pip setuptools && : >pip.py
    ;;
*) exec /usr/bin/python3 "$@" ;;
esac
"""
MAKE_INSTALL = f"cd {FOLDER}/clone && PYTHON={FOLDER}/python sh systemd/install.sh 2>&1"


def make_install(host: SystemdHost, destdir: Path) -> str:
    """Install on a host what an earlier installation laid out; return what was said.

    ``MAKE_INSTALL`` does it again there.
    """
    host.put(destdir / "opt/rollcall/venv", f"{FOLDER}/venv")
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "python").write_text(PYTHON)
        (folder / "python").chmod(0o755)
        clone = folder / "clone"
        for each in FOLDERS:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(TOP / each, clone / each, ignore=ignored, symlinks=True)
        for each in FILES:
            shutil.copy(TOP / each, clone)
        host.put(folder, FOLDER)
    return host.run(MAKE_INSTALL)
