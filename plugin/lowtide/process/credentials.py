"""A process's credentials under TLS, made of the job's secret, in memory, by each process for itself.

Of the secret each process derives the same authority (a key on P-256), which signs a certificate that the process makes
for itself. So who knows the secret has a certificate, and nobody else: nothing more than the secret is handed out,
nothing is on a disk, and it all goes with the start of the job that has drawn the secret. A certificate holds no name:
any process of a job may be at any address.

Which addresses are under TLS: `lowtide/process/doors.py`.
"""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

TLS = "tls:"
"""Begins the address of a door under TLS."""
_VALID = datetime(2020, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
"""Clocks differ, and a start of a job may be long; the secret is what ends."""
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of P-256: keys are the numbers from 1 to one less."""
_SERIAL_OF_AUTHORITY = 1
MEMORY_FILE = "/proc/self/fd/{}"


class Credentials(msgspec.Struct, frozen=True):
    """A process's key, its certificate and the authority, in PEM."""

    key: str
    certificate: str
    authority: str


def secured(address: str) -> bool:
    """Return whether a door is under TLS, as its address says."""
    return address.startswith(TLS)


def plain(address: str) -> str:
    """Return an address without what it says of TLS: `host:port`, or `unix:/path`."""
    return address.removeprefix(TLS)


def address_of(address: str, *, tls: bool) -> str:
    """Return the address that says whether a door at `host:port` is under TLS."""
    return TLS + address if tls else address


@lru_cache(maxsize=8)
def credentials_of(secret: bytes) -> Credentials:
    """Make this process's credentials, once: 1 ms, and 30 ms for the import where it is the first."""
    # Only where there is TLS: on one machine nothing is paid for it.
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    drawn = HKDF(SHA256(), 48, salt=None, info=b"lowtide authority").derive(secret)
    signer = ec.derive_private_key(int.from_bytes(drawn) % (_ORDER - 1) + 1, ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def certificate(name: str, number: int, of: ec.EllipticCurvePublicKey, *, signs: bool) -> x509.Certificate:
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign",
             "encipher_only", "decipher_only"), False
        )  # fmt: skip
        made = (
            x509.CertificateBuilder(issuer_name=named("Lowtide job"), subject_name=named(name), public_key=of)
            .serial_number(number)
            .not_valid_before(_VALID[0])
            .not_valid_after(_VALID[1])
            .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
            .add_extension(x509.KeyUsage(digital_signature=not signs, key_cert_sign=signs, **usage), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(of), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if not signs:
            ends = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            made = made.add_extension(x509.ExtendedKeyUsage(ends), critical=False)
        return made.sign(signer, SHA256())

    own = certificate("Lowtide process", x509.random_serial_number(), key.public_key(), signs=False)
    authority = certificate("Lowtide job", _SERIAL_OF_AUTHORITY, signer.public_key(), signs=True)
    return Credentials(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        own.public_bytes(Encoding.PEM).decode(),
        authority.public_bytes(Encoding.PEM).decode(),
    )


@lru_cache(maxsize=8)
def server_tls(secret: bytes) -> ssl.SSLContext:
    """Return what a door is under: TLS 1.3 only, and peers must show a certificate of the same secret."""
    return _context(ssl.PROTOCOL_TLS_SERVER, secret)


@lru_cache(maxsize=8)
def client_tls(secret: bytes) -> ssl.SSLContext:
    """Return what a connection to a door is under; the door must show a certificate of the same secret."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, secret)


def load(context: ssl.SSLContext, key: bytes, certificate: bytes) -> None:
    """Give a context a certificate and its key, both in PEM, without a file that others could read."""
    # OpenSSL loads files only: this one is memory.
    memory = os.memfd_create("certificate", os.MFD_CLOEXEC)
    with os.fdopen(memory, "wb", buffering=0) as file:
        file.write(key + certificate)
        context.load_cert_chain(MEMORY_FILE.format(memory))


def _context(kind: int, secret: bytes) -> ssl.SSLContext:
    held = credentials_of(secret)
    context = ssl.SSLContext(kind)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # Any process of the job may be at any address.
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=held.authority)
    load(context, held.key.encode(), held.certificate.encode())
    if kind == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # Every connection proves itself; nothing of an earlier one opens another.
    return context
