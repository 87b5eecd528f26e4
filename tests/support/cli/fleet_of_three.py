"""Three hosts whose agents are played, and the command that changes their app."""

import asyncio
import subprocess
from pathlib import Path

from tests.support.cli.fake_agent import FakeAgent
from tests.support.cli.fake_app import FakeApp
from tests.support.cli.process import CommandLine


class Fleet:
    """web-0 to web-2, which all have the app, and the command."""

    def __init__(self, command: CommandLine, agents: list[FakeAgent], port: int) -> None:
        self.agents = agents
        self.apps = [FakeApp(agent, http_port=port) for agent in agents]
        self._command = command

    @property
    def home(self) -> Path:
        """Return the folder in which the command keeps its files."""
        return self._command.contexts.parent

    @property
    def changes(self) -> list[int]:
        """Return how often each host was changed."""
        return [len(agent.changes()) for agent in self.agents]

    async def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return await asyncio.to_thread(self._command.run, *arguments)
