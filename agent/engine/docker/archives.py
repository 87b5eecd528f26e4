"""Files of containers, which the engine packs as tars, and unpacks."""

import io
import re
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from agent.engine.api.client import EngineClient
from agent.engine.errors import EngineConflict, EngineRefused, ObjectNotFound

# While its disk is busy, the engine may read nothing for longer than its other answers take.
IDLE_SECONDS = 120.0
SMALL_FILE = 1 << 20
NO_ROOT = re.compile(r"could not find the file / in container", re.IGNORECASE)


async def read_file(client: EngineClient, container_id: str, path: str) -> bytes:
    """Read a small regular file; a link is not followed."""
    archive = await client.beginning(_path(container_id), query={"path": path}, most=SMALL_FILE)
    return file_content(archive, path)


async def first_entry(client: EngineClient, container_id: str, path: str) -> tarfile.TarInfo:
    """Return the entry of a file or directory itself; EngineRefused."""
    archive = await client.beginning(_path(container_id), query={"path": path}, most=SMALL_FILE)
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
            member = opened.next()
    except tarfile.TarError as error:
        raise EngineRefused(f"{path} in the container cannot be read") from error
    if member is None:
        raise EngineRefused(f"{path} in the container cannot be read")
    return member


async def packed(client: EngineClient, container_id: str, path: str) -> AsyncGenerator[bytes]:
    """Yield a directory as a tar, while the engine packs it."""
    stream = client.stream(
        "GET", _path(container_id), query={"path": f"{path}/."}, idle_seconds=IDLE_SECONDS
    )
    async with aclosing(stream) as chunks:
        async for chunk in chunks:
            yield chunk


async def unpack(client: EngineClient, container_id: str, tar: AsyncIterator[bytes]) -> None:
    """Unpack a tar in the root directory, as it comes."""
    try:
        await client.send(
            "PUT",
            _path(container_id),
            query={"path": "/"},
            body=tar,
            idle_seconds=IDLE_SECONDS,
        )
    except ObjectNotFound as error:
        # The target of a link in the tar is missing. Newer engines report the root directory
        # instead.
        if NO_ROOT.search(str(error)):
            raise EngineRefused("an entry of the tar needs a file that is missing") from error
        raise


def _path(container_id: str) -> str:
    return f"/containers/{container_id}/archive"


def file_content(archive: bytes, path: str) -> bytes:
    """Return the content of a regular file from the engine's archive, a tar with one member.

    Raises:
        EngineConflict: the member is not a regular file.
        EngineRefused: the archive is malformed, or was truncated.

    """
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
            member = opened.next()
            content = opened.extractfile(member) if member and member.isreg() else None
            if content is not None:
                return content.read()
    except tarfile.TarError as error:
        raise EngineRefused(f"{path} in the container cannot be read") from error
    raise EngineConflict(f"{path} in the container is not a regular file")
