"""The certificate of a control API, and that a client gives its token to nobody who cannot show the right one."""

from __future__ import annotations

import io
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from controlled import TOKEN, controlled
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from seen import SHAPE, moment

from lowtide.errors import ConfError
from lowtide.events import EventLog
from lowtide.status.certificate import Certificate, certificate_of, made_certificate, read_certificate
from lowtide.status.control_client import ControlClient
from lowtide_snapshots.errors import ControlUnreachable, TokenRefused
from lowtide_snapshots.job.control_address import ControlAddress, fingerprint


class Imposter:
    """Listens where a life's control API is said to be, with a certificate of its own.

    Attributes:
        met: How many have connected.
        heard: What they have sent.
    """

    def __init__(self, certificate: Certificate) -> None:
        self.certificate = certificate
        self.met = 0
        self.heard = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.met += 1
            try:
                with self.certificate.tls.wrap_socket(connection, server_side=True) as secured:
                    while more := secured.recv(1 << 16):
                        self.heard += more
            except OSError:
                pass

    def close(self) -> None:
        self._listener.close()


@contextmanager
def imposter(certificate: Certificate | None = None) -> Iterator[Imposter]:
    made = Imposter(certificate or made_certificate("127.0.0.1"))
    try:
        yield made
    finally:
        made.close()


def shown(certificate: Certificate) -> str:
    return fingerprint(ssl.PEM_cert_to_DER_cert(certificate.pem))


def published(address: str, certificate: Certificate, token: str = TOKEN, incarnation: int = 3) -> ControlAddress:
    return ControlAddress.proved(
        token, job="index", incarnation=incarnation, address=address, certificate=shown(certificate)
    )


# -- who gets the token ------------------------------------------------------------------------------------------------


def test_whoever_writes_an_address_into_zookeeper_without_the_token_is_not_even_met() -> None:
    with imposter() as other:
        forged = published(other.address, other.certificate, token="a guess")
        with pytest.raises(TokenRefused, match="published without knowledge of the token") as refused:
            ControlClient(forged, TOKEN).status()
        assert "[zookeeper].auth_file" in refused.value.way_out
        assert other.met == 0


def test_whoever_listens_at_the_port_that_a_dead_life_has_left_hears_nothing() -> None:
    dead = made_certificate("127.0.0.1")
    with imposter() as other:
        with pytest.raises(ControlUnreachable, match="another certificate than the life published"):
            ControlClient(published(other.address, dead), TOKEN).status()
        assert (other.met, other.heard) == (1, b"")


def test_what_an_older_life_has_published_leads_to_nobody_else() -> None:
    """The proof of a life before is right as long as the token is the same one; its key has gone with it."""
    with controlled(SHAPE, EventLog("index", 3, io.StringIO())) as job:
        old = job.at
    with imposter() as other:
        moved = ControlAddress(old.job, old.incarnation, other.address, shown(other.certificate), old.proof)
        with pytest.raises(TokenRefused):
            ControlClient(moved, TOKEN).stop()
        assert (other.met, other.heard) == (0, b"")


def test_the_right_one_is_asked_whatever_its_name() -> None:
    """The certificate that was published is checked, not the names in it, nor who has signed it."""
    with controlled(SHAPE, EventLog("index", 3, io.StringIO())) as job:
        job.watch.look(0.0, moment(5000))
        assert job.client().status().incarnation == 3


# -- the certificate ---------------------------------------------------------------------------------------------------


