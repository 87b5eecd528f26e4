"""The pages for people: files that are served without a key, and hold no data."""

import hashlib
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

FOLDER = Path(__file__).parents[1] / "web"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # a browser asks whether its copy is still the one
}
TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


class _File(NamedTuple):
    body: bytes
    content_type: str
    etag: str


class Pages:
    """The files of one daemon's page, read once: `/` is index.html, the others are below /pages."""

    def __init__(self, daemon: str) -> None:
        """Read what pages share, and the folder of the daemon, `registry` or `agent`."""
        self._files = {
            f"/pages/{folder}/{path.name}": _read(path)
            for folder in ("common", "vendor", daemon)
            for path in sorted((FOLDER / folder).glob("*"))
            if path.suffix in TYPES
        }
        self._files["/"] = self._files.pop(f"/pages/{daemon}/index.html")

    @property
    def paths(self) -> frozenset[str]:
        """The paths that need no key."""
        return frozenset(self._files)

    def routes(self) -> list[web.RouteDef]:
        """Return a route for each file."""
        return [web.get(path, self.get) for path in sorted(self._files)]

    async def get(self, request: web.Request) -> web.Response:
        """Answer the file, or 304 if the browser has it."""
        file = self._files[request.path]
        headers = HEADERS | {"ETag": f'"{file.etag}"'}
        if any(etag.value in {file.etag, "*"} for etag in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        return web.Response(
            body=file.body, content_type=file.content_type, charset="utf-8", headers=headers
        )


def _read(path: Path) -> _File:
    body = path.read_bytes()
    return _File(body, TYPES[path.suffix], hashlib.sha256(body).hexdigest()[:32])
