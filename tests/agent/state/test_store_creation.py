"""A database whose making broke off, by a kill or a full disk, is made at the next start."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.support.agent.database import store_creation


@pytest.mark.slow
async def test_a_first_start_that_breaks_off_anywhere_can_be_repeated(tmp_path: Path) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", store_creation.__name__, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    lines = (await program.communicate())[0].decode().splitlines()
    first, second = lines[::2], lines[1::2]

    assert len(first) == store_creation.LARGEST // store_creation.STEP
    assert all("cannot be used now" in each for each in first), "no start broke off in its middle"
    assert not any("damaged" in each for each in lines)
    assert set(second) == {"0"}
