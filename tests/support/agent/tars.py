"""Tars of apps' data."""

import io
import tarfile
from collections.abc import Mapping


def member(name: str, **fields: object) -> tarfile.TarInfo:
    """Return an entry of a tar: a file, unless ``type`` says another."""
    entry = tarfile.TarInfo(name)
    entry.mode = 0o644
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry


def packed(files: Mapping[str, bytes | None], *others: tarfile.TarInfo) -> bytes:
    """Return a tar of files with their content, of directories (None), and of other entries."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = member(name, size=len(content or b""))
            if content is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry, io.BytesIO(content or b""))
        for entry in others:
            archive.addfile(entry)
    return buffer.getvalue()


def unpacked(tar: bytes) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    """Return the entries of a tar with their content, by name."""
    found = dict[str, tuple[tarfile.TarInfo, bytes]]()
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        for entry in archive:
            file = archive.extractfile(entry) if entry.isreg() else None
            found[entry.name] = (entry, file.read() if file else b"")
    return found
