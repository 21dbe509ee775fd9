"""The address of a life's control API, with the proof that its publisher knows the job's token.

    at = ControlAddress.of("orders", store.life())
    status, body = ask(at, token, "GET", "/status", limit_s=5.0)

Others may be able to write into ZooKeeper, and a port that a dead life has left may be anybody's. So a life publishes
its certificate's SHA-256 beside the address, and an HMAC of both under the token. A client checks the HMAC before it
opens a connection, and the certificate before it sends anything: no other server ever gets the token.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from lowtide_snapshots.errors import AddressUnproven

DOMAIN = "lowtide control address 1"
MAX_ANSWER_BYTES = 16 << 20
MAX_LINE_BYTES = 64 << 10


class AnotherCertificate(ConnectionError):
    """The server at the address is not the life that published it; nothing was sent."""


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """The address of one life's control API.

    Attributes:
        job: the job's name.
        incarnation: the life.
        address: where it listens, `host:port`; empty if it does not.
        certificate: `fingerprint` of the certificate that it shows.
        proof: the HMAC-SHA-256 of all of these under the token, in hexadecimal.
    """

    job: str
    incarnation: int
    address: str
    certificate: str
    proof: str

    @classmethod
    def proved(cls, token: str, *, job: str, incarnation: int, address: str, certificate: str) -> Self:
        """The address as a life publishes it that knows the token."""
        return cls(job, incarnation, address, certificate, _proof(token, job, incarnation, address, certificate))

    @classmethod
    def of(cls, job: str, said: Mapping[str, Any]) -> Self:
        """The address out of what a life's node holds; what it does not say is empty."""
        address, certificate, proof = (
            str(said.get(name) or "") for name in ("control", "control_certificate", "control_proof")
        )
        return cls(job, int(said.get("incarnation") or 0), address, certificate, proof)

    def fields(self) -> dict[str, str]:
        """The fields of a life's node that hold it."""
        return {"control": self.address, "control_certificate": self.certificate, "control_proof": self.proof}

    def check(self, token: str) -> None:
        """Check that the publisher of the address knows this token.

        Raises:
            AddressUnproven: it is not shown; do not send the token there.
        """
        wanted = _proof(token, self.job, self.incarnation, self.address, self.certificate)
        if not hmac.compare_digest(wanted.encode(), self.proof.encode("utf-8", "surrogatepass")):
            raise AddressUnproven(
                f'nothing proves that {self.address} is the control API of job "{self.job}": its address was '
                "published without knowledge of the token given here; the token was not sent",
                where=f"the address of life {self.incarnation}, in ZooKeeper or in the job's folder",
                way_out="give the token of the job's current life, from its [control].token_file or the file "
                "`token` of its folder; if it is that one, somebody else wrote the address: check who "
                "may write there, and set [zookeeper].auth_file",
            )


def fingerprint(certificate: bytes) -> str:
    """The SHA-256 of a certificate in DER, in hexadecimal."""
    return hashlib.sha256(certificate).hexdigest()


def ask(
    at: ControlAddress, token: str, method: str, path: str, body: bytes | None = None, *, limit_s: float
) -> tuple[int, bytes]:
    """Ask a control API over a new connection.

    Args:
        at: where it is.
        token: the job's; sent only to the life that published the address.
        method: "GET" or "POST".
        path: of the question.
        body: of the request.
        limit_s: how long one step of an answer may take.

    Returns:
        The status and the body of the answer.

    Raises:
        AddressUnproven: the address is not shown to be the job's; nothing was opened.
        AnotherCertificate: another server listens there; nothing was sent.
        OSError, ValueError, http.client.HTTPException: there was no answer, or none in HTTP.
    """
    at.check(token)
    connection = _Pinned(at, limit_s)
    try:
        connection.request(method, path, body, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        return response.status, response.read(MAX_ANSWER_BYTES)
    finally:
        connection.close()


def listen(
    at: ControlAddress, token: str, path: str, *, last_id: str, silence_s: float, until_s: float | None = None
) -> Iterator[tuple[int, bytes]]:
    """Ask for a stream; give the status with each line of what is answered, until its end.

    Args:
        at: where it is.
        token: the job's.
        path: of the question.
        last_id: the id after which the stream continues; empty for its beginning.
        silence_s: for how long nothing may come.
        until_s: when to end it, by `time.monotonic`.

    Raises:
        AddressUnproven: the address is not shown to be the job's; nothing was opened.
        OSError, ValueError, http.client.HTTPException: the connection was lost, or it is not HTTP.
    """
    at.check(token)
    connection = _Pinned(at, silence_s)
    try:
        shown = {"Authorization": f"Bearer {token}"} | ({"Last-Event-ID": last_id} if last_id else {})
        connection.request("GET", path, headers=shown)
        socket = connection.sock
        response = connection.getresponse()
        while True:
            left_s = silence_s if until_s is None else min(silence_s, until_s - time.monotonic())
            if left_s <= 0:
                return
            socket.settimeout(left_s)
            try:
                line = response.readline(MAX_LINE_BYTES)
            except TimeoutError:
                if until_s is not None and time.monotonic() >= until_s:
                    return
                raise
            if not line:
                return
            yield response.status, line
    finally:
        connection.close()


class _Pinned(http.client.HTTPSConnection):
    """A connection to the holder of one certificate's key, whatever its name and signer."""

    def __init__(self, at: ControlAddress, limit_s: float) -> None:
        host, _, port = at.address.rpartition(":")
        super().__init__(host.strip("[]"), int(port), timeout=limit_s, context=_context())
        self._certificate = at.certificate

    def connect(self) -> None:
        """Connect; what is shown there is checked before anything is sent."""
        super().connect()
        shown = self.sock.getpeercert(binary_form=True)
        if shown is None or not hmac.compare_digest(fingerprint(shown), self._certificate):
            self.close()
            raise AnotherCertificate(
                "the server there shows another certificate than the life published; the token was not sent"
            )


@cache
def _context() -> ssl.SSLContext:
    """Take any certificate: the one that was published is checked instead of names and authorities."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _proof(token: str, job: str, incarnation: int, address: str, certificate: str) -> str:
    said = json.dumps([DOMAIN, job, incarnation, address, certificate], separators=(",", ":"))
    return hmac.new(token.encode("utf-8", "surrogatepass"), said.encode(), hashlib.sha256).hexdigest()
