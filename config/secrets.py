"""Reading secrets: a value in the settings, a file beside them, or a systemd credential."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from config.load import ConfigError
from config.server import Secret

SHORTEST = 16
MAKE_ONE = "make one with: openssl rand -hex 32"


class GivenSecret(Protocol):
    """A key as either daemon's settings give it."""

    @property
    def value(self) -> str | None:
        """The secret itself."""

    @property
    def file(self) -> str | None:
        """The file that holds it."""


class Secrets:
    """Where secrets are looked up: beside the settings file, credentials of systemd first."""

    def __init__(self, *, settings_file: Path, environ: Mapping[str, str]) -> None:
        self._settings_file = settings_file
        self._credentials = environ.get("CREDENTIALS_DIRECTORY")

    def path(self, name: str) -> Path:
        """Find a file named in the settings: absolute, a credential, or beside the settings."""
        if self._credentials:
            credential = Path(self._credentials, name)
            if credential.exists():
                return credential
        return self._settings_file.parent / name

    def read_file(self, where: str, name: str) -> str:
        """Read a secret from its file, without the white space around it.

        Raises:
            ConfigError: the file cannot be read or what it holds is no usable secret.

        """
        path = self.path(name)
        try:
            text = path.read_text("ascii").strip()
        except OSError as error:
            raise self._error(where, f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise self._error(where, f"{path} holds more than ASCII text; {MAKE_ONE}") from error
        return self._usable(where, text)

    def read(self, where: str, secret: Secret | GivenSecret) -> str:
        """Give the secret's text, or raise ConfigError."""
        if secret.file is not None:
            return self.read_file(f"{where}.file", secret.file)
        return self._usable(f"{where}.value", secret.value or "")

    def keys(self, keys: Iterable[GivenSecret]) -> list[str]:
        """Give each key's text, in their order; at least one, no two alike.

        Raises:
            ConfigError: there is none, one cannot be read, or one is too short.

        """
        texts = [self.read(f"keys[{index}]", key) for index, key in enumerate(keys)]
        if not texts:
            raise self._error(
                "keys",
                f"no key is set, so nobody could ask anything; {MAKE_ONE}, and name its file",
            )
        for index, text in enumerate(texts):
            if text in texts[:index]:
                raise self._error(f"keys[{index}]", "is the same as an earlier key")
        return texts

    def _usable(self, where: str, text: str) -> str:
        if len(text) < SHORTEST:
            raise self._error(where, f"has fewer than {SHORTEST} characters; {MAKE_ONE}")
        if not text.isascii() or not text.isprintable() or " " in text:
            raise self._error(where, f"holds white space or other than ASCII; {MAKE_ONE}")
        return text

    def _error(self, where: str, problem: str) -> ConfigError:
        return ConfigError(f"{self._settings_file}: {where}: {problem}")