def test_a_life_makes_a_certificate_for_the_names_of_its_machine_and_leaves_no_key(tmp_path: Path) -> None:
    made, another = made_certificate("db.example.org"), made_certificate("0.0.0.0")
    assert "PRIVATE" not in made.pem
    assert made.pem != another.pem
    names = x509.load_pem_x509_certificate(made.pem.encode()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["localhost", socket.gethostname(), "db.example.org"]
    assert [str(address) for address in names.value.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert not [link for link in Path("/proc/self/fd").iterdir() if "memfd" in _target(link)]


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return ""


def test_other_programs_can_know_a_life_by_the_certificate_in_its_folder() -> None:
    """As strictly as Python's and OpenSSL's newest versions look at one: `curl --cacert control.pem`."""
    with controlled(SHAPE, EventLog("index", 3, io.StringIO())) as job:
        tls = ssl.create_default_context(cadata=job.certificate)
        tls.verify_flags |= ssl.VERIFY_X509_STRICT
        host, port = job.address.split(":")
        for name in ("localhost", "127.0.0.1"):
            with tls.wrap_socket(socket.create_connection((host, int(port)), 5), server_hostname=name) as connection:
                assert connection.version() == "TLSv1.3"
        with pytest.raises(ssl.SSLCertVerificationError, match="match"):
            tls.wrap_socket(socket.create_connection((host, int(port)), 5), server_hostname="elsewhere.example.org")


def write(folder: Path, name: str, *, days: int = 10, password: bytes | None = None) -> tuple[str, str]:
    """A certificate as somebody's authority gives it out: the files of it and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, SHA256())
    )
    secrecy: KeySerializationEncryption = NoEncryption() if password is None else BestAvailableEncryption(password)
    files = folder / f"{name}.crt", folder / f"{name}.key"
    files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secrecy))
    return str(files[0]), str(files[1])


def test_the_confs_certificate_is_the_one_that_is_shown(tmp_path: Path) -> None:
    cert, key = write(tmp_path, "mine")
    authority = write(tmp_path, "authority")[0]
    chain = tmp_path / "chain.crt"
    chain.write_text(Path(cert).read_text() + Path(authority).read_text())
    certificate = certificate_of(str(chain), key, "127.0.0.1")
    assert certificate.pem == Path(cert).read_text()
    with imposter(certificate) as server, socket.create_connection(("127.0.0.1", _port(server)), 5) as connection:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        with tls.wrap_socket(connection) as secured:
            assert fingerprint(secured.getpeercert(binary_form=True) or b"") == shown(certificate)


def _port(server: Imposter) -> int:
    return int(server.address.rpartition(":")[2])


def test_without_one_in_the_conf_none_is_read() -> None:
    assert read_certificate(None, None) is None


Spoil = Callable[[Path], tuple[str | None, str | None]]

WRONG: dict[str, tuple[Spoil, str, str]] = {
    "no key": (
        lambda folder: (write(folder, "a")[0], None),
        r"\[control\].tls_cert is set, but \[control\].tls_key is not",
        "set both, or neither",
    ),
    "no certificate": (
        lambda folder: (None, write(folder, "a")[1]),
        r"\[control\].tls_key is set, but \[control\].tls_cert is not",
        "set both, or neither",
    ),
    "no file": (
        lambda folder: (str(folder / "none"), write(folder, "a")[1]),
        "certificate cannot be used: No such file",
        "correct the path",
    ),
    "no PEM": (
        lambda folder: (write(folder, "a")[1], write(folder, "a")[1]),
        "it is not a PEM certificate",
        "give one",
    ),
    "no PEM key": (
        lambda folder: (write(folder, "a")[0],) * 2,
        "key cannot be used: it is not a PEM key",
        "give the key",
    ),
    "another's key": (
        lambda folder: (write(folder, "a")[0], write(folder, "b")[1]),
        "key cannot be used: it is not the certificate's",
        "give the key of",
    ),
    "a key with a password": (
        lambda folder: write(folder, "a", password=b"secret"),
        "the key has a password",
        "remove its password",
    ),
    "an old one": (lambda folder: write(folder, "a", days=-1), "certificate is valid until 20", "renew it"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_certificate_that_cannot_be_used_is_said_to_be_so(tmp_path: Path, wrong: str) -> None:
    spoil, what, way_out = WRONG[wrong]
    with pytest.raises(ConfError, match=what) as refused:
        read_certificate(*spoil(tmp_path))
    assert way_out in refused.value.way_out
    assert str(tmp_path) in refused.value.where
