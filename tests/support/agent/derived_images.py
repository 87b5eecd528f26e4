"""Images for one test, built from another image."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import docker

from dev.images import build


@contextmanager
def derived_image(client: docker.APIClient, base: str, lines: str) -> Iterator[str]:
    """Build an image from another with more lines in its Dockerfile; delete it at the end."""
    tag = f"rollcall-test-variant:{secrets.token_hex(4)}"
    build(client, tag, f"FROM {base}\n{lines}\n", {})
    try:
        yield tag
    finally:
        client.remove_image(tag, force=True)
