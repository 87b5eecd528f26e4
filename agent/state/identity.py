"""The identity of this host (``agent.id``), and all that this agent ever had.

The identity stays the same when the host is renamed. By those that it ever had the agent knows its
containers and volumes; they are in a file of their own, since an agent of an earlier version would
take `identity.json` for damaged if it had another field, and begin with a new identity.
"""

import hashlib
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from agent.state.files import IdentityError, write_atomically

IDENTITY_FILE = "identity.json"
IDENTITIES_FILE = "identities.json"
NODE_KEY_PREFIX = "rk1."


class _IdentityRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the file. ``names`` holds node keys (or null) by registry URL and hostname."""

    id: str
    machine: str | None
    names: dict[str, dict[str, str | None]] = {}


class Identity:
    """The host's ``agent.id``, and the hostnames under which each registry may know it.

    An identity belongs to one machine, known by ``machine`` (the content of /etc/machine-id, None
    if there is none). State that was copied to another machine, as in a cloned disk image, gets a
    new identity without names; ``former`` is the one that it had. A damaged file is renamed and
    replaced by a new identity.

    Raises:
        IdentityError: the file cannot be read or written.

    """

    def __init__(self, *, directory: Path, machine: str | None) -> None:
        self._file = directory / IDENTITY_FILE
        self._machine = None if machine is None else _machine_digest(machine)
        self.former: str | None = None
        self._record = self._read() or self._new()
        self._bind_to_machine()

    @property
    def id(self) -> str:
        """The identity, a random UUID."""
        return self._record.id

    def other_names(self, url: str, hostname: str) -> list[str]:
        """Return the names other than ``hostname`` under which the registry may know this host."""
        return [name for name in self._record.names.get(url, {}) if name != hostname]

    def has_name(self, url: str, hostname: str) -> bool:
        """Return whether the registry may know this host under this name."""
        return hostname in self._record.names.get(url, {})

    def node_key(self, url: str, hostname: str) -> str | None:
        """Return the node key that was used for this name, None if it was another kind of key."""
        return self._record.names.get(url, {}).get(hostname)

    def claim(self, url: str, hostname: str, key: str) -> None:
        """Save a name for a registry, before the first heartbeat under that name.

        A node key is saved with its name: after the host is renamed and has a new key, only the old
        key can remove the old name. A node key for another name, as while a rename is prepared,
        does not replace the saved one. Raises IdentityError.
        """
        names = self._record.names.get(url, {})
        kept = key if key.startswith(NODE_KEY_PREFIX) else None
        if kept is not None and kept.removeprefix(NODE_KEY_PREFIX).rpartition(".")[0] != hostname:
            kept = names.get(hostname)
        if names.get(hostname, "") != kept:
            self._save_names(url, {**names, hostname: kept})

    def release(self, url: str, hostname: str) -> None:
        """Delete a name that the registry no longer has for this host. Raises IdentityError."""
        names = self._record.names.get(url, {})
        if hostname in names:
            self._save_names(url, {name: names[name] for name in names if name != hostname})

    def _save_names(self, url: str, names: dict[str, str | None]) -> None:
        """Write the file first: after a failure the next call tries again."""
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
            # Registries give the name to the new identity as soon as the old one is stale.
            self._file.replace(self._file.with_suffix(".damaged"))
            return None
        if self._is_of_this_machine(record):
            return record
        self.former = record.id
        return None

    def _is_of_this_machine(self, record: _IdentityRecord) -> bool:
        return record.machine == self._machine or self._machine is None or record.machine is None

    def _bind_to_machine(self) -> None:
        """Bind an identity that was created before the machine had an id to the machine's id."""
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
    """Return the machine id of systemd, None if it is not set yet."""
    try:
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if text and text != "uninitialized" else None


def _machine_digest(machine: str) -> str:
    # The machine id itself must be kept confidential: see machine-id(5).
    return hashlib.sha256(f"rollcall agent {machine}".encode()).hexdigest()


class _IdentitiesRecord(msgspec.Struct, frozen=True):
    """The content of the file: what the agent is or was called, and what it adopted."""

    identities: tuple[str, ...]
    adopted: tuple[str, ...] = ()


class Identities:
    """All identities of one agent; ``current`` is written on what it makes (``agent.id``).

    Raises:
        IdentityError: the file cannot be read or written.

    """

    def __init__(self, *, directory: Path, current: str) -> None:
        self.current = current
        self._file = directory / IDENTITIES_FILE
        self._record = self._open()
        self.add(current)

    @property
    def names(self) -> frozenset[str]:
        """The identities that this agent has or had."""
        return frozenset(self._record.identities)

    @property
    def all(self) -> frozenset[str]:
        """The identities that this agent has or had, and those that it adopted."""
        return frozenset((*self._record.identities, *self._record.adopted))

    def add(self, identity: str) -> None:
        """Write down an identity that this agent has or had; IdentityError."""
        identities = dict.fromkeys((*self._record.identities, identity))
        self._write(msgspec.structs.replace(self._record, identities=tuple(identities)))

    def adopt(self, identities: Iterable[str]) -> None:
        """Write down identities of others; IdentityError. Nothing from before is forgotten."""
        adopted = tuple(dict.fromkeys((*self._record.adopted, *identities)))
        self._write(msgspec.structs.replace(self._record, adopted=adopted))

    def _write(self, record: _IdentitiesRecord) -> None:
        if record == self._record and self._file.exists():
            return
        try:
            write_atomically(self._file, msgspec.json.encode(record), durable=True)
        except OSError as error:
            raise IdentityError(f"{self._file} cannot be written: {error.strerror}") from error
        self._record = record

    def refresh(self) -> None:
        """Read the file again: `rollcall-agent adopt` may have added to it."""
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            self._record = self._read()

    def _read(self) -> _IdentitiesRecord:
        return msgspec.json.decode(self._file.read_bytes(), type=_IdentitiesRecord)

    def _open(self) -> _IdentitiesRecord:
        try:
            return self._read()
        except FileNotFoundError:
            return _IdentitiesRecord(())
        except OSError as error:
            raise IdentityError(f"{self._file} cannot be read: {error.strerror}") from error
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._file.replace(self._file.with_suffix(".damaged"))
            return _IdentitiesRecord(())


def open_identities(identity: Identity, *, directory: Path) -> Identities:
    """Open the list of identities.

    Raises:
        IdentityError: the file cannot be read or written.

    """
    identities = Identities(directory=directory, current=identity.id)
    if identity.former is not None:  # a copied machine's containers carry it
        identities.add(identity.former)
    return identities
