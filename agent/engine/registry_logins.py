"""Who we are to which server of images."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docker.auth import resolve_repository_name

from agent.engine.protocol import ImageUnavailable

HUB = "docker.io"


@dataclass(frozen=True, kw_only=True)
class ImageRegistryLogin:
    """A login at a server of images, or at a part of it (``images.example.com:5000/team``).

    The password is read when it is used, so that a new one counts from the next pull on.
    """

    server: str
    user: str
    password_file: Path

    def covers(self, repository: str) -> bool:
        """Whether an image of this repository, its server included, is fetched with this login."""
        server = self.server.rstrip("/")
        return repository == server or repository.startswith(server + "/")


def full_name(repository: str) -> str:
    """Give a repository's name with its server, which is left out for Docker Hub."""
    server, path = resolve_repository_name(repository)
    if server == HUB:
        return f"{HUB}/{path.removeprefix('library/')}"
    return f"{server}/{path}"


def login_header(repository: str, logins: Sequence[ImageRegistryLogin]) -> dict[str, str]:
    """Give the header that carries the login with the longest match, nothing without one.

    Raises:
        ImageUnavailable: the password cannot be read.

    """
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
