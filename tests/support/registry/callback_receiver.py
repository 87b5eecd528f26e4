"""A receiver of callbacks that takes everything."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread


class CallbackReceiver(HTTPServer):
    """What it took: each change with its node, or the reason of a resync."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken: list[str] = []

    @property
    def url(self) -> str:
        """Where to post."""
        return f"http://127.0.0.1:{self.server_port}/changes"


class _Handler(BaseHTTPRequestHandler):
    server: CallbackReceiver

    def do_POST(self) -> None:
        """Take what is posted."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken += [
            f"{change['change']} {change.get('reason') or change['node']['hostname']}"
            for change in json.loads(body)["changes"]
        ]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def callback_receiver() -> Iterator[CallbackReceiver]:
    """Yield a receiver that listens."""
    with CallbackReceiver() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
