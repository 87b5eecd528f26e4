"""Files of containers, which the engine packs as tars and unpacks, and their owners."""

import io
import posixpath
import re
import tarfile
from collections.abc import AsyncIterator, Collection

from agent.engine.errors import EngineConflict, EngineRejected, ObjectNotFound
from agent.engine.http import EngineClient

# While its disk is busy, the engine may read nothing for longer than its other answers take.
IDLE_SECONDS = 120.0
SMALL_FILE = 1 << 20
MOST_LINKS = 16
MAX_DIGITS = 10  # of a number of 32 bits
# Of passwd(5) and group(5): where the number is, and in passwd that of the user's group.
NUMBER, GROUP = 2, 3
NO_ROOT = re.compile(r"could not find the file / in container", re.IGNORECASE)


async def read_file(client: EngineClient, container_id: str, path: str) -> bytes:
    """Read a small regular file; a link is not followed. EngineConflict for another entry."""
    _, content = await _entry_at(client, container_id, path)
    if content is None:
        raise EngineConflict(f"{path} in the container is not a regular file")
    return content


async def _entry_at(
    client: EngineClient, container_id: str, path: str
) -> tuple[tarfile.TarInfo, bytes | None]:
    """Return the entry of a file or directory itself, and the content of a regular file.

    Raises EngineRejected for an archive that is malformed, or longer than SMALL_FILE.
    """
    query = {"path": path}
    archive = await client.beginning(archive_path(container_id), query=query, most=SMALL_FILE)
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
            if (member := opened.next()) is not None:
                content = opened.extractfile(member) if member.isreg() else None
                return member, None if content is None else content.read()
    except tarfile.TarError as error:
        raise EngineRejected(f"{path} in the container cannot be read") from error
    raise EngineRejected(f"{path} in the container cannot be read")


async def unpack(client: EngineClient, container_id: str, tar: AsyncIterator[bytes]) -> None:
    """Unpack a tar in the root directory, as it comes."""
    try:
        await client.send(
            "PUT",
            archive_path(container_id),
            query={"path": "/"},
            body=tar,
            idle_seconds=IDLE_SECONDS,
        )
    except ObjectNotFound as error:
        # The target of a link in the tar is missing. Newer engines report the root directory
        # instead.
        if NO_ROOT.search(str(error)):
            raise EngineRejected("an entry of the tar needs a file that is missing") from error
        raise


def archive_path(container_id: str) -> str:
    """Return the path of the API for the files of a container."""
    return f"/containers/{container_id}/archive"


async def give_to(
    client: EngineClient, container_id: str, paths: Collection[str], user: str
) -> bool:
    """Give to a user the directories that root owns; return whether the user is known.

    ``user`` is as in USER of a Dockerfile: ``USER[:GROUP]``, each a name or a number.
    """
    ids = await _ids(client, container_id, user)
    if ids is None:
        return False
    if ids != (0, 0):
        for path in paths:
            await _give_one(client, container_id, path, ids)
    return True


async def _give_one(
    client: EngineClient, container_id: str, path: str, ids: tuple[int, int]
) -> None:
    entry, path = await _directory(client, container_id, path)
    if (entry.uid, entry.gid) != (0, 0):  # the image has this directory, with its owner
        return
    entry.name = path.strip("/")
    entry.uid, entry.gid = ids
    entry.uname = entry.gname = ""
    tar = entry.tobuf(tarfile.PAX_FORMAT) + bytes(2 * tarfile.BLOCKSIZE)

    async def whole() -> AsyncIterator[bytes]:
        yield tar

    await unpack(client, container_id, whole())


async def _directory(
    client: EngineClient, container_id: str, path: str
) -> tuple[tarfile.TarInfo, str]:
    """Return the entry of a directory, and its path behind the links of the image.

    The engine mounts a volume behind them, too.
    """
    for _ in range(MOST_LINKS):
        entry, _ = await _entry_at(client, container_id, path)
        if not entry.issym():
            return entry, path
        path = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), entry.linkname))
    raise EngineRejected(f"{path} in the container is behind more than {MOST_LINKS} links")


async def _ids(client: EngineClient, container_id: str, user: str) -> tuple[int, int] | None:
    """Return the numbers of a user and its group, None if a name of them is not known."""
    name, _, group = user.partition(":")
    entry = await _listed(client, container_id, "/etc/passwd", name)
    uid = _number(name) if entry is None else _number(entry[NUMBER])
    if not group:
        gid = 0 if entry is None else _number(entry[GROUP])
    else:
        listed = await _listed(client, container_id, "/etc/group", group)
        gid = _number(group) if listed is None else _number(listed[NUMBER])
    return None if uid is None or gid is None else (uid, gid)


async def _listed(
    client: EngineClient, container_id: str, path: str, name: str
) -> list[str] | None:
    """Return the fields of a user or a group, by its name or by its number."""
    try:
        content = await read_file(client, container_id, path)
    except EngineRejected:  # it is missing, a link, or too large
        return None
    lines = (line.split(":") for line in content.decode("utf-8", "replace").split("\n"))
    entries = [fields for fields in lines if len(fields) > GROUP]
    by_name = [fields for fields in entries if fields[0] == name]
    return next(iter(by_name or [each for each in entries if each[NUMBER] == name]), None)


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    return int(text) if is_number else None
