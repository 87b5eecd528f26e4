"""When certificates are valid, read from their files in PEM form."""

import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# Tags of DER.
VERSION, UTC_TIME, GENERALIZED_TIME = 0xA0, 0x17, 0x18
FORMATS = {UTC_TIME: "%y%m%d%H%M%SZ", GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
# X.509 reads the two digits of a year as 1950 to 2049, Python as 1969 to 2068.
LAST_SHORT_YEAR = 2049
CENTURY = 100
# A length of this and more is followed by its own bytes, as many as the lower bits say.
LONG_LENGTH = 0x80


class Validity(NamedTuple):
    """From when until when a certificate is valid, as Unix times."""

    begins: float
    ends: float

    def fault(self) -> str | None:
        """Return why peers reject the certificate now; None if its dates are no reason."""
        now = time.time()
        if now > self.ends:
            return f"expired at {_written(self.ends)}; replace it with a renewed one"
        if now < self.begins:
            return (
                f"is not valid before {_written(self.begins)}; use one that is valid now, and check"
                " the clock of this host"
            )
        return None


Validities = Mapping[Path, Validity]


class CertificateFiles(NamedTuple):
    """The files of certificates that a setting names, as they are written there."""

    setting: str
    certificate: str | None
    authorities: str | None


def validities_of(*, certificate: Path | None, authorities: Path | None) -> dict[Path, Validity]:
    """Return when files are valid; a file without a readable certificate is left out.

    A certificate expires with the first one of its chain. A file of authorities expires with the
    last one: while authorities are replaced, it holds old and new ones.
    """
    found: dict[Path, Validity] = {}
    if certificate is not None and (dates := _dates_in(certificate)):
        begins, ends = zip(*dates, strict=True)
        found[certificate] = Validity(max(begins), min(ends))
    if authorities is not None and (dates := _dates_in(authorities)):
        begins, ends = zip(*dates, strict=True)
        found[authorities] = Validity(min(begins), max(ends))
    return found


def expiries(validities: Validities) -> dict[Path, float]:
    """Return when the files expire, as Unix times."""
    return {file: validity.ends for file, validity in validities.items()}


def faults(validities: Validities) -> list[str]:
    """Return a text for each file that peers reject now, because of its dates."""
    found = ((file, validity.fault()) for file, validity in validities.items())
    return [f"{file} {fault}" for file, fault in found if fault is not None]


def new_faults(validities: Validities, *, before: Validities) -> list[str]:
    """Return the faults of those files that were valid before they were renewed."""
    valid = {file for file, validity in before.items() if validity.fault() is None}
    return faults({file: each for file, each in validities.items() if file in valid})


def settings_faults(named: Iterable[CertificateFiles], find: Callable[[str], Path]) -> list[str]:
    """Return the faults of files, each with its setting; ``find`` returns a file's path."""
    found: list[str] = []
    for setting, certificate, authorities in named:
        validities = validities_of(
            certificate=None if certificate is None else find(certificate),
            authorities=None if authorities is None else find(authorities),
        )
        found += [f"{setting}: {fault}" for fault in faults(validities)]
    return found


def _written(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _dates_in(file: Path) -> list[Validity]:
    found: list[Validity] = []
    with suppress(OSError):
        for text in PEM.findall(file.read_text("ascii", errors="replace")):
            with suppress(ValueError):
                found.append(validity_of(ssl.PEM_cert_to_DER_cert(text)))
    return found


def validity_of(certificate: bytes) -> Validity:
    """Return when a certificate in DER form is valid. Raises ValueError.

    The standard library decodes a certificate only where a peer has shown it in a handshake.
    """
    try:
        ((_, whole),) = _values(certificate)
        (_, signed), *_ = _values(whole)
        first, *others = _values(signed)
        # The version may be left out; then come serial number, algorithm, issuer and validity.
        _, _, _, (_, validity), *_ = others if first[0] == VERSION else [first, *others]
        begins, ends = _values(validity)
        return Validity(_time(*begins), _time(*ends))
    except (IndexError, KeyError, ValueError) as error:
        raise ValueError("no certificate in DER form") from error


def _time(tag: int, text: bytes) -> float:
    """Return a Unix time. Raises KeyError and ValueError."""
    at = datetime.strptime(text.decode("ascii"), FORMATS[tag]).replace(tzinfo=UTC)
    if tag == UTC_TIME and at.year > LAST_SHORT_YEAR:
        at = at.replace(year=at.year - CENTURY)
    return at.timestamp()


def _values(data: bytes) -> list[tuple[int, bytes]]:
    """Return the values in a sequence, each with its tag. Raises IndexError and ValueError."""
    found = []
    while data:
        tag, length, start = data[0], data[1], 2
        if length >= LONG_LENGTH:
            start += length - LONG_LENGTH
            length = int.from_bytes(data[2:start])
        end = start + length
        if end > len(data):
            raise ValueError("a value is cut off")
        found.append((tag, data[start:end]))
        data = data[end:]
    return found
