"""Certificates for servers of tests."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Authority:
    """`file` holds its certificate."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    file: Path


def certificate(
    folder: Path, name: str, *, days: tuple[float, float] = (-1, 1), authority: Authority | None = None
) -> Path:
    """A file with a new key and its certificate for this host, valid between these days from now. Without an authority,
    the certificate is its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = (subject, key) if authority is None else (authority.name, authority.key)
    now = datetime.now(UTC)
    begins, ends = (now + timedelta(each) for each in days)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), 1, begins, ends).add_extension(
        x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False
    )
    if authority is not None:
        found = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
        builder = builder.add_extension(found, critical=False)
    return _written(folder / "server.pem", key, builder.sign(signer, SHA256()))


def make_authority(folder: Path) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority")])
    now = datetime.now(UTC)
    usage = dict.fromkeys(("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"), False)
    usage |= dict.fromkeys(("key_agreement", "encipher_only", "decipher_only"), False)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 2, now - timedelta(1), now + timedelta(1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    return Authority(name, key, _written(folder / "authority.pem", None, made))


def server_context(file: Path) -> ssl.SSLContext:
    """The context of a server with the key and the certificate in this file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def _written(file: Path, key: ec.EllipticCurvePrivateKey | None, made: x509.Certificate) -> Path:
    private = b"" if key is None else key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + made.public_bytes(Encoding.PEM))
    return file
