"""Bodies of POST /nodes/{hostname}: what is read, and what is rejected."""

import json
from io import BytesIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import share_of
from tests.support.registry.in_process import WALL, InProcessRegistry

MALFORMED = {
    "empty body": (b"", "JSON"),
    "truncated": (b'{"labels":[],', "JSON"),
    "an array": (b"[]", "object"),
    "null": (b"null", "object"),
    "trailing text": (b'{"labels":[],"kv":{}} x', "JSON"),
    "not UTF-8": (b'{"labels":["\xff"],"kv":{}}', "UTF-8: byte 12 is 0xff, in `$.labels[0]`"),
    "lone surrogate": (b'{"labels":["\\ud800"],"kv":{}}', ""),
    "byte order mark": (b'\xef\xbb\xbf{"labels":[],"kv":{}}', "JSON"),
    "no labels": (b'{"kv":{}}', "labels"),
    "no kv": (b'{"labels":[]}', "kv"),
    "unknown field": (b'{"labels":[],"kv":{},"colour":"red"}', "colour"),
    "labels a string": (b'{"labels":"a","kv":{}}', "labels"),
    "a label a number": (b'{"labels":[1],"kv":{}}', "labels"),
    "a label null": (b'{"labels":[null],"kv":{}}', "labels"),
    "an empty label": (b'{"labels":[""],"kv":{}}', "labels"),
    "a long label": (b'{"labels":["%b"],"kv":{}}' % (b"x" * 1025), "labels"),
    "too many labels": (
        b'{"labels":[%b],"kv":{}}' % b",".join(b'"%d"' % number for number in range(4097)),
        "`labels` holds 4097 labels; at most 4096",
    ),
    "a label with a line break": (b'{"labels":["a\\nb"],"kv":{}}', "labels"),
    "a label with DEL": (b'{"labels":["a\x7fb"],"kv":{}}', "labels"),
    "a label with C1": (b'{"labels":["a\xc2\x85b"],"kv":{}}', "labels"),
    "kv an array": (b'{"labels":[],"kv":[]}', "kv"),
    "a value a number": (b'{"labels":[],"kv":{"a":1}}', "kv"),
    "a value true": (b'{"labels":[],"kv":{"a":true}}', "kv"),
    "an empty key": (b'{"labels":[],"kv":{"":"a"}}', "kv"),
    "a long key": (b'{"labels":[],"kv":{"%b":"a"}}' % (b"k" * 257), "kv"),
    "a long value": (b'{"labels":[],"kv":{"a":"%b"}}' % (b"v" * 16_385), "kv"),
    "a key twice": (b'{"labels":[],"kv":{"a":"1","a":"2"}}', "'a'"),
    "a field twice": (b'{"labels":[],"kv":{},"kv":{}}', "'kv'"),
    "a key twice, escaped": (b'{"labels":[],"kv":{"a":"1","\\u0061":"2"}}', "'a'"),
    "NaN": (b'{"labels":[],"kv":{},"last_update":NaN}', "JSON"),
    "ignored, but not UTF-8": (b'{"labels":[],"kv":{},"last_update":"\xff"}', "UTF-8"),
    "ignored, but no JSON": (b'{"labels":[],"kv":{},"last_update":01}', "JSON"),
    "ignored, but deep": (b'{"labels":[],"kv":{},"last_update":%b' % (b'{"a":' * 30_000), ""),
    "ignored, but a key twice": (b'{"labels":[],"kv":{},"last_update":{"a":1,"a":2}}', "'a'"),
    "deep": (b'{"labels":%b' % (b"[" * 100_000), ""),
    "deep object": (b'{"kv":%b' % (b'{"a":' * 30_000), ""),
    "wide": (b'{"labels":[],"kv":{%b}}' % b",".join(b'"%d":""' % i for i in range(1025)), "kv"),
}  # fmt: skip


@pytest.mark.slow
async def test_labels_are_counted_after_duplicates_are_dropped(registry: InProcessRegistry) -> None:
    labels = [f"l:{number}" for number in range(4096)]
    body = json.dumps({"labels": [*labels, *labels[:10], "l:1"], "kv": {}}).encode()

    answer = await registry.ask("POST", "/nodes/web-1", data=body)

    assert answer.status == 200
    assert json.loads(answer.body)[0]["labels"] == labels


