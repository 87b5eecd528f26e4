"""A database whose making broke off, by a kill or a full disk, is made at the next start."""

import asyncio
import resource
import sys
from pathlib import Path

from agent.state.store import Store, StoreUnusable

KIB = 1024
# A new database's log takes less than this.
LARGEST = 120 * KIB
PROGRAM = f"""
import asyncio, pathlib, sys
import agent.apps
from {__name__} import main
asyncio.run(main(pathlib.Path(sys.argv[1])))
"""


async def opened(path: Path) -> str:
    """Open and close a database; give the agent's identity, or why it cannot be opened."""
    store = Store(path)
    try:
        return (await store.open()).agent
    except StoreUnusable as error:
        return str(error)
    finally:
        await store.close()


async def main(folder: Path) -> None:
    """Open databases while files may be only so large, and then as large as they like."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in range(0, LARGEST, 4 * KIB):
        path = folder / str(limit) / "agent.db"
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
        first = await opened(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        sys.stdout.write(f"{first}\n{await opened(path)}\n")


async def test_a_first_start_that_breaks_off_anywhere_can_be_repeated(tmp_path: Path) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    told = (await program.communicate())[0].decode().splitlines()
    first, second = told[::2], told[1::2]

    assert len(first) == LARGEST // (4 * KIB)
    assert all("cannot be used now" in each for each in first), "no start broke off in its middle"
    assert not any("damaged" in each for each in told)
    assert all(len(each) == 16 and each.isalnum() for each in second), second
