"""A program that opens a store and changes all its nodes; it prints how many there are."""

import asyncio
import sys
from pathlib import Path

from tests.support.registry.stores.sqlite_store import DOCUMENT, ignore, open_store


async def change_all(path: Path) -> int:
    """Change all nodes of a store; return their number."""
    async with open_store(path) as (store, rows):
        changed = [row._replace(document=DOCUMENT) for row in rows]
        await asyncio.gather(*[store.put(row, ignore) for row in changed])
        return len(rows)


if __name__ == "__main__":
    sys.stdout.write(f"{asyncio.run(change_all(Path(sys.argv[1])))}\n")
