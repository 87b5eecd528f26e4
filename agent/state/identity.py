"""Who this host is, whatever it is called: made once, kept in the agent's state."""

import hashlib
import uuid
from pathlib import Path

import msgspec

from agent.state.files import write_atomically

IDENTITY_FILE = "identity.json"
NODE_KEY_PREFIX = "rk1."


class IdentityError(Exception):
    """The identity cannot be read or kept; the text says where and why."""


class _IdentityRecord(msgspec.Struct, forbid_unknown_fields=True):
    """What the file holds: ``names`` gives, by URL and hostname, the node key that goes with it."""

    id: str
    machine: str | None
    names: dict[str, dict[str, str | None]] = {}


class Identity:
    """The host's ``agent.id``, and the names under which it made itself known to registries.

    The identity belongs to one machine: state that was copied to another one, in an image that
    machines are cloned from, is told by ``machine`` (the content of /etc/machine-id, None where
    there is none) and gets an identity of its own, and no names. So does a damaged file, which is
    set aside.
    """

    def __init__(self, *, directory: Path, machine: str | None) -> None:
        self._file = directory / IDENTITY_FILE
        self._machine = None if machine is None else _machine_digest(machine)
        self._record = self._read() or self._new()
        self._bind_to_machine()

    @property
    def id(self) -> str:
        """The identity, a random UUID."""
        return self._record.id

    def other_names(self, url: str, hostname: str) -> list[str]:
        """Give the names, other than this one, under which the registry may know this host."""
        return [name for name in self._record.names.get(url, {}) if name != hostname]

    def node_key(self, url: str, hostname: str) -> str | None:
        """Give the node key that was used for this name, if it was one."""
        return self._record.names.get(url, {}).get(hostname)

    def claim(self, url: str, hostname: str, key: str) -> None:
        """Write down, before it is used, that the registry gets to know this host by this name.

        A node key is kept with it: once the host has another name and key, only the old one can
        take the old name out. One for another name, which is there before that name is, replaces
        none.
        """
        names = self._record.names.get(url, {})
        kept = key if key.startswith(NODE_KEY_PREFIX) else None
        if kept is not None and kept.removeprefix(NODE_KEY_PREFIX).rpartition(".")[0] != hostname:
            kept = names.get(hostname)
        if names.get(hostname, "") != kept:
            self._save_names(url, {**names, hostname: kept})

    def release(self, url: str, hostname: str) -> None:
        """Write down that the registry no longer knows this host by this name."""
        names = self._record.names.get(url, {})
        if hostname in names:
            self._save_names(url, {name: names[name] for name in names if name != hostname})

    def _save_names(self, url: str, names: dict[str, str | None]) -> None:
        """Write a registry's names down, and only then go by them: what failed is tried again."""
        record = msgspec.structs.replace(self._record, names={**self._record.names, url: names})
        self._write(record)
        self._record = record

    def _read(self) -> _IdentityRecord | None:
        try:
            record = msgspec.json.decode(self._file.read_bytes(), type=_IdentityRecord)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise IdentityError(f"{self._file} cannot be read: {error.strerror}") from error
        except (msgspec.DecodeError, UnicodeDecodeError):
            # The registries let the new identity have the name as soon as the old one is stale.
            self._file.replace(self._file.with_suffix(".damaged"))
            return None
        return record if self._is_of_this_machine(record) else None

    def _is_of_this_machine(self, record: _IdentityRecord) -> bool:
        return record.machine == self._machine or self._machine is None or record.machine is None

    def _bind_to_machine(self) -> None:
        """Tie an identity that was made before the machine had an id of its own to that one."""
        if self._record.machine is None and self._machine is not None:
            self._record.machine = self._machine
            self._write(self._record)

    def _new(self) -> _IdentityRecord:
        record = _IdentityRecord(id=str(uuid.uuid4()), machine=self._machine)
        self._write(record)
        return record

    def _write(self, record: _IdentityRecord) -> None:
        try:
            write_atomically(self._file, msgspec.json.encode(record), durable=True)
        except OSError as error:
            raise IdentityError(f"{self._file} cannot be written: {error.strerror}") from error


def machine_id(path: Path = Path("/etc/machine-id")) -> str | None:
    """Give what systemd calls this machine, or None where it has not been called anything yet."""
    try:
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if text and text != "uninitialized" else None


def _machine_digest(machine: str) -> str:
    # The machine's own id is to be kept confidential: man machine-id.
    return hashlib.sha256(f"rollcall agent {machine}".encode()).hexdigest()
