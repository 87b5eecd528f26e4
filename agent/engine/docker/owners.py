"""The owners of directories in a container that was not started yet."""

import posixpath
import tarfile
from collections.abc import AsyncIterator, Collection

from agent.engine.api.client import EngineClient
from agent.engine.docker.archives import first_entry, read_file, unpack
from agent.engine.errors import EngineRefused

MOST_LINKS = 16
MAX_DIGITS = 10  # of a number of 32 bits
# Of passwd(5) and group(5): where the number is, and in passwd that of the user's group.
NUMBER, GROUP = 2, 3


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
        entry = await first_entry(client, container_id, path)
        if not entry.issym():
            return entry, path
        path = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), entry.linkname))
    raise EngineRefused(f"{path} in the container is behind more than {MOST_LINKS} links")


async def _ids(client: EngineClient, container_id: str, user: str) -> tuple[int, int] | None:
    """Return the numbers of a user and its group, None if a name of them is not known."""
    name, _, group = user.partition(":")
    entry = await _entry(client, container_id, "/etc/passwd", name)
    uid = _number(name) if entry is None else _number(entry[NUMBER])
    if not group:
        gid = 0 if entry is None else _number(entry[GROUP])
    else:
        listed = await _entry(client, container_id, "/etc/group", group)
        gid = _number(group) if listed is None else _number(listed[NUMBER])
    return None if uid is None or gid is None else (uid, gid)


async def _entry(client: EngineClient, container_id: str, path: str, name: str) -> list[str] | None:
    """Return the fields of a user or a group, by its name or by its number."""
    try:
        content = await read_file(client, container_id, path)
    except EngineRefused:  # it is missing, a link, or too large
        return None
    lines = (line.split(":") for line in content.decode("utf-8", "replace").split("\n"))
    entries = [fields for fields in lines if len(fields) > GROUP]
    by_name = [fields for fields in entries if fields[0] == name]
    return next(iter(by_name or [each for each in entries if each[NUMBER] == name]), None)


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    return int(text) if is_number else None
