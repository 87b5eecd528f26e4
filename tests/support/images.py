"""The images that tests run apps from, made here because none can be pulled."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker

from dev.images import build, find_static_busybox

HELLO_PAGE = "Hello from the roll call"

SSH = """\
FROM {base}
COPY . /
RUN useradd --create-home --shell /bin/bash app && ssh-keygen -A && mkdir -p /run/sshd
LABEL rollcall.ssh_port=22 rollcall.http_port=8000
EXPOSE 22 8000
CMD ["/bin/sh", "-c", "/opt/busybox httpd -p 8000 -h /www && exec /usr/sbin/sshd -D -e"]
"""


@contextmanager
def imported(client: docker.APIClient, tree: Path, tag: str) -> Iterator[str]:
    """Import a tree as an image for as long as this lasts."""
    repository, _, version = tag.partition(":")
    client.import_image_from_file(str(tree), repository=repository, tag=version)
    try:
        yield tag
    finally:
        client.remove_image(tag)


def build_ssh(client: docker.APIClient, tag: str, *, base: str, page: str) -> None:
    """Build an image with the user `app`, chpasswd and an SSH server, and one page on port 8000."""
    busybox = find_static_busybox()
    assert busybox is not None
    files = {
        "opt/busybox": busybox.read_bytes(),
        "www/index.html": page.encode(),
        "etc/ssh/sshd_config.d/tests.conf": b"PasswordAuthentication yes\nUseDNS no\n",
    }
    build(client, tag, SSH.format(base=base), files)
