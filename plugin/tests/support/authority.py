"""An authority for certificates, for servers and clients that hold each other against it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Authority:
    """An authority and the files of those it certifies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / "authority.pem"
        self.file.write_bytes(self._certificate("authority", self.key, None).public_bytes(Encoding.PEM))

    def certify(self, name: str, host: str = "127.0.0.1") -> tuple[Path, Path]:
        """The files of a certificate and of its key; a third has both."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(name, key, host).public_bytes(Encoding.PEM)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        files = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        files[0].write_bytes(certificate)
        files[1].write_bytes(private)
        (self.folder / f"{name}.pem").write_bytes(private + certificate)
        return files

    def _certificate(self, name: str, key: ec.EllipticCurvePrivateKey, host: str | None) -> x509.Certificate:
        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder(named("authority"), named(name), key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=host is None, path_length=None), critical=True)
        )
        if host is not None:
            made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), critical=False)
        return made.sign(self.key, SHA256())
