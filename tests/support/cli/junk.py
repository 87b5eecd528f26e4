"""Answers that are none of an agent, whatever it was asked."""

DEEP = 100_000
# Python can decode it, and whoever prints it recurses too deep.
DEEP_YET_DECODED = 400

JUNK: tuple[bytes, ...] = (
    b"",
    b"null",
    b"true",
    b"7",
    b'"text"',
    b"\xff\xfe",
    b"<html>",
    b"[null]",
    b"[[]]",
    b"[1, 2]",
    b'["a"]',
    b'[{"name": 7}]',
    b'[{"name": null, "state": {}}]',
    b'[{"revision": "1", "id": 1, "pid": "1"}]',
    b'{"name": "shop"' + b"," * 9,
    b'{"app": 7, "message": 7, "cpu_percent": "7"',
    b'{"a": ' * DEEP + b"1" + b"}" * DEEP,
    b"[" * DEEP + b"]" * DEEP,
    b'{"a": ' + b"[" * DEEP_YET_DECODED + b"]" * DEEP_YET_DECODED + b"}",
    b"[" + b"9" * 100_000 + b"]",
)
