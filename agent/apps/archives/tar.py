"""Copies a tar entry by entry, as it arrives, in bounded memory.

Each header is read and written anew. So whoever unpacks the copy reads the names that were checked
here, and not those of a header that two readers understand differently.
"""

import re
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType

BLOCK = 512
END = bytes(2 * BLOCK)
ENCODING, ERRORS = "utf-8", "surrogateescape"
LONGEST_NAME = 4096  # PATH_MAX
# The longest records that the engine accepts.
LONGEST_RECORDS = 1 << 20
# Records for all entries that follow are written again for each of them.
LONGEST_GLOBAL_RECORDS = 4096
MOST_RECORDS = 256
COPIED_AT_ONCE = 1 << 18
RECORDS, GLOBAL_RECORDS = tarfile.XHDTYPE, tarfile.XGLTYPE
LONG_NAMES = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
FILES = {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE}
TYPES = FILES | {tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE}
DEVICES = {tarfile.CHRTYPE, tarfile.BLKTYPE}
KEPT_RECORD = "SCHILY.xattr."
SPARSE_RECORD = "GNU.sparse"
KNOWN_RECORD = re.compile(
    rf"path|linkpath|size|uid|gid|mtime|(?:{re.escape(KEPT_RECORD)}|{re.escape(SPARSE_RECORD)}).*",
    re.DOTALL,
)
RECORD_LENGTH = re.compile(rb"([1-9][0-9]{0,6}) ")
NUMBER = re.compile(r"[0-9]{1,18}")
TIME = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]{1,20})?")
NO_RECORDS: Mapping[str, str] = MappingProxyType({})
# Returns the entry as it shall be in the copy; None leaves it out.
Choose = Callable[[tarfile.TarInfo], tarfile.TarInfo | None]


class MalformedTar(Exception):
    """The bytes are no tar, or a tar of a kind that is not accepted; the text says which."""


