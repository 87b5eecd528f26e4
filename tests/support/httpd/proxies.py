"""The reverse proxies of docs/proxies.md: real programs with the configurations of the page."""

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from dev.waiting import until
from tests.support.certificates import Pair
from tests.support.pages import Page

START_SECONDS = 30.0
# What Debian's own file says around the page's; the workers keep this user.
NGINX = """
user root;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{server}
}}
"""


def _of_page(page: Page, language: str, words: Mapping[str, str]) -> str:
    (block,) = page.blocks(language)
    text = block.text
    for word, other in words.items():
        assert word in text, f"{page.name} has no {word!r} for {language}"
        text = text.replace(word, other)
    return text


@contextmanager
def nginx(
    page: Page, folder: Path, *, port: int, pair: Pair, daemons: Mapping[str, str]
) -> Iterator[str]:
    """Run the page's nginx on a port; yield its URL. ``daemons`` replace the page's addresses."""
    folder.mkdir()
    words = {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/rollcall/proxy.crt": str(pair.certificate),
        "/etc/rollcall/proxy.key": str(pair.key),
        **daemons,
    }
    file = folder / "nginx.conf"
    file.write_text(NGINX.format(folder=folder, server=_of_page(page, "nginx", words)))
    with _running(["nginx", "-e", f"{folder}/error.log", "-c", str(file)], folder, port):
        yield f"https://127.0.0.1:{port}"


@contextmanager
def haproxy(
    page: Page, folder: Path, *, port: int, pair: Pair, daemons: Mapping[str, str]
) -> Iterator[str]:
    """Run the page's HAProxy, as above."""
    folder.mkdir()
    both = folder / "proxy.pem"
    both.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
    words = {"bind :443": f"bind 127.0.0.1:{port}", "/etc/rollcall/proxy.pem": str(both), **daemons}
    file = folder / "haproxy.cfg"
    file.write_text(_of_page(page, "haproxy", words))
    with _running(["haproxy", "-db", "-f", str(file)], folder, port):
        yield f"https://127.0.0.1:{port}"


@contextmanager
def _running(command: list[str], folder: Path, port: int) -> Iterator[None]:
    environment = os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        until(lambda: _accepts(process, folder, port), command[0], within=START_SECONDS)
        yield
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def _accepts(process: subprocess.Popen[bytes], folder: Path, port: int) -> bool:
    assert process.poll() is None, (folder / "log").read_text()
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
