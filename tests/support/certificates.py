"""A private CA for tests, and the certificates that it signs."""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey: TypeAlias = ec.EllipticCurvePublicKey | rsa.RSAPublicKey
DAY = dt.timedelta(days=1)
CA_USAGE = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files in PEM form."""

    certificate: Path
    key: Path


class Authority:
    """A CA whose own certificate is the file ``ca``; all are good for so long.

    They pass ``openssl verify -x509_strict``, unless they are to be ``lax``: such a CA has no
    keyUsage, and what it signs no key identifiers.
    """

    def __init__(
        self,
        folder: Path,
        name: str = "test CA",
        *,
        lifetime: dt.timedelta = DAY,
        lax: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lifetime = lifetime
        self._lax = lax
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.ca = folder / "ca.crt"
        certificate = _signed(
            self._name, self._name, self._key, self._key, ca=True, lifetime=lifetime, lax=lax
        )
        self.ca.write_bytes(_pem(certificate))

    def issue(
        self,
        *names: str,
        stem: str = "",
        age: dt.timedelta = dt.timedelta(0),
        key: PrivateKey | None = None,
    ) -> Pair:
        """Make a certificate for DNS names and addresses, good from ``age`` ago."""
        pair = _pair(self._folder, stem or names[0])
        key = key or ec.generate_private_key(ec.SECP256R1())
        certificate = _signed(
            *(_name(names[0]), self._name, key, self._key),
            names=names,
            age=age,
            lifetime=self._lifetime,
            lax=self._lax,
        )
        _write(pair, certificate, key)
        return pair


def self_signed(folder: Path, *names: str, stem: str = "self-signed") -> Pair:
    """Make a certificate that vouches for itself."""
    folder.mkdir(parents=True, exist_ok=True)
    pair = _pair(folder, stem)
    key = ec.generate_private_key(ec.SECP256R1())
    _write(pair, _signed(_name(names[0]), _name(names[0]), key, key, names=names), key)
    return pair


def _signed(  # a certificate has so many parts
    subject: x509.Name,
    issuer: x509.Name,
    key: PrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    names: tuple[str, ...] = (),
    ca: bool = False,
    age: dt.timedelta = dt.timedelta(0),
    lifetime: dt.timedelta = DAY,
    lax: bool = False,
) -> x509.Certificate:
    start = dt.datetime.now(dt.UTC) - age - dt.timedelta(hours=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + lifetime)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if not lax:
        builder = _with_identifiers(builder, key.public_key(), signer.public_key())
    if ca and not lax:
        builder = builder.add_extension(CA_USAGE, critical=True)
    if names:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _with_identifiers(
    builder: x509.CertificateBuilder, own: PublicKey, signer: PublicKey
) -> x509.CertificateBuilder:
    subject = x509.SubjectKeyIdentifier.from_public_key(own)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer)
    return builder.add_extension(subject, critical=False).add_extension(authority, critical=False)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pair(folder: Path, stem: str) -> Pair:
    return Pair(folder / f"{stem}.crt", folder / f"{stem}.key")


def _write(pair: Pair, certificate: x509.Certificate, key: PrivateKey) -> None:
    for path, content in ((pair.key, _private(key)), (pair.certificate, _pem(certificate))):
        draft = path.with_name(f"{path.name}.new")
        draft.touch(mode=0o600 if path == pair.key else 0o644)
        draft.write_bytes(content)
        draft.replace(path)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