@pytest.mark.parametrize("case", MALFORMED)
async def test_a_malformed_body_is_400_says_where_and_changes_nothing(
    registry: InProcessRegistry, case: str
) -> None:
    body, named = MALFORMED[case]
    await registry.post("web-1", ["before"])

    answer = await registry.ask("POST", "/nodes/web-1", data=body)

    assert answer.status == 400, answer.body
    assert named in answer.json()["message"]
    assert len(answer.body) < 400
    assert (await registry.get("/nodes/web-1"))[0]["labels"] == ["before"]


@pytest.mark.parametrize(
    "value",
    [b"null", b"7", b"1.5", b"1e999", b'"3"', b"[{}]", b'{"labels":["a"]}', b"9" * 5000],
    ids=lambda value: value[:20].decode(),
)
@pytest.mark.parametrize("more", [b"", b',"hostname":"web-1"'])
async def test_the_last_update_is_ignored_whatever_it_is(
    registry: InProcessRegistry, value: bytes, more: bytes
) -> None:
    body = b'{"labels":["x"],"kv":{"a":"b"},"last_update":%b%b}' % (value, more)

    answer = await registry.ask("POST", "/nodes/web-1", data=body)

    assert answer.status == 200, answer.body
    (node,) = answer.json()
    assert (node["labels"], node["kv"], node["last_update"]) == (["x"], {"a": "b"}, WALL)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_the_content_type_does_not_matter(registry: InProcessRegistry, kind: str) -> None:
    answer = await registry.ask(
        "POST", "/nodes/web-1", data=b'{"labels":[],"kv":{}}', headers={"Content-Type": kind}
    )

    assert answer.status == 200


@pytest.mark.slow
async def test_a_body_of_one_mebibyte_is_read_and_one_byte_more_is_413(
    registry: InProcessRegistry,
) -> None:
    body = b'{"labels":[],"kv":{}}'
    largest = body + b" " * (1024 * 1024 - len(body))

    assert (await registry.ask("POST", "/nodes/web-1", data=BytesIO(largest))).status == 200
    assert (await registry.ask("POST", "/nodes/web-1", data=BytesIO(largest + b" "))).status == 413


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd", "br"])
async def test_a_compressed_body_is_415(registry: InProcessRegistry, coding: str) -> None:
    answer = await registry.ask(
        "POST", "/nodes/web-1", data=b"anything", headers={"Content-Encoding": coding}
    )

    assert answer.status == 415


WORDS = st.sampled_from(["labels", "kv", "a", "b", "é", '"', "\\", "prometheus:web"])
PAIRS = st.lists(st.tuples(WORDS, WORDS), max_size=4)
FIELDS = st.lists(
    st.sampled_from(
        [("hostname", '"web-1"'), ("last_update", "7"), ("labels", "[]"), ("kv", "{}")]
    ),
    max_size=2,
)


def written(pairs: list[tuple[str, str]], *, ascii_only: bool) -> str:
    """Write a JSON object, in which keys may stand twice."""
    members = [(json.dumps(name, ensure_ascii=ascii_only), value) for name, value in pairs]
    return "{" + ",".join(f"{name}:{value}" for name, value in members) + "}"


@pytest.mark.slow
@settings(max_examples=share_of(150), suppress_health_check=list(HealthCheck))
@given(labels=st.lists(WORDS, max_size=4), kv=PAIRS, more=FIELDS, ascii_only=st.booleans())
async def test_a_key_that_stands_twice_is_found_in_any_body(
    registry: InProcessRegistry,
    labels: list[str],
    kv: list[tuple[str, str]],
    more: list[tuple[str, str]],
    *,
    ascii_only: bool,
) -> None:
    values = [(name, json.dumps(value, ensure_ascii=ascii_only)) for name, value in kv]
    inner = written(values, ascii_only=ascii_only)
    fields = [("labels", json.dumps(labels, ensure_ascii=ascii_only)), ("kv", inner), *more]
    body = written(fields, ascii_only=ascii_only).encode()

    answer = await registry.ask("POST", "/nodes/web-1", data=body)

    twice = len(dict(kv)) < len(kv) or len(dict(fields)) < len(fields)
    assert answer.status == (400 if twice else 200), answer.body
