"""A process that opens databases while its files may be only so large.

Run it with the directory of the databases. It prints two lines for each limit: what the first start
gives, under the limit, and what the second one gives, without it.
"""

import asyncio
import resource
import sys
from pathlib import Path

from agent.state.database import AgentDatabase, StoreUnusable

KIB = 1024
# A first start writes a larger file than this.
LARGEST = 64 * KIB
STEP = 4 * KIB


async def opened(path: Path) -> str:
    """Open and close a database; return how many apps it holds, or why it cannot be opened."""
    store = AgentDatabase(path)
    try:
        return str(len((await store.open()).apps))
    except StoreUnusable as error:
        return str(error)
    finally:
        await store.close()


async def main(folder: Path) -> None:
    """Open each database twice."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in range(0, LARGEST, STEP):
        path = folder / str(limit) / "agent.db"
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
        first = await opened(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        sys.stdout.write(f"{first}\n{await opened(path)}\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
