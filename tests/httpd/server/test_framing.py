"""Where requests end is found wherever the bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from httpd.server.framing import (
    MAX_HEAD_BYTES,
    NO_HEAD,
    Body,
    HeadTooLarge,
    body_after,
    take_head,
)

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
NEXT = b"GET / HTTP/1.1\r\n\r\n"


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({0, len(data), *[place % (len(data) + 1) for place in places]})
    return [data[start:end] for start, end in pairwise(ends)]


def body_of(head: bytes) -> Body:
    body = body_after(head)
    assert body is not None
    return body


def take_all(body: Body, pieces: list[bytes]) -> tuple[bytes, bytes]:
    """Return what belongs to the body, and what is left."""
    taken, left = b"", bytearray()
    for piece in pieces:
        left += piece
        taken += body.take(left)
    return taken, bytes(left)


@pytest.mark.slow
@given(st.lists(st.integers(0, 2000)), st.binary(max_size=1000))
def test_a_body_with_a_length_ends_there(cuts: list[int], content: bytes) -> None:
    head = HEAD + b"content-length:  %d \r\n\r\n" % (len(content) + 1)
    body = body_of(head)
    assert take_all(body, cut(content + b"x" + NEXT, cuts)) == (content + b"x", NEXT)
    assert body.is_complete


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 4000)),
    st.lists(st.binary(min_size=1, max_size=50)),
    st.sampled_from([b"", b"X: y\r\n", b"X: y\r\nZ: " + b"z" * 500 + b"\r\n"]),
)
def test_a_body_in_chunks_ends_behind_its_trailers(
    cuts: list[int], chunks: list[bytes], trailers: bytes
) -> None:
    framed = b"".join([b"%X;a=b\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks])
    framed += b"0\r\n" + trailers + b"\r\n"
    body = body_of(CHUNKED)
    assert take_all(body, cut(framed + NEXT, cuts)) == (framed, NEXT)
    assert body.is_complete
    assert not body.is_malformed


@pytest.mark.parametrize(
    "framed",
    [
        b"x\r\n",
        b"+1\r\n",
        b"1\nx",
        b"\r\n",
        b"1\r\nxx",
        b"1\r\nx\n",
        b"1" * 2000,
        b"1;" + b"x" * 1100,
        b"1 \r\n",
        b"0\r\nx\r\n",
    ],
)
def test_broken_chunks_are_noticed(framed: bytes) -> None:
    body = body_of(CHUNKED)
    take_all(body, [framed])
    assert body.is_malformed
    assert not body.is_complete


@pytest.mark.parametrize("size", [1, 8, 64])
def test_small_chunks_are_few(size: int) -> None:
    data = (b"%x\r\n" % size + b"x" * size + b"\r\n") * 2000
    body = body_of(CHUNKED)
    taken = body.take(bytearray(data))

    assert body.is_malformed
    assert taken.count(b"\r\n") < 2000
    some = body_of(CHUNKED)
    some.take(bytearray(data[: len(data) // 5]))
    assert not some.is_malformed


def test_trailers_are_few() -> None:
    body = body_of(CHUNKED)
    body.take(bytearray(b"0\r\n" + b"a: b\r\n" * 200))
    assert body.is_malformed


@pytest.mark.slow
def test_a_large_body_may_have_many_chunks() -> None:
    body = body_of(CHUNKED)
    body.take(bytearray(b"400\r\n" + b"x" * 0x400 + b"\r\n") * 5000)
    assert not body.is_malformed


@pytest.mark.parametrize("nothing", [b"", b"Content-Length: 0\r\n", b"X-Content-Length: 5\r\n"])
def test_without_a_length_there_is_no_body(nothing: bytes) -> None:
    assert body_after(HEAD + nothing + b"\r\n") is None


@pytest.mark.slow
@given(st.lists(st.integers(0, 100)))
def test_a_head_is_taken_once_it_is_complete(cuts: list[int]) -> None:
    data, heads = bytearray(), []
    for piece in cut(b"\r\n\n" + NEXT + b"\r\n" + NEXT, cuts):
        data += piece
        while head := take_head(data):
            heads.append(head)
    assert heads == [NEXT, NEXT]
    assert data == b""


@pytest.mark.parametrize("rest", [b"", b"\r\n\r\n", b" HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n"])
@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01", b"get / HTTP/1.1", b"GET / HTTP/1.1\nHost: a", b"PUT /a\nH"]
)
def test_in_place_of_what_cannot_become_a_head_comes_what_is_refused_at_once(
    data: bytes, rest: bytes
) -> None:
    assert take_head(bytearray(data + rest)) == NO_HEAD


def test_a_head_has_a_largest_size() -> None:
    head = HEAD + b"X: " + b"x" * (MAX_HEAD_BYTES - len(HEAD) - 7) + b"\r\n\r\n"
    assert take_head(bytearray(head)) == head
    with pytest.raises(HeadTooLarge):
        take_head(bytearray(head.replace(b"X: ", b"X: x")))
