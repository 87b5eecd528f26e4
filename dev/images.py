"""Builds images FROM scratch: nothing is pulled."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import docker

APPLETS = ("cat", "env", "hostname", "httpd", "id", "ls", "mkdir", "ps", "sh", "sleep", "wget")
BUSYBOX_LINKS = {f"bin/{applet}": "busybox" for applet in APPLETS}
BUSYBOX_PATHS = (
    "/bin/busybox",
    "/usr/bin/busybox",
    "/bin/busybox.static",
    "/usr/bin/busybox-static",
)
BUSYBOX_INSTRUCTIONS = (
    "LABEL rollcall.http_port=8000",
    "EXPOSE 8000",
    """CMD ["/bin/sh", "-c", "trap 'exit 0' TERM; httpd -f -p 8000 -h /www & wait"]""",
)


class ImageError(Exception):
    """The image could not be built; the text is the engine's, or names what is missing."""


def find_static_busybox() -> Path | None:
    """Return the path of a statically linked busybox (Debian: busybox-static), None without one."""
    for path in map(Path, BUSYBOX_PATHS):
        if path.is_file():
            with path.open("rb") as file:
                if b"/ld-" not in file.read(4096):
                    return path
    return None


def build_busybox(
    client: docker.APIClient, tag: str, *, page: str, labels: Mapping[str, str] | None = None
) -> None:
    """Build an image of less than 3 MB that serves one page on port 8000, and has a shell and ps.

    Its container ends at SIGTERM with exit code 0. ``labels`` are added to the image's own.

    Raises:
        ImageError: there is no static busybox, or the build failed.

    """
    dockerfile = "\n".join(("FROM scratch", "COPY . /", *BUSYBOX_INSTRUCTIONS, ""))
    build(client, tag, dockerfile, _busybox_files(page), links=BUSYBOX_LINKS, labels=labels)


def import_busybox(client: docker.APIClient, repository: str, *, page: str) -> None:
    """Import the image that `build_busybox` builds, as `latest`, at a sixth of the cost.

    Each import makes another image, where a build finds the one that is there.

    Raises:
        ImageError: there is no static busybox, or the import was interrupted.
        docker.errors.APIError: the engine rejected it.

    """
    tree = _archive(_busybox_files(page), BUSYBOX_LINKS)
    client.import_image_from_data(
        tree.getvalue(), repository=repository, tag="latest", changes=list(BUSYBOX_INSTRUCTIONS)
    )
    if not client.images(name=repository):  # an interrupted import is answered with 200
        raise ImageError(f"{repository}: the import was interrupted")


def _busybox_files(page: str) -> dict[str, bytes]:
    busybox = find_static_busybox()
    if busybox is None:
        raise ImageError("no static busybox here (Debian: busybox-static)")
    return {
        "bin/busybox": busybox.read_bytes(),
        "etc/passwd": b"root:x:0:0:root:/:/bin/sh\n",
        "www/index.html": page.encode(),
    }


def build(
    client: docker.APIClient,
    tag: str,
    dockerfile: str,
    files: Mapping[str, bytes],
    *,
    links: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> None:
    """Build an image without network from files in memory, which all become executable.

    Raises:
        ImageError: the build failed.

    """
    context = _archive(
        {"Dockerfile": dockerfile.encode(), ".dockerignore": b"Dockerfile\n.dockerignore\n"}
        | dict(files),
        links or {},
    )
    events = client.build(
        fileobj=context,
        custom_context=True,
        tag=tag,
        network_mode="none",
        labels=dict(labels or {}),
        rm=True,
        decode=True,
    )
    for event in events:
        if "error" in event:
            raise ImageError(f"{tag}: {event['error'].strip()}")


def _archive(files: Mapping[str, bytes], links: Mapping[str, str]) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o755
            archive.addfile(member, io.BytesIO(data))
        for name, target in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    buffer.seek(0)
    return buffer
