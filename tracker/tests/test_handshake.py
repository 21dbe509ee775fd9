import hashlib
import hmac
import subprocess
import sys

import pytest

from lowtide_tracker import ClientHandshake, HandshakeError, ServerHandshake
from lowtide_tracker.handshake import HELLO_BYTES, PROOF_BYTES, REPLY_BYTES

SECRET = bytes(range(32))


def both(server_secret: bytes = SECRET, client_secret: bytes = SECRET) -> tuple[ServerHandshake, ClientHandshake]:
    return ServerHandshake(server_secret, b"s" * 32), ClientHandshake(client_secret, b"c" * 32)


def test_both_sides_prove_the_secret() -> None:
    server, client = both()
    hello = server.hello()
    reply = client.reply(hello)
    answer = server.answer(reply)
    client.check(hello, answer)
    assert (len(hello), len(reply), len(answer)) == (HELLO_BYTES, REPLY_BYTES, PROOF_BYTES)


def test_the_bytes_are_the_documented_ones() -> None:
    server, client = both()
    assert server.hello() == b"LOWTIDE\x05" + b"s" * 32
    proof = hmac.new(SECRET, b"client" + b"s" * 32 + b"c" * 32, hashlib.sha256).digest()
    assert client.reply(server.hello()) == b"LOWTIDE\x05" + b"c" * 32 + proof


def test_a_client_without_the_secret_is_refused() -> None:
    server, client = both(client_secret=b"x" * 32)
    with pytest.raises(HandshakeError, match="client does not know"):
        server.answer(client.reply(server.hello()))


def test_a_server_without_the_secret_is_refused() -> None:
    server, client = both()
    impostor = ServerHandshake(b"x" * 32, server.nonce)
    hello = impostor.hello()
    with pytest.raises(HandshakeError, match="server does not know"):
        client.check(hello, b"\0" * PROOF_BYTES)


def test_a_recorded_reply_opens_no_other_connection() -> None:
    server, client = both()
    recorded = client.reply(server.hello())
    with pytest.raises(HandshakeError):
        ServerHandshake(SECRET, b"t" * 32).answer(recorded)


def test_a_proof_cannot_be_reflected() -> None:
    """A server's proof sent back to it as a client's is refused: the roles are part of the proof."""
    server, client = both()
    reply = client.reply(server.hello())
    answer = server.answer(reply)
    with pytest.raises(HandshakeError):
        server.answer(reply[:HELLO_BYTES] + answer)


@pytest.mark.parametrize("greeting", [b"", b"GET / HTTP/1.1\r\n" + b" " * 60, b"LOWTIDE\x02" + b"s" * 32])
def test_another_protocol_or_version_is_named(greeting: bytes) -> None:
    with pytest.raises(HandshakeError, match="this version of Lowtide expects"):
        both()[1].reply(greeting)


def test_a_short_secret_is_our_mistake() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        ClientHandshake(b"short", b"c" * 32).reply(both()[0].hello())


def test_the_handshake_alone_starts_quickly() -> None:
    """Processes that only open a connection, as the command line does, load neither asyncio nor the tracker."""
    code = "import sys, lowtide_tracker.handshake; assert not {'asyncio', 'lowtide_tracker.tracker'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True)
