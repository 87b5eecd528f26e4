"""What a bucket holds: keys and values."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.message import HostnameInvalid, normalise_hostname
from registry.store.nats.format import decode_node, hostname_of, node_key, node_value, row_of
from registry.store.protocol import Row

# What a key of a bucket, and a subject without wildcards, may be.
KEY = re.compile(r"[-/_=.a-zA-Z0-9]+")


def normal(text: str) -> str | None:
    try:
        return normalise_hostname(text)
    except HostnameInvalid:
        return None


HOSTNAMES = (
    st.from_regex(r"[A-Za-z0-9._-]{1,253}\.?", fullmatch=True)
    .map(normal)
    .filter(lambda name: name is not None)
)
DOCUMENT = b'{"labels":["a"],"kv":{"k":"v"}}'


@given(HOSTNAMES)
def test_every_hostname_is_a_key_and_comes_back(hostname: str) -> None:
    key = node_key(hostname)

    assert KEY.fullmatch(key)
    assert not key.endswith(".")
    assert all(key.split("."))  # no token of the subject is empty
    assert hostname_of(key) == hostname


@given(
    HOSTNAMES,
    st.lists(st.text()),
    st.dictionaries(st.text(), st.text()),
    st.integers(0, 2**40),
    st.text(),
)
def test_every_node_comes_back_byte_by_byte(
    hostname: str, labels: list[str], kv: dict[str, str], last_update: int, address: str
) -> None:
    encode = msgspec.json.Encoder(order="deterministic").encode
    row = Row(
        hostname, b'{"labels":%b,"kv":%b}' % (encode(labels), encode(kv)), last_update, address
    )

    assert row_of(hostname, decode_node(node_value(row, by="run-1", uptime=1.5))) == row


@pytest.mark.parametrize(
    "document",
    [
        b'{"labels":[],"kv":{},"more":1}',
        b'{"kv":{},"labels":[]}',
        b'{"labels":[ ],"kv": {}}',
        b'{"labels":[1],"kv":{}}',
        b'{"labels":[]}',
        b"[]",
        b'"text"',
    ],
)
def test_what_no_registry_writes_is_refused(document: bytes) -> None:
    value = node_value(Row("a", document, 0, "x"), by="", uptime=0.0)

    with pytest.raises(msgspec.ValidationError):
        row_of("a", decode_node(value))


@pytest.mark.parametrize("hostname", ["A", "a.", "", "a b"])
def test_a_key_that_is_no_hostname_is_refused(hostname: str) -> None:
    value = node_value(Row(hostname, DOCUMENT, 0, "x"), by="", uptime=0.0)

    with pytest.raises(msgspec.ValidationError):
        row_of(hostname, decode_node(value))
