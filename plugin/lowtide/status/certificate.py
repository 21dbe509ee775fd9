"""The certificate of a job's control API: the conf's, or one for a single life, whose key is never on a disk."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lowtide.errors import ConfError
from lowtide.process.credentials import load

VALID_BEFORE = timedelta(days=1)
"""Clocks differ."""
VALID_AFTER = timedelta(days=3650)
"""A life may be long, and its certificate goes with it."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A server's certificate and its key.

    Attributes:
        pem: The certificate, without its key and those that signed it.
        tls: Holds both.
    """

    pem: str
    tls: ssl.SSLContext


def certificate_of(cert: str | None, key: str | None, host: str) -> Certificate:
    """Return the conf's certificate; without one, one that is made for this machine and `host`.

    Raises:
        ConfError: the conf's cannot be used.
    """
    return read_certificate(cert, key) or made_certificate(host)


def made_certificate(host: str) -> Certificate:
    """Make a self-signed certificate for the names of this machine; takes a few ms."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Lowtide control API")])
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign", "crl_sign",
         "encipher_only", "decipher_only"), False
    )  # fmt: skip
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID_BEFORE)
        .not_valid_after(now + VALID_AFTER)
        .add_extension(x509.SubjectAlternativeName(_names(host)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, **usage), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    pem = certificate.public_bytes(Encoding.PEM)
    tls = _context()
    load(tls, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), pem)
    return Certificate(pem.decode(), tls)


def read_certificate(cert: str | None, key: str | None) -> Certificate | None:
    """Return the certificate that the conf names; None if it names none.

    Args:
        cert: [control].tls_cert, a PEM file: the certificate, then those between it and an authority, if there are any.
        key: [control].tls_key, a PEM file.

    Raises:
        ConfError: it cannot be used, and why.
    """
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        given, missing = ("tls_cert", "tls_key") if key is None else ("tls_key", "tls_cert")
        raise ConfError(
            f"[control].{given} is set, but [control].{missing} is not",
            where=cert or key or "",
            way_out="set both, or neither: each life then makes its own certificate",
        )
    first = _first_of(_read("tls_cert", cert), cert)
    if b"ENCRYPTED" in _read("tls_key", key):
        raise _unusable(
            "tls_key", key, "the key has a password", "remove its password, and let only the job's user read it"
        )
    tls = _context()
    try:
        tls.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        why = (
            "it is not the certificate's" if error.reason == "KEY_VALUES_MISMATCH" else f"it is not a PEM key: {error}"
        )
        raise _unusable("tls_key", key, why, f"give the key of {cert}") from error
    return Certificate(first.public_bytes(Encoding.PEM).decode(), tls)


def _read(name: str, file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise _unusable(
            name, file, str(error.strerror or error), "correct the path, or let the job's user read it"
        ) from error


def _first_of(data: bytes, file: str) -> x509.Certificate:
    try:
        first = x509.load_pem_x509_certificates(data)[0]
    except ValueError as error:
        raise _unusable("tls_cert", file, f"it is not a PEM certificate: {error}", "give one") from error
    ends = first.not_valid_after_utc
    if ends <= datetime.now(UTC):
        raise _unusable("tls_cert", file, f"the certificate is valid until {ends:%Y-%m-%d %H:%M} UTC", "renew it")
    return first


def _unusable(name: str, file: str, why: str, way_out: str) -> ConfError:
    return ConfError(
        f"the control API's {'certificate' if name == 'tls_cert' else 'key'} cannot be used: {why}",
        where=f"{file} ([control].{name})",
        way_out=f"{way_out}; or leave out both tls_cert and tls_key: each life then makes a certificate of its own",
    )


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # A connection serves one request: there is nothing to resume.
    return context


def _names(host: str) -> Iterator[x509.GeneralName]:
    for name in dict.fromkeys(("localhost", "127.0.0.1", "::1", socket.gethostname(), host)):
        try:
            address = ip_address(name)
        except ValueError:
            with suppress(ValueError):  # A name that no certificate can hold.
                yield x509.DNSName(name)
            continue
        if not address.is_unspecified:
            yield x509.IPAddress(address)