class _Input:
    """The bytes of a tar, read in pieces."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk = b""
        self._at = 0

    async def some(self, most: int) -> bytes:
        """Return the next bytes, 1 to ``most``; none at the end."""
        while self._at == len(self._chunk):
            self._chunk, self._at = await anext(self._chunks, b""), 0
            if not self._chunk:
                return b""
        piece = self._chunk[self._at : self._at + most]
        self._at += len(piece)
        return piece

    async def exactly(self, size: int) -> bytes:
        """Return the given number of bytes. Raises MalformedTar if there are fewer."""
        pieces, missing = list[bytes](), size
        while missing:
            piece = await self.some(missing)
            if not piece:
                raise MalformedTar("the tar ends in the middle of it, or without its end marker")
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    async def zeros(self) -> None:
        """Read to the end; MalformedTar if anything but zeros comes."""
        while piece := await self.some(COPIED_AT_ONCE):
            if piece.count(0) != len(piece):
                raise MalformedTar("something follows the end of the tar")


async def copied(
    chunks: AsyncIterator[bytes], choose: Choose, *, with_end: bool = True
) -> AsyncGenerator[bytes]:
    """Yield a copy of a tar, with the entries as ``choose`` returns them.

    Files, directories, links and FIFOs are copied, with owners, modes, times and extended
    attributes. Devices are passed to ``choose``, which has to leave them out. ``with_end=False``
    leaves out the end marker, so that another copy can follow.

    Raises:
        MalformedTar: it is no tar, it is incomplete, or it has entries of other types.

    """
    async with aclosing(_small_pieces(chunks, choose)) as pieces:
        gathered = bytearray()
        async for piece in pieces:
            gathered += piece
            if len(gathered) >= COPIED_AT_ONCE:
                yield bytes(gathered)
                gathered.clear()
        yield bytes(gathered + END if with_end else gathered)


async def _small_pieces(chunks: AsyncIterator[bytes], choose: Choose) -> AsyncGenerator[bytes]:
    source, defaults = _Input(chunks), dict[str, str]()
    while (entry := await _next_entry(source, defaults)) is not None:
        size = entry.size if entry.type in FILES else 0
        chosen = choose(entry)
        if chosen is not None:
            yield _header(chosen)
        missing = size + -size % BLOCK
        while missing:
            piece = await source.some(min(missing, COPIED_AT_ONCE)) or await source.exactly(missing)
            missing -= len(piece)
            if chosen is not None:
                yield piece
    await source.zeros()


async def _next_entry(source: _Input, defaults: dict[str, str]) -> tarfile.TarInfo | None:
    """Return the next entry, with its long names and numbers; None at the end of the tar.

    ``defaults`` are the records for all entries that follow.
    """
    records = dict[str, str]()
    while True:
        block = await source.exactly(BLOCK)
        if block.count(0) == BLOCK:
            if records:
                raise MalformedTar("the tar ends behind the records of an entry, without the entry")
            return None
        info = _parsed(block)
        if info.type == RECORDS:
            _add(records, await _content(source, info, LONGEST_RECORDS), LONGEST_RECORDS)
        elif info.type == GLOBAL_RECORDS:
            most = LONGEST_GLOBAL_RECORDS
            _add(defaults, await _content(source, info, most), most)
        elif info.type in LONG_NAMES:
            name = (await _content(source, info, LONGEST_NAME + 1)).rstrip(b"\0")
            records[LONG_NAMES[info.type]] = name.decode(ENCODING, ERRORS)
        else:
            return _completed(info, defaults | records)


def _parsed(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, ENCODING, ERRORS)
    except (tarfile.HeaderError, ValueError) as error:
        raise MalformedTar(
            "this is no tar; one that is compressed has to be unpacked before it is sent"
        ) from error


async def _content(source: _Input, info: tarfile.TarInfo, most: int) -> bytes:
    if not 0 <= info.size <= most:
        what = "a name" if info.type in LONG_NAMES else "records"
        raise MalformedTar(f"the tar has a header with {what} of more than {most} bytes")
    return (await source.exactly(info.size + -info.size % BLOCK))[: info.size]


def _add(known: dict[str, str], content: bytes, most: int) -> None:
    """Add to the records of an entry, or of all entries, those of another header."""
    known |= _records(content)
    size = sum(len(key) + len(value) for key, value in known.items())
    if len(known) > MOST_RECORDS or size > most:
        raise MalformedTar(f"the tar has more than {MOST_RECORDS} records of {most} bytes together")


def _records(content: bytes) -> dict[str, str]:
    """Return the known extended records, each ``LENGTH KEY=VALUE`` and a newline, by key."""
    found, at, count = dict[str, str](), 0, 0
    while at < len(content):
        count += 1
        if count > MOST_RECORDS:
            raise MalformedTar(f"the tar has a header with more than {MOST_RECORDS} records")
        length = RECORD_LENGTH.match(content, at)
        end = at + int(length[1]) if length else 0
        record = content[length.end() : end] if length and end <= len(content) else b""
        key, equals, value = record[:-1].partition(b"=")
        if not key or not equals or not record.endswith(b"\n"):
            raise MalformedTar("the records of an entry are malformed")
        text = key.decode(ENCODING, ERRORS)
        if KNOWN_RECORD.fullmatch(text):
            found[text] = value.decode(ENCODING, ERRORS)
        at = end
    return found


def _completed(info: tarfile.TarInfo, records: Mapping[str, str]) -> tarfile.TarInfo:
    if info.type == tarfile.GNUTYPE_SPARSE or any(key.startswith(SPARSE_RECORD) for key in records):
        raise MalformedTar(f"{info.name!a} is packed as a sparse file; pack it without --sparse")
    if info.type not in TYPES | DEVICES:
        raise MalformedTar(f"{info.name!a} is of the type {info.type!a}, which is not taken")
    info.name = records.get("path", info.name).rstrip("/")
    info.linkname = records.get("linkpath", info.linkname)
    if any(
        len(each.encode(ENCODING, ERRORS)) > LONGEST_NAME for each in (info.name, info.linkname)
    ):
        raise MalformedTar(f"the tar has an entry with a name of more than {LONGEST_NAME} bytes")
    info.size = _number(records.get("size"), info.size)
    info.uid = _number(records.get("uid"), info.uid)
    info.gid = _number(records.get("gid"), info.gid)
    time = records.get("mtime")
    if time is not None:
        if not TIME.fullmatch(time):
            raise MalformedTar("the records of an entry are malformed")
        info.mtime = float(time)
    if min(info.size, info.uid, info.gid) < 0 or "\0" in info.name + info.linkname:
        raise MalformedTar(f"the header of {info.name!a} is malformed")
    info.pax_headers = {key: value for key, value in records.items() if key.startswith(KEPT_RECORD)}
    return info


def _number(text: str | None, otherwise: int) -> int:
    if text is None:
        return otherwise
    if not NUMBER.fullmatch(text):
        raise MalformedTar("the records of an entry are malformed")
    return int(text)


def _header(info: tarfile.TarInfo) -> bytes:
    """Return the header of an entry, which has no names of owners: their numbers count."""
    info.uname = info.gname = ""
    if info.type in FILES:
        info.type = tarfile.REGTYPE
    else:
        info.size = 0
    return info.tobuf(tarfile.PAX_FORMAT, ENCODING, ERRORS)
