"""When certificates expire, read from their files in PEM form."""

import re
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# Tags of DER.
VERSION, UTC_TIME, GENERALIZED_TIME = 0xA0, 0x17, 0x18
FORMATS = {UTC_TIME: "%y%m%d%H%M%SZ", GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
# X.509 reads the two digits of a year as 1950 to 2049, Python as 1969 to 2068.
LAST_SHORT_YEAR = 2049
CENTURY = 100
# A length of this and more is followed by its own bytes, as many as the lower bits say.
LONG_LENGTH = 0x80


def expiries_of(*, certificate: Path | None, authorities: Path | None) -> dict[Path, float]:
    """Return when files expire, as Unix times; a file without a readable certificate is left out.

    A certificate expires with the first one of its chain. A file of authorities expires with the
    last one: while authorities are replaced, it holds old and new ones.
    """
    found: dict[Path, float] = {}
    if certificate is not None and (times := _times_in(certificate)):
        found[certificate] = min(times)
    if authorities is not None and (times := _times_in(authorities)):
        found[authorities] = max(times)
    return found


def _times_in(file: Path) -> list[float]:
    times: list[float] = []
    with suppress(OSError):
        for text in PEM.findall(file.read_text("ascii", errors="replace")):
            with suppress(ValueError):
                times.append(expiry_of(ssl.PEM_cert_to_DER_cert(text)))
    return times


def expiry_of(certificate: bytes) -> float:
    """Return when a certificate in DER form expires, as a Unix time. Raises ValueError.

    The standard library decodes a certificate only where a peer has shown it in a handshake.
    """
    try:
        ((_, whole),) = _values(certificate)
        (_, signed), *_ = _values(whole)
        first, *others = _values(signed)
        # The version may be left out; then come serial number, algorithm, issuer and validity.
        _, _, _, (_, validity), *_ = others if first[0] == VERSION else [first, *others]
        _, (tag, text) = _values(validity)
        at = datetime.strptime(text.decode("ascii"), FORMATS[tag]).replace(tzinfo=UTC)
    except (IndexError, KeyError, ValueError) as error:
        raise ValueError("no certificate in DER form") from error
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
