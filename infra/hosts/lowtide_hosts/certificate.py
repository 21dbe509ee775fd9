"""Certificates for a cluster: an authority of its own, and the certificates it signs."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAYS = 365


def issue(names: Sequence[str], authority: str = "", authority_key: str = "") -> tuple[str, str]:
    """Make a certificate and its key.

    Args:
        names: Host names and addresses; for an authority, its name.
        authority: The signing authority's certificate (PEM); without it, the new certificate is an authority's itself.
        authority_key: Its key (PEM).

    Returns:
        The certificate and the key, PEM; the key as PKCS#8 without a password.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
    now = datetime.datetime.now(datetime.UTC)
    signer = x509.load_pem_x509_certificate(authority.encode()) if authority else None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer.subject if signer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
    )
    if signer is None:
        signed = builder.sign(key, hashes.SHA256())
    else:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
        signing = serialization.load_pem_private_key(authority_key.encode(), None)
        assert isinstance(signing, ec.EllipticCurvePrivateKey), "the authority was made here"
        signed = builder.sign(signing, hashes.SHA256())
    written = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return signed.public_bytes(serialization.Encoding.PEM).decode(), written.decode()


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
