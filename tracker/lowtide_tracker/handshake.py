"""The handshake that opens every connection of Lowtide's processes: version, then mutual proof of the job's secret.

::

    server -> client   magic (8 bytes, the last one the protocol version), server nonce (32)
    client -> server   magic (8), client nonce (32), HMAC-SHA256(secret, "client" | server nonce | client nonce)
    server -> client   HMAC-SHA256(secret, "server" | client nonce | server nonce)

The secret itself is never sent, and what was recorded of one connection opens no other. A server that does not
recognise the proof closes the connection without a word. Nothing here does I/O: bytes in, bytes out.
"""

import hashlib
import hmac
from dataclasses import dataclass

from lowtide_tracker.errors import TrackerError

MAGIC = b"LOWTIDE\x05"
NONCE_BYTES = 32
PROOF_BYTES = 32
HELLO_BYTES = len(MAGIC) + NONCE_BYTES
REPLY_BYTES = HELLO_BYTES + PROOF_BYTES
SECRET_BYTES_MIN = 16


class HandshakeError(TrackerError):
    """The peer speaks another version or does not know the job's secret; close the connection."""


def _proof(secret: bytes, role: bytes, first: bytes, second: bytes) -> bytes:
    if len(secret) < SECRET_BYTES_MIN:
        raise ValueError(f"a job's secret needs at least {SECRET_BYTES_MIN} bytes; this one has {len(secret)}")
    return hmac.new(secret, role + first + second, hashlib.sha256).digest()


def _nonce_of(greeting: bytes) -> bytes:
    if greeting[: len(MAGIC)] != MAGIC:
        raise HandshakeError(
            f"the peer began with {greeting[: len(MAGIC)]!r} where this version of Lowtide expects {MAGIC!r}"
        )
    return greeting[len(MAGIC) : HELLO_BYTES]


@dataclass(frozen=True, slots=True)
class ServerHandshake:
    """The server's half of one connection. ``nonce``: 32 fresh random bytes."""

    secret: bytes
    nonce: bytes

    def hello(self) -> bytes:
        """Return the server's first message: ``HELLO_BYTES``."""
        return MAGIC + self.nonce

    def answer(self, reply: bytes) -> bytes:
        """Check the client's ``REPLY_BYTES`` and return the ``PROOF_BYTES`` to send; else ``HandshakeError``."""
        theirs = _nonce_of(reply)
        if not hmac.compare_digest(reply[HELLO_BYTES:], _proof(self.secret, b"client", self.nonce, theirs)):
            raise HandshakeError("the client does not know the job's secret")
        return _proof(self.secret, b"server", theirs, self.nonce)


@dataclass(frozen=True, slots=True)
class ClientHandshake:
    """The client's half of one connection. ``nonce``: 32 fresh random bytes."""

    secret: bytes
    nonce: bytes

    def reply(self, hello: bytes) -> bytes:
        """Answer the server's ``HELLO_BYTES`` with ``REPLY_BYTES``; ``HandshakeError`` for another version."""
        theirs = _nonce_of(hello)
        return MAGIC + self.nonce + _proof(self.secret, b"client", theirs, self.nonce)

    def check(self, hello: bytes, answer: bytes) -> None:
        """``HandshakeError`` unless the server's ``PROOF_BYTES`` show that it knows the secret too."""
        if not hmac.compare_digest(answer, _proof(self.secret, b"server", self.nonce, _nonce_of(hello))):
            raise HandshakeError("the server does not know the job's secret")
