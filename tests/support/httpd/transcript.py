"""Requests to a daemon and its answers as text, without what differs from run to run."""

import json
import re
from collections.abc import Iterable, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any, NamedTuple

import requests

from tests.support.daemons import Daemon

# These differ with the library, the machine or the moment.
UNKEPT_HEADERS = {"Date", "Server", "Content-Length", "ETag", "Connection", "Keep-Alive"}
MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b(sha256:)?[0-9a-f]{12,64}\b"), "ID"),
    (re.compile(r"\b1[0-9]{9}(\.\d+)?\b"), "SECONDS"),
    (re.compile(r"\b[0-9]+\.[0-9]{3,}\b"), "NUMBER"),
    (re.compile(r'(?<=seconds": )[0-9.]+'), "NUMBER"),
    (re.compile(r"\b[0-9]+-[0-9a-f]{11}\b"), "EVENT"),
    (re.compile(r"\b\d{4,6} MiB\b"), "MEMORY MiB"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"0\.2\.0[.\w~+-]*"), "VERSION"),
)


class Request(NamedTuple):
    """A request; ``key`` names one of the keys, none if it is empty."""

    method: str
    path: str
    body: Any = None
    key: str = "ops"
    headers: Mapping[str, str] = {}


def transcript(
    daemon: Daemon, asked: Iterable[Request], keys: Mapping[str, str], own: Mapping[str, str]
) -> str:
    """Send the requests one after the other; return the answers as text.

    ``own`` are texts of this run, such as names of folders, and what is shown for each.
    """
    return "\n".join(_exchange(daemon, each, keys, own) for each in asked)


def _exchange(
    daemon: Daemon, request: Request, keys: Mapping[str, str], own: Mapping[str, str]
) -> str:
    headers = dict(request.headers)
    if request.key:
        headers["Authorization"] = f"Bearer {keys[request.key]}"
    is_raw = isinstance(request.body, bytes)
    answer = requests.request(
        request.method,
        daemon.base_url + request.path,
        headers=headers,
        data=request.body if is_raw else None,
        json=None if is_raw else request.body,
        timeout=120,
    )
    kept = sorted(item for item in answer.headers.items() if item[0] not in UNKEPT_HEADERS)
    lines = [
        f"## {request.method} {request.path} ({request.key or 'no key'})",
        *([] if request.body is None else [f"> {_shown(request.body)}"]),
        str(answer.status_code),
        *(f"{name}: {value}" for name, value in kept),
        _body(answer),
        "",
    ]
    return masked("\n".join(lines), own)


def _shown(body: Any) -> str:
    return repr(body) if isinstance(body, bytes) else json.dumps(body)


def _body(answer: requests.Response) -> str:
    if "json" in answer.headers.get("Content-Type", ""):
        return json.dumps(answer.json(), indent=1, ensure_ascii=False)
    return answer.text


def masked(text: str, own: Mapping[str, str]) -> str:
    """Return a text without times, ids, ports and the texts of this run."""
    for part, name in own.items():
        text = text.replace(part, name)
    for pattern, name in MASKS:
        text = pattern.sub(name, text)
    return text


def compare(file: Path, text: str, *, write: bool) -> None:
    """Assert that a file has this text, or write it."""
    if write:
        file.write_text(text)
    before = file.read_text().splitlines()
    assert not list(unified_diff(before, text.splitlines(), lineterm="")), "\n".join(
        unified_diff(before, text.splitlines(), file.name, "now", lineterm="")
    )
