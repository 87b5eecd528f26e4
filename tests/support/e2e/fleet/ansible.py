"""The playbook that sets up a fleet, by the inventory that is its example, with other hosts."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.e2e.fleet.hosts import SshAccess
from tests.support.pages import TOP

SECRETS = ("ops", "scraper", "node-secret", "agents.key", "tls.key", "ca.key")
PEM = "-----BEGIN PRIVATE KEY-----\n"
FOLDER = TOP / "deploy" / "ansible"
PLAYBOOK, EXAMPLE = FOLDER / "site.yml", FOLDER / "inventory.example.yml"
RECAP = re.compile(
    r"^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.MULTILINE
)
BATCH = re.compile(r"^PLAY \[Set up the agents\]", re.MULTILINE)


@dataclass(frozen=True)
class Play:
    """What a run of the playbook has done.

    Attributes:
        status: its exit status.
        output: what it wrote.

    """

    status: int
    output: str

    def changed(self) -> dict[str, int]:
        """Return how many tasks have changed something, by host."""
        return {name: int(changed) for name, changed, _, _ in RECAP.findall(self.output)}

    def failed(self) -> set[str]:
        """Return the hosts on which a task failed, or that were not reached."""
        return {name for name, _, *failures in RECAP.findall(self.output) if failures != ["0", "0"]}

    def batches(self) -> int:
        """Return in how many turns the agents were set up."""
        return len(BATCH.findall(self.output))


class Ansible:
    """Runs the playbook, as an operator at the work machine does."""

    def __init__(
        self,
        folder: Path,
        access: SshAccess,
        registry_settings: Mapping[str, Any],
    ) -> None:
        self._folder = folder
        self._access = access
        self._registry_settings = registry_settings
        self._inventory = folder / "inventory.yml"
        self.work = folder / "work"

    def secrets(self) -> list[str]:
        """Return what is in each key of the fleet; of a key of several lines, the first."""
        found = [file.read_text() for name in SECRETS for file in self.work.rglob(name)]
        return [text.removeprefix(PEM).splitlines()[0] for text in found]

    def play(
        self,
        package: Path,
        agent_settings: Mapping[str, Mapping[str, Any]],
        *options: str,
        variables: Mapping[str, Any] | None = None,
    ) -> Play:
        """Bring the fleet to a package, with further settings of each agent, by its name."""
        self._write_inventory(agent_settings)
        given = self._folder / "variables.yml"
        common = {
            "rollcall_folder": str(self.work),
            "rollcall_package": str(package),
            "rollcall_registry_settings": dict(self._registry_settings),
        }
        given.write_text(yaml.safe_dump({**common, **(variables or {})}))
        program = Path(sys.executable).with_name("ansible-playbook")
        command = [
            str(program),
            f"--inventory={self._inventory}",
            f"--extra-vars=@{given}",
            str(PLAYBOOK),
        ]
        done = subprocess.run(
            [*self._access.with_names(), *command, *options],
            cwd=self._folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return Play(done.returncode, done.stdout)

    def _write_inventory(self, agent_settings: Mapping[str, Mapping[str, Any]]) -> None:
        example = yaml.safe_load(EXAMPLE.read_text("utf-8"))
        example["all"]["children"]["rollcall_agents"]["hosts"] = {
            name: {"rollcall_agent_settings": dict(each)} for name, each in agent_settings.items()
        }
        self._inventory.write_text(yaml.safe_dump(example))

    def _environment(self) -> dict[str, str]:
        own = {
            "ANSIBLE_HOME": str(self._folder / "home"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_SSH_ARGS": f"-F {self._access.config}",
            "LC_ALL": "C.UTF-8",
            "no_proxy": "*",
        }
        return {**os.environ, **own}
