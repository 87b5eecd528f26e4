"""A tar is copied entry by entry, however its bytes arrive; what is no whole tar is rejected."""

import gzip
import io
import itertools
import tarfile
from collections.abc import AsyncIterator, Sequence
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.apps.archives.tar import (
    COPIED_AT_ONCE,
    LONGEST_GLOBAL_RECORDS,
    LONGEST_NAME,
    LONGEST_RECORDS,
    MOST_RECORDS,
    MalformedTar,
    copied,
)
from tests.support.agent.tars import member, packed, unpacked

CONTENT = b"0123456789" * 100


def as_it_is(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return entry


async def pieces(tar: bytes, cuts: Sequence[int] = ()) -> AsyncIterator[bytes]:
    places = [0, *sorted(cut % (len(tar) + 1) for cut in cuts), len(tar)]
    for start, end in itertools.pairwise(places):
        if start != end:
            yield tar[start:end]


async def copy(tar: bytes, cuts: Sequence[int] = ()) -> bytes:
    return b"".join([piece async for piece in copied(pieces(tar, cuts), as_it_is)])


def everything(style: int) -> bytes:
    """Return a tar in a format, without its end, with entries of all types that are taken."""
    buffer = io.BytesIO()
    names = ["short"] if style == tarfile.USTAR_FORMAT else ["short", "d/" * 60 + "long", "ü"]
    with tarfile.open(fileobj=buffer, mode="w", format=style) as archive:
        for name in (f"{style}/{each}" for each in names):
            entry = member(name, size=len(CONTENT), uid=1234, gid=5678, mode=0o4711, mtime=99)
            archive.addfile(entry, io.BytesIO(CONTENT))
            archive.addfile(member(f"{name}-h", type=tarfile.LNKTYPE, linkname=name))
            archive.addfile(member(f"{name}-s", type=tarfile.SYMTYPE, linkname="../" + name))
        archive.addfile(member(f"{style}/fifo", type=tarfile.FIFOTYPE))
        archive.addfile(member(f"{style}/dir", type=tarfile.DIRTYPE, mode=0o1777))
        if style != tarfile.USTAR_FORMAT:
            archive.addfile(member(f"{style}/owner", uid=1 << 30, gid=3_000_000))
        return buffer.getvalue()


FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
EVERYTHING = b"".join(map(everything, FORMATS)) + bytes(1024)


@pytest.mark.slow
@given(cuts=st.lists(st.integers(min_value=0), max_size=20))
async def test_the_copy_has_the_same_entries_wherever_the_pieces_are_cut(cuts: list[int]) -> None:
    before, after = unpacked(EVERYTHING), unpacked(await copy(EVERYTHING, cuts))

    assert after.keys() == before.keys()
    for name, (entry, content) in after.items():
        original, original_content = before[name]
        assert content == original_content
        for field in ("type", "mode", "uid", "gid", "size", "mtime", "linkname"):
            assert getattr(entry, field) == getattr(original, field), (name, field)


@pytest.mark.slow
@given(cut=st.integers(min_value=0, max_value=len(EVERYTHING) - 1025))
async def test_a_tar_that_ends_before_its_end_is_rejected(cut: int) -> None:
    with pytest.raises(MalformedTar, match="ends"):
        await copy(EVERYTHING[:cut])


@pytest.mark.slow
@given(garbage=st.binary(min_size=512))
async def test_garbage_is_copied_or_rejected_and_nothing_else(garbage: bytes) -> None:
    try:
        unpacked(await copy(garbage))
    except MalformedTar:
        return


async def test_extended_attributes_come_through_with_any_bytes() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        value = b"\x01\x00\xff\n=".decode("utf-8", "surrogateescape")
        archive.addfile(member("f", pax_headers={"SCHILY.xattr.security.capability": value}))

    entry, _ = unpacked(await copy(buffer.getvalue()))["f"]

    assert entry.pax_headers["SCHILY.xattr.security.capability"] == value


async def test_a_name_that_is_not_utf_8_comes_through() -> None:
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")

    assert unpacked(await copy(packed({name: b"x"}))).keys() == {name}


async def test_records_for_all_entries_count_as_those_of_each() -> None:
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"uid": "77"}
    ) as archive:
        archive.addfile(member("f"))

    entry, _ = unpacked(await copy(buffer.getvalue()))["f"]

    assert entry.uid == 77


