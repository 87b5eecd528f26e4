"""Reads secrets: a value in the settings, a file beside them, or a systemd credential."""

import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import quote

from config.load import ConfigError, mistakes_of, raise_invalid, raise_mistakes
from config.server import Secret

MIN_SECRET_LENGTH = 16
MIN_DIFFERENT_CHARACTERS = 8
OTHERS = stat.S_IROTH | stat.S_IWOTH
# Docker and Kubernetes mount secrets there, with modes of their own.
MOUNTED = Path("/run/secrets")
GENERATE_HINT = "make one with: openssl rand -hex 32"


class SecretReader:
    """Finds secrets: first among the systemd credentials, then relative to the settings file."""

    def __init__(self, *, settings_file: Path, environ: Mapping[str, str]) -> None:
        self._settings_file = settings_file
        self._credentials = environ.get("CREDENTIALS_DIRECTORY")
        # The files that were read, by the paths of their settings.
        self._files: dict[str, Path] = {}
        # The settings that hold secrets themselves.
        self._values = set[str]()

    def path(self, name: str) -> Path:
        """Return the path of a file named in the settings.

        That is a systemd credential of this name if there is one, else an absolute path or one
        relative to the settings file.
        """
        if self._credentials:
            credential = Path(self._credentials, name)
            if credential.exists():
                return credential
        return self._settings_file.parent / name

    def read_file(self, where: str, name: str) -> str:
        """Return the secret in a file, without the white space around it.

        ``where`` is the path of the setting, for the error.

        Raises:
            ConfigError: the file cannot be read, or its content is not a usable secret.

        """
        path = self._files[where] = self.path(name)
        try:
            text = path.read_text("ascii").strip()
        except OSError as error:
            raise self._error(where, f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise self._error(
                where, f"{path} holds more than ASCII text; {GENERATE_HINT}"
            ) from error
        return self._validated(where, text)

    def read(self, where: str, secret: Secret) -> str:
        """Return the text of a secret; ConfigError as for ``read_file``."""
        if secret.file is not None:
            return self.read_file(f"{where}.file", secret.file)
        self._values.add(f"{where}.value")
        return self._validated(f"{where}.value", secret.value or "")

    def checks(self, secrets: Iterable[tuple[str, Secret]]) -> list[Callable[[], object]]:
        """Return functions that read secrets, given with their paths in the settings."""
        return [partial(self.read, where, secret) for where, secret in secrets]

    def exposed(self, others: Mapping[str, str] | None = None) -> Iterator[str]:
        """Yield which files with secrets each user of this machine can read, with the remedy.

        ``others`` are files that are not read here, by the paths of their settings.
        """
        named = {where: self.path(name) for where, name in (others or {}).items()}
        written = {min(self._values): self._settings_file} if self._values else {}
        for where, path in sorted((self._files | named | written).items()):
            if not self._is_mounted(path) and _is_open(path):
                remedy = f"chmod o= {quote(str(path))}"
                yield f"{where}: other users of this host can read {path}; {remedy}"

    def _is_mounted(self, path: Path) -> bool:
        """Return whether systemd or a container engine has put a file in place."""
        places = [MOUNTED, *([Path(self._credentials)] if self._credentials else [])]
        return any(path.resolve().is_relative_to(place.resolve()) for place in places)

    def keys(self, keys: Iterable[Secret]) -> list[str]:
        """Return the text of each key under ``keys``, in their order.

        Raises:
            ConfigError: there is no key, one is not usable, or two are the same.

        """
        named = [(f"keys[{index}]", key) for index, key in enumerate(keys)]
        if not named:
            raise self._error(
                "keys",
                f"no key is set, so nobody could ask anything; {GENERATE_HINT}, and name its file",
            )
        raise_mistakes(mistakes_of(self._settings_file, self.key_checks(named)))
        return [self.read(where, key) for where, key in named]

    def key_checks(self, keys: Sequence[tuple[str, Secret]]) -> list[Callable[[], object]]:
        """Return functions that read keys, given with their paths, and that compare them."""
        return [*self.checks(keys), partial(self._check_distinct, keys)]

    def _check_distinct(self, keys: Iterable[tuple[str, Secret]]) -> None:
        """Raise InvalidSetting if two are the same; ignore those that are not usable."""
        texts = set[str]()
        same: list[str] = []
        for where, key in keys:
            with suppress(ConfigError):
                text = self.read(where, key)
                if text in texts:
                    same.append(f"{where}: is the same as an earlier key")
                texts.add(text)
        raise_invalid(same)

    def _validated(self, where: str, text: str) -> str:
        if len(text) < MIN_SECRET_LENGTH:
            raise self._error(
                where, f"has fewer than {MIN_SECRET_LENGTH} characters; {GENERATE_HINT}"
            )
        if len(set(text)) < MIN_DIFFERENT_CHARACTERS:
            raise self._error(
                where,
                f"has fewer than {MIN_DIFFERENT_CHARACTERS} different characters; {GENERATE_HINT}",
            )
        if not text.isascii() or not text.isprintable() or " " in text:
            raise self._error(where, f"holds white space or other than ASCII; {GENERATE_HINT}")
        return text

    def _error(self, where: str, problem: str) -> ConfigError:
        return ConfigError(f"{self._settings_file}: {where}: {problem}")


def _is_open(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & OTHERS)
    except OSError:
        return False  # which is a mistake of its own
