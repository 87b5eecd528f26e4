"""The program of an earlier agent, as after a downgrade of a host."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.support.agent.recorded.earlier_host import RECORDED
from tests.support.machine.archives import unpack


@dataclass(frozen=True)
class EarlierProgram:
    """The last agent of schema 4, unpacked.

    It is in the tree since a clone may lack the history. It was made by `git archive 8ac9aef agent
    config httpd registry/__init__.py registry/message.py registry/client | xz -9e`.
    """

    folder: Path

    def run(self, *, database: Path, engine: str, port: int) -> subprocess.CompletedProcess[str]:
        """Run it until it ends, which it does soon if it refuses the database."""
        settings = {
            "listen": f"127.0.0.1:{port}",
            "keys": [{"name": "ops", "value": "0123456789abcdef", "allow": ["read", "write"]}],
            "docker": {"url": engine},
            "store": f"sqlite:///{database}",
        }
        file = self.folder / "agent.yml"
        file.write_text(yaml.safe_dump(settings))
        return subprocess.run(
            [sys.executable, "-m", "agent.main", "--config", file],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def unpack_earlier_program(folder: Path) -> EarlierProgram:
    """Unpack the program into a folder that is made."""
    unpack(RECORDED / "schema_4" / "program.tar.xz", folder)
    return EarlierProgram(folder)