async def test_of_two_names_the_copy_has_the_one_that_was_checked() -> None:
    checked = list[str]()

    def choose(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        checked.append(entry.name)
        return entry

    long = packed({"n" * 150: b"x"})  # GNU's way: the name, cut off, and the whole before it
    copies = b"".join([piece async for piece in copied(pieces(long), choose)])

    assert checked == ["n" * 150]
    assert copies.count(b"n" * 150) == 1
    assert tarfile.GNUTYPE_LONGNAME not in {copies[at + 156 : at + 157] for at in (0, 512, 1024)}


async def test_what_is_left_out_is_not_in_the_copy() -> None:
    def choose(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return entry if entry.name == "b" else None

    tar = packed({"a": CONTENT, "b": b"x", "c": CONTENT})
    copies = b"".join([piece async for piece in copied(pieces(tar), choose)])

    assert unpacked(copies).keys() == {"b"}


async def test_a_large_file_is_copied_in_small_pieces() -> None:
    tar = packed({"large": bytes(10 * COPIED_AT_ONCE)})

    sizes = [len(piece) async for piece in copied(pieces(tar), as_it_is)]

    assert max(sizes) <= 2 * COPIED_AT_ONCE


@pytest.mark.parametrize(
    ("tar", "reason"),
    [
        (b"", "ends"),
        (b"no tar at all, and longer than a block" * 20, "no tar"),
        (gzip.compress(EVERYTHING * 10), "unpacked before it is sent"),
        (EVERYTHING + packed({"second": b""}), "something follows"),
        (packed({}, member("s", type=tarfile.GNUTYPE_SPARSE)), "--sparse"),
        (packed({}, member("v", type=b"V")), "type"),
    ],
)
async def test_what_is_no_plain_tar_is_rejected(tar: bytes, reason: str) -> None:
    with pytest.raises(MalformedTar, match=reason):
        await copy(tar)


def with_records(content: bytes) -> bytes:
    """Return a tar of one file, with extended records."""
    head = member("records", type=tarfile.XHDTYPE, size=len(content)).tobuf(tarfile.USTAR_FORMAT)
    return head + content + bytes(-len(content) % 512) + packed({"f": b""})


@pytest.mark.parametrize(
    "content",
    [
        b"nonsense",
        b"999 path=x\n",
        b"0 path=x\n",
        b"11 path=abc",
        b"8 =abcd\n",
        b"9 abcdef\n",
        b"12 size=-22\n",
        b"14 mtime=late\n",
        b"22 GNU.sparse.major=1\n",
        b"10 path=\0\n",
    ],
)
async def test_malformed_records_are_rejected(content: bytes) -> None:
    with pytest.raises(MalformedTar):
        await copy(with_records(content))


async def test_records_without_an_entry_are_rejected() -> None:
    head = with_records(b"10 path=x\n")[:1024]

    with pytest.raises(MalformedTar, match="without the entry"):
        await copy(head + bytes(1024))


def header(*values: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    """Return a header of extended records, one for each value."""
    content = b""
    for number, value in enumerate(values):
        record, length = b" SCHILY.xattr.user.%d=%b\n" % (number, value), 0
        while length != len(record) + len(str(length)):
            length = len(record) + len(str(length))
        content += b"%d%b" % (length, record)
    head = member("records", type=kind, size=len(content)).tobuf(tarfile.USTAR_FORMAT)
    return head + content + bytes(-len(content) % 512)


@pytest.mark.parametrize(
    "many",
    [
        header(bytes(LONGEST_RECORDS)),
        header(b"", bytes(LONGEST_RECORDS // 2)) + header(bytes(LONGEST_RECORDS // 2)),
        header(*[b""] * (MOST_RECORDS + 1)),
        header(bytes(LONGEST_GLOBAL_RECORDS), kind=tarfile.XGLTYPE),
        header(b"", bytes(2000), kind=tarfile.XGLTYPE) + header(bytes(2096), kind=tarfile.XGLTYPE),
    ],
    ids=["long", "long together", "many", "long for all", "long for all together"],
)
async def test_records_have_a_bound(many: bytes) -> None:
    with pytest.raises(MalformedTar, match="more than"):
        await copy(many + packed({"f": b""}))


async def test_records_that_nobody_reads_are_not_kept() -> None:
    comment = member("g", type=tarfile.XGLTYPE, size=512).tobuf(tarfile.USTAR_FORMAT)
    comment += b"512 comment=".ljust(511, b"x") + b"\n"

    assert unpacked(await copy(comment * 20 + packed({"f": b"x"}))).keys() == {"f"}


@pytest.mark.parametrize("style", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("field", ["name", "linkname"])
async def test_a_name_has_a_bound(style: Literal[1, 2], field: str) -> None:
    entry, longest = member("f", type=tarfile.SYMTYPE), "ü" * (LONGEST_NAME // 2)

    setattr(entry, field, longest)
    copies = await copy(entry.tobuf(style) + bytes(1024))
    assert [getattr(each, field) for each, _ in unpacked(copies).values()] == [longest]

    setattr(entry, field, longest + "x")
    with pytest.raises(MalformedTar, match="name of more than"):
        await copy(entry.tobuf(style) + bytes(1024))


async def test_the_size_of_a_file_of_more_than_8_gib_is_kept() -> None:
    size, seen = 9 << 30, list[int]()

    def choose(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        seen.append(entry.size)
        return entry

    for style in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        head = member("big", size=size).tobuf(style)
        with pytest.raises(MalformedTar, match="ends"):
            async for _ in copied(pieces(head), choose):
                pass

    assert seen == [size, size]
