"""The identity of this host (``agent.id``), and all that the agent has to know by it."""

import fcntl
import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from agent.state.files import IdentityError, write_private

IDENTITY_FILE = "identity.json"
NODE_KEY_PREFIX = "rk1."


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file.

    ``names`` holds node keys (or null) by registry URL and hostname. ``former`` are identities that
    the agent had, ``adopted`` those of agents whose apps it took over.
    """

    id: str
    machine: str | None
    names: dict[str, dict[str, str | None]] = {}
    former: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()


class Identity:
    """The host's ``agent.id``, its former and adopted identities, and its names at registries.

    The identity stays the same when the host is renamed. It belongs to one machine, known by
    ``machine`` (the content of /etc/machine-id, None if there is none). State that was copied to
    another machine, as in a cloned disk image, gets a new identity without names; the copied one is
    a former identity then, since the copied containers carry it. A damaged file is renamed and
    replaced by a new identity; former and adopted identities are lost with it.

    The agent and its commands may write at the same time: each write changes the file as it is
    then, under a lock of the directory.

    Raises:
        IdentityError: the file cannot be read or written.

    """

    def __init__(self, *, directory: Path, machine: str | None) -> None:
        self._file = directory / IDENTITY_FILE
        with self._locked():
            self._record = self._opened(None if machine is None else _machine_digest(machine))

    @property
    def id(self) -> str:
        """The identity, a random UUID, which is written on what the agent makes."""
        return self._record.id

    @property
    def own(self) -> frozenset[str]:
        """The identities that this agent has or had."""
        return frozenset((self._record.id, *self._record.former))

    @property
    def all(self) -> frozenset[str]:
        """The identities that this agent has or had, and those that it adopted."""
        return self.own.union(self._record.adopted)

    def adopt(self, identities: Iterable[str]) -> None:
        """Save identities of other agents, whose apps are this agent's now. Raises IdentityError.

        Identities that were adopted before stay.
        """
        with self._locked():
            record = self._present()
            adopted = tuple(dict.fromkeys((*record.adopted, *identities)))
            self._write(msgspec.structs.replace(record, adopted=adopted))

    def refresh(self) -> None:
        """Read the file again: `rollcall-agent adopt` may have added to it."""
        self._record = self._present()

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
            self._save_names(url, hostname, {hostname: kept})

    def release(self, url: str, hostname: str) -> None:
        """Delete a name that the registry no longer has for this host. Raises IdentityError."""
        if self.has_name(url, hostname):
            self._save_names(url, hostname, {})

    def _save_names(self, url: str, hostname: str, saved: dict[str, str | None]) -> None:
        """Put ``saved``, which holds the hostname or nothing, in the place of a hostname."""
        with self._locked():
            record = self._present()
            names = dict(record.names.get(url, {}))
            names.pop(hostname, None)
            self._write(
                msgspec.structs.replace(record, names={**record.names, url: {**names, **saved}})
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from a change meanwhile; the lock is that of the directory."""
        try:
            descriptor = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise IdentityError(f"{self._file} cannot be read: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _present(self) -> _Record:
        """Return the content of the file; what is known if another identity's or none is there."""
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            record = self._decoded()
            if record.id == self._record.id:
                return record
        return self._record

    def _opened(self, machine: str | None) -> _Record:
        """Return the record of this machine: that in the file, or a new one, which is written."""
        found = self._read()
        if found is not None and machine in (None, found.machine):
            return found
        if found is None:
            record = _Record(id=str(uuid.uuid4()), machine=machine)
        elif found.machine is None:  # made before the machine had an id
            record = msgspec.structs.replace(found, machine=machine)
        else:
            record = _Record(
                id=str(uuid.uuid4()),
                machine=machine,
                former=(*found.former, found.id),
                adopted=found.adopted,
            )
        self._write(record)
        return record

    def _read(self) -> _Record | None:
        try:
            return self._decoded()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise IdentityError(f"{self._file} cannot be read: {error.strerror}") from error
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Registries give the name to the new identity as soon as the old one is stale.
            self._file.replace(self._file.with_suffix(".damaged"))
            return None

    def _decoded(self) -> _Record:
        return msgspec.json.decode(self._file.read_bytes(), type=_Record)

    def _write(self, record: _Record) -> None:
        """Write the file first: after a failure the next call tries again."""
        try:
            write_private(self._file, msgspec.json.encode(record), durable=True)
        except OSError as error:
            raise IdentityError(f"{self._file} cannot be written: {error.strerror}") from error
        self._record = record


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
