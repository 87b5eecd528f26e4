"""Names of images, and logins at registries of images."""

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docker.auth import resolve_repository_name
from docker.utils import parse_repository_tag

from agent.engine.errors import ImageUnavailable

HUB = "docker.io"
# A server differs from the first part of a path by a dot, a port, or the name `localhost`.
IMAGE_PREFIX = re.compile(
    r"(?:localhost|(?=[^/]*[.:])[a-z0-9][a-z0-9.-]*(?::[0-9]{1,5})?)/(?:[a-z0-9][a-z0-9._-]*/)*"
)


@dataclass(frozen=True, kw_only=True)
class ImageRegistryLogin:
    """A login at a registry of images, or at a part of it (``images.example.com:5000/team``).

    The password file is read at each pull, so a changed password is used at the next one.
    """

    server: str
    user: str
    password_file: Path

    def covers(self, repository: str) -> bool:
        """Return whether images of this repository, a full name, are pulled with this login."""
        server = self.server.rstrip("/")
        return repository == server or repository.startswith(server + "/")


def full_name(repository: str) -> str:
    """Return a repository's name with its server; a name without a server is Docker Hub's."""
    server, path = resolve_repository_name(repository)
    if server == HUB:
        return f"{HUB}/{path.removeprefix('library/')}"
    return f"{server}/{path}"


def normal_name(reference: str) -> str:
    """Return the name of an image with its server, as ``docker.io/library/nginx`` for ``nginx``."""
    repository, _ = parse_repository_tag(reference)
    server, path = resolve_repository_name(repository)
    if server == HUB and "/" not in path:
        path = f"library/{path}"
    return f"{server.lower()}/{path}"


def is_image_prefix(text: str) -> bool:
    """Return whether this is a server of images, or a part of one, with a slash at its end."""
    return IMAGE_PREFIX.fullmatch(text) is not None


def full_reference(reference: str) -> str:
    """Return a reference with its server and its tag or digest, ``latest`` if it has none."""
    repository, tag = parse_repository_tag(reference)
    return f"{full_name(repository)}:{tag or 'latest'}"


def pull_query(reference: str) -> dict[str, str]:
    """Return the query of a pull. The tag defaults to ``latest``: without one, all are pulled."""
    repository, tag = parse_repository_tag(reference)
    return {"fromImage": repository, "tag": tag or "latest"}


def came_from_registry(reference: str, digests: Sequence[str]) -> bool:
    """Return whether an image was pulled from, or pushed to, the repository of this reference.

    Digests of other repositories do not count: the same image may have been pushed there.
    """
    repository, _ = parse_repository_tag(reference)
    known = {digest.partition("@")[0] for digest in digests}
    return full_name(repository) in map(full_name, known)


def digest_of(reference: str, digests: Sequence[str]) -> str | None:
    """Return the digest, ``NAME@sha256:HEX``, by which the server of a reference knows an image.

    One that is given by its id is known by any of its digests. None if there is none.
    """
    if is_image_id(reference):
        return next(iter(digests), None)
    return next((each for each in digests if came_from_registry(reference, [each])), None)


def is_image_id(reference: str) -> bool:
    """Return whether a reference is the id of an image, which no server knows."""
    return reference.startswith("sha256:")


def names_server(reference: str) -> bool:
    """Return whether a reference names a server of images; one that does not is Docker Hub's."""
    repository, _ = parse_repository_tag(reference)
    return resolve_repository_name(repository)[0] != HUB


def login_header(reference: str, logins: Sequence[ImageRegistryLogin]) -> dict[str, str]:
    """Return the header with the login whose server matches longest; empty if none matches.

    Raises:
        ImageUnavailable: the password cannot be read.

    """
    repository, _ = parse_repository_tag(reference)
    name = full_name(repository)
    fitting = [login for login in logins if login.covers(name)]
    if not fitting:
        return {}
    login = max(fitting, key=lambda each: len(each.server))
    try:
        password = login.password_file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ImageUnavailable(
            f"the password for {login.server} cannot be read from {login.password_file}"
        ) from error
    document = {
        "username": login.user,
        "password": password,
        "serveraddress": name.partition("/")[0],
    }
    encoded = base64.urlsafe_b64encode(json.dumps(document).encode())
    return {"X-Registry-Auth": encoded.decode("ascii")}
