"""When files of certificates expire, as /metrics shows it."""

import datetime as dt
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from httpd.metrics import CertificateMetrics
from httpd.server.tls import ServerTls, TlsError, TlsFiles
from runtime.certificates import expiries, validities_of, validity_of
from tests.support.certificates import DAY, Authority
from tests.support.examples import share_of

KEY = ec.generate_private_key(ec.SECP256R1())
# Beyond 2049 a certificate holds its times in another form.
EPOCH = dt.datetime(1950, 1, 1, tzinfo=dt.UTC)
TIMES = st.integers(1, 8000 * 365).flatmap(
    lambda days: st.integers(0, 86_399).map(
        lambda seconds: EPOCH + dt.timedelta(days=days, seconds=seconds)
    )
)
DAMAGED = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
NAMES = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=16)


def certificate(name: str, until: dt.datetime) -> x509.Certificate:
    """Return a certificate that expires then, to the second."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(until - DAY)
        .not_valid_after(until)
        .sign(KEY, hashes.SHA256())
    )


def expiring(days: int) -> str:
    """Return the PEM of a certificate that expires so many days after the epoch."""
    until = dt.datetime.fromtimestamp(0, dt.UTC) + days * DAY
    return certificate("web-1", until).public_bytes(Encoding.PEM).decode()


@pytest.mark.slow
@settings(max_examples=share_of(50))
@given(NAMES, TIMES)
def test_the_dates_of_any_certificate_are_read(name: str, until: dt.datetime) -> None:
    made = certificate(name, until)

    assert validity_of(made.public_bytes(Encoding.DER)) == (
        made.not_valid_before_utc.timestamp(),
        made.not_valid_after_utc.timestamp(),
    )


@given(st.binary(max_size=40))
def test_what_is_no_certificate_is_reported(data: bytes) -> None:
    with pytest.raises(ValueError, match="no certificate in DER form"):
        validity_of(data)


@pytest.mark.slow
def test_a_certificate_that_is_cut_off_anywhere_is_reported() -> None:
    whole = certificate("web-1", dt.datetime(2030, 1, 1, tzinfo=dt.UTC)).public_bytes(Encoding.DER)

    for length in range(len(whole)):
        with pytest.raises(ValueError, match="no certificate in DER form"):
            validity_of(whole[:length])


def test_the_first_of_a_chain_counts_and_the_last_of_the_authorities(tmp_path: Path) -> None:
    chain, authorities = tmp_path / "web-1.crt", tmp_path / "ca.crt"
    for file in (chain, authorities):
        file.write_text(f"a comment, ü\n{expiring(3)}\nanother\n{expiring(2)}{expiring(4)}")

    found = validities_of(certificate=chain, authorities=authorities)

    assert found == {
        # Each is valid for the day before it expires.
        chain: (3 * 86_400, 2 * 86_400),
        authorities: (1 * 86_400, 4 * 86_400),
    }


def test_a_certificate_that_cannot_be_read_leaves_the_others_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text(f"{expiring(3)}{DAMAGED}{expiring(4)}")

    assert expiries(validities_of(certificate=file, authorities=None)) == {file: 3 * 86_400}
    assert expiries(validities_of(certificate=None, authorities=file)) == {file: 4 * 86_400}


def test_a_file_that_holds_no_certificate_is_left_out(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.crt"
    damaged.write_text(DAMAGED)

    assert validities_of(certificate=tmp_path / "none.crt", authorities=damaged) == {}
    assert validities_of(certificate=None, authorities=None) == {}


def test_of_two_uses_of_a_file_the_one_that_ends_first_counts(tmp_path: Path) -> None:
    file = tmp_path / "tls.crt"
    metrics = CollectorRegistry()
    metrics.register(CertificateMetrics([lambda: {file: 1_000.0}, lambda: {file: 2_000.0}]))

    name = "rollcall_certificate_expiry_timestamp_seconds"
    assert metrics.get_sample_value(name, {"file": str(file)}) == 1_000


@pytest.mark.slow
def test_the_certificate_that_is_in_use_counts(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("registry", age=-DAY)
    tls = ServerTls(TlsFiles(pair.certificate, pair.key, authority.ca))
    metrics = CollectorRegistry()
    metrics.register(CertificateMetrics([tls.expiries, tls.expiries]))

    def shown(file: Path) -> float | None:
        name = "rollcall_certificate_expiry_timestamp_seconds"
        return metrics.get_sample_value(name, {"file": str(file)})

    first = shown(pair.certificate)
    assert first is not None
    assert first - (shown(authority.ca) or 0) == pytest.approx(86_400, abs=60)
    assert generate_latest(metrics).count(b"registry.crt") == 1

    other = authority.issue("other")
    pair.certificate.write_bytes(other.certificate.read_bytes())
    with pytest.raises(TlsError):
        tls.renew()
    assert shown(pair.certificate) == first

    pair.key.write_bytes(other.key.read_bytes())
    assert tls.renew()
    assert first - (shown(pair.certificate) or 0) == pytest.approx(86_400, abs=60)
