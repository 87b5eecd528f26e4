"""A receiver of callbacks that takes everything."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Take what is posted."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def callback_receiver() -> Iterator[str]:
    """Yield the URL of a receiver."""
    with HTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/changes"
        finally:
            server.shutdown()
            thread.join()
