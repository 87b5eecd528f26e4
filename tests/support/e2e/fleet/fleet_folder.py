"""The folder of a fleet on the control node, made by the script of the role."""

import subprocess
from pathlib import Path

from tests.support.pages import TOP

SCRIPT = TOP / "deploy/ansible/roles/rollcall/files/fleet_folder.sh"
# What OpenSSL makes by default is a CA without keyUsage.
OLD_CA = """\
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \\
  -subj '/CN=rollcall CA' -keyout ca.key -out ca.crt
"""


def make(folder: Path, *machines: str, days: int = 30) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    command = ["sh", str(SCRIPT), str(folder), str(days), *machines]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def make_old_ca(folder: Path) -> None:
    """Make a CA without keyUsage in a folder, which the script then leaves there."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["sh", "-euc", OLD_CA], cwd=folder, capture_output=True, check=True)
