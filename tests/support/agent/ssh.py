"""The SSH server of an app, as its user meets it."""

import asyncio
from typing import Any

import asyncssh

from tests.support.waiting import async_until


async def log_in(record: dict[str, Any], password: str) -> str:
    """Log in as `app` over the app's SSH port; return what `id -un` prints there."""
    async with asyncssh.connect(
        "127.0.0.1",
        record["ssh_port"],
        username="app",
        password=password,
        known_hosts=None,
        client_keys=None,
        agent_path=None,
        config=None,
    ) as connection:
        done = await connection.run("id -un", check=True)
        return str(done.stdout).strip()


async def until_ssh_answers(record: dict[str, Any]) -> None:
    """Wait until the app's SSH server answers."""

    async def answers() -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", record["ssh_port"])
        except OSError:
            return False
        try:
            return (await reader.readline()).startswith(b"SSH-")
        except OSError:
            return False
        finally:
            writer.close()

    await async_until(answers)
