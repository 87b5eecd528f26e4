"""Maps the entries of a tar to the paths of an app, for export and for restore."""

import tarfile
from collections.abc import Collection, Iterator, Sequence

from agent.apps.archives.tar import DEVICES
from agent.apps.errors import InvalidData

# The hashes of their names are kept, so that nothing is written through one of them.
MOST_LINKS = 100_000


class OutwardNames:
    """Names the entries of the volume at ``path`` after it: ``./a`` becomes ``srv/a``.

    ``paths`` are all paths of the app. Entries that lie where another one is mounted are left out.
    """

    def __init__(self, path: str, paths: Collection[str]) -> None:
        self._path = path
        self._paths = paths

    def choose(self, entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        """Return an entry with its name in the tar of the app; None for one to leave out."""
        name = self._name(entry.name)
        if entry.type in DEVICES or _path_of(name, self._paths) != self._path:
            return None
        entry.name = name.strip("/")
        if entry.islnk():
            entry.linkname = self._name(entry.linkname).strip("/")
        return entry

    def _name(self, name: str) -> str:
        return "/".join((self._path, *_parts(name)))


class InwardNames:
    """Finds the volume of each entry of a tar that a client sends; rejects one that is in none.

    ``paths`` are those of the app; the volume of ``paths[N]`` is unpacked at ``ROOT/N``.

    Attributes:
        found: The paths that the tar has so far.

    """

    def __init__(self, paths: Sequence[str], *, root: str) -> None:
        self._places = {path: f"{root.strip('/')}/{n}" for n, path in enumerate(paths)}
        self._above = {above for path in paths for above in _above(path)}
        self._links = set[int]()
        self.found = set[str]()

    def choose(self, entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        """Return an entry with its name in the place of its volume; None for one to leave out.

        Raises:
            InvalidData: it is in no path of the app, or leads out of its path.

        """
        if entry.type in DEVICES:
            raise InvalidData(f"{entry.name!a} is a device, which no data of an app may be")
        name = _absolute(entry.name, "the name")
        path = _path_of(name, self._places)
        if path is None:
            if entry.isdir() and name in self._above:
                return None
            raise InvalidData(
                f"{entry.name!a} is in no path that the app keeps: {', '.join(self._places)}"
            )
        if name == path and not entry.isdir():
            raise InvalidData(f"{entry.name!a} has to be a directory, as a path of the app")
        entry.name = self._placed(name, path)
        digest = self._digest(entry.name, name)
        is_link = entry.issym()
        if entry.islnk():
            target = self._link_target(entry, name, path)
            entry.linkname = self._placed(target, path)
            # A hard link to a symbolic link is one, too.
            is_link = self._digest(entry.linkname, target) in self._links
        self._remember(digest, is_link=is_link)
        self.found.add(path)
        return entry

    def _placed(self, name: str, path: str) -> str:
        return self._places[path] + name[len(path) :]

    def _link_target(self, entry: tarfile.TarInfo, name: str, path: str) -> str:
        target = _absolute(entry.linkname, f"the target of the hard link {name!a}")
        if _path_of(target, self._places) != path or target == path:
            raise InvalidData(
                f"{name!a} is a hard link to {entry.linkname!a}, which is not in {path}"
            )
        return target

    def _digest(self, place: str, name: str) -> int:
        """Return the hash of a place; InvalidData if it lies behind a link.

        It is made of the hashes of the directories above, so a deep place takes linear time.
        """
        digest = 0
        for part in place.split("/"):
            if digest in self._links:
                raise InvalidData(f"{name!a} lies behind a symbolic link of the tar")
            digest = hash((digest, part))
        return digest

    def _remember(self, digest: int, *, is_link: bool) -> None:
        if not is_link:
            self._links.discard(digest)
        elif len(self._links) >= MOST_LINKS:
            raise InvalidData(f"the tar has more than {MOST_LINKS} symbolic links")
        else:
            self._links.add(digest)


def _path_of(name: str, paths: Collection[str]) -> str | None:
    """Return the path of the app whose volume has a file, None if none has."""
    within = [path for path in paths if f"{name}/".startswith(f"{path}/")]
    return max(within, key=len, default=None)


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def _above(path: str) -> Iterator[str]:
    """Yield the directories above a path, the nearest first, ``/`` at the end."""
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        yield path


def _absolute(name: str, what: str) -> str:
    """Return a name in the tar as a path from the root; InvalidData for one that climbs."""
    parts = _parts(name)
    if name.startswith("/") or ".." in parts:
        raise InvalidData(f"{what} {name!a} leads out of the tar: no `..`, and no `/` before it")
    return "/" + "/".join(parts)
