"""TLS on real sockets: who gets in, what is seen on the way, and that loops see all there is to read and to send."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random

import pytest
from hanging import HANGS_S

from lowtide.process.credentials import client_tls, credentials_of, load, server_tls
from lowtide.process.wire import Kind, head
from lowtide.worker.link import Link
from lowtide_tracker.tls import ROOM_BYTES, TlsConnection, TlsFailed

SECRET, OTHER = b"s" * 32, b"o" * 32
MARKER = b"a user of a record"
SEEDS = range(8)


@contextmanager
def pair(client: ssl.SSLContext | None = None) -> Iterator[tuple[TlsConnection, TlsConnection]]:
    """Both ends of a connection, the server's first, TLS agreed on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname(), HANGS_S)
        far, _ = listener.accept()
    far.settimeout(HANGS_S)
    for each in (near, far):  # Little, so that the kernel often does not take what it is given.
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    server = TlsConnection(far, server_tls(SECRET), server=True)
    with server, TlsConnection(near, client or client_tls(SECRET)) as ours:
        with beside(server.shake):
            ours.shake()
        yield server, ours


@contextmanager
def beside(what: Callable[[], object]) -> Iterator[None]:
    """Do something in another thread; raise what it raises."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            what()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(HANGS_S)
    if failed:
        raise failed[0]


def read_all(connection: TlsConnection, size: int) -> bytes:
    """So many bytes, as a selector's loop reads them: only when the kernel has something."""
    connection.setblocking(False)
    came, buffer = bytearray(), memoryview(bytearray(ROOM_BYTES))
    while len(came) < size:
        ready, _, _ = select.select([connection], [], [], HANGS_S)
        assert ready, f"{size - len(came)} bytes are hidden"
        with suppress(BlockingIOError):
            count = connection.recv_into(buffer)
            assert count, "the end came early"
            came += buffer[:count]
    return bytes(came)


def test_bytes_arrive_as_they_were_sent() -> None:
    with pair() as (server, client):
        client.sendall(b"question")
        assert server.recv(100) == b"question"
        server.sendall(b"answer")
        assert client.recv(3) + client.recv(100) == b"answer"
        client.close()
        assert server.recv(100) == b""


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_hides_from_a_selector(seed: int) -> None:
    """What has come is read without a further byte of the peer, whatever the sizes of records and of pieces."""
    dice = Random(seed)
    data = dice.randbytes(dice.choice([1, 70_000, 400_000]))
    with pair() as (server, client):

        def send() -> None:
            rest = memoryview(data)
            while rest:
                size = dice.choice([1, 100, 16_384, 16_385, 60_000])
                client.sendall(rest[:size])
                rest = rest[size:]

        with beside(send):
            assert read_all(server, len(data)) == data


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_counted_as_sent_can_be_read_and_the_rest_is_sent_once(seed: int) -> None:
    """The sender does nothing more for what it has counted, and offers again what it has not."""
    dice = Random(seed)
    with pair() as (server, client):
        link, sent, came = Link(client), b"", b""
        for _ in range(3):
            parts = [dice.randbytes(dice.choice([1, 40_000, 400_000])) for _ in range(3)]
            link.send(Kind.FRAME, *parts)
            sent += head(Kind.FRAME, sum(map(len, parts))) + b"".join(parts)
            for _ in range(dice.randrange(3)):
                link.flush()
            came += read_all(server, len(sent) - link.unsent_bytes - len(came))
        while link.unsent_bytes:
            link.flush()
            came += read_all(server, len(sent) - link.unsent_bytes - len(came))
            with suppress(BlockingIOError):
                came += server.recv(ROOM_BYTES)  # Room for what is not counted yet.
        came += read_all(server, len(sent) - len(came))
        assert came == sent


def test_a_reader_waits_for_the_rest_of_a_record_and_sees_the_end_within_one() -> None:
    with through() as (wire, server, client):
        client.sendall(MARKER)
        record = wire.recv(1 << 16)
        server.setblocking(False)
        wire.to_server(record[:9])
        select.select([server], [], [], HANGS_S)
        with pytest.raises(BlockingIOError):
            server.recv(ROOM_BYTES)
        wire.close()
        select.select([server], [], [], HANGS_S)
        assert server.recv(ROOM_BYTES) == b""


# -- who gets in -------------------------------------------------------------------------------------------------------


def without_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=credentials_of(SECRET).authority)
    return context


def of_another_start() -> ssl.SSLContext:
    """One that believes in the server's authority, and shows what another secret has signed under the same names."""
    context, held = without_certificate(), credentials_of(OTHER)
    load(context, held.key.encode(), held.certificate.encode())
    return context


def of_an_older_version() -> ssl.SSLContext:
    context, held = without_certificate(), credentials_of(SECRET)
    load(context, held.key.encode(), held.certificate.encode())
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


@pytest.mark.parametrize("stranger", [without_certificate, of_another_start, of_an_older_version])
def test_a_server_refuses(stranger: Callable[[], ssl.SSLContext]) -> None:
    with pytest.raises(TlsFailed), pair(client=stranger()):
        pass


def test_a_client_refuses_a_server_of_another_start() -> None:
    with pytest.raises(TlsFailed, match="does not know the job's secret"):
        accepted_by(server_tls(OTHER))


def accepted_by(server: ssl.SSLContext) -> None:
    """Shake hands with a server of any kind."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname(), HANGS_S)
        far, _ = listener.accept()

    def shake() -> None:
        with suppress(OSError):
            TlsConnection(far, server, server=True).shake()

    with far, TlsConnection(client, client_tls(SECRET)) as ours, beside(shake):
        ours.shake()


def test_who_does_not_speak_tls_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stranger = socket.create_connection(listener.getsockname(), HANGS_S)
        far, _ = listener.accept()
    with stranger, TlsConnection(far, server_tls(SECRET), server=True) as server:
        stranger.sendall(b"LOWTIDE\x05" + bytes(100))
        with pytest.raises(TlsFailed, match=r"does not speak TLS 1\.3"):
            server.shake()


def test_processes_of_one_start_have_one_authority_and_keys_of_their_own() -> None:
    one, two = credentials_of.__wrapped__(SECRET), credentials_of.__wrapped__(SECRET)
    assert one.key != two.key
    assert client_tls(SECRET).get_ca_certs()[0]["subject"] == ((("commonName", "Lowtide job"),),)
    context = without_certificate()
    load(context, two.key.encode(), two.certificate.encode())
    with pair(client=context):
        pass


# -- what is on the way ------------------------------------------------------------------------------------------------


class Wire:
    """Somebody between client and server who has all bytes in hand."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.seen: list[bytes] = []
        """What the client has sent, as it came."""

    def recv(self, size: int) -> bytes:
        self.seen.append(self.client.recv(size))
        return self.seen[-1]

    def to_server(self, data: bytes) -> None:
        self.server.sendall(data)

    def close(self) -> None:
        self.server.close()


@contextmanager
def through() -> Iterator[tuple[Wire, TlsConnection, TlsConnection]]:
    """A wire, and both ends of a connection through it, TLS agreed on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ends = []
        for _ in range(2):
            near = socket.create_connection(listener.getsockname(), HANGS_S)
            far, _ = listener.accept()
            far.settimeout(HANGS_S)
            ends.append((near, far))
    (near, passed), (onward, far) = ends
    client, server = TlsConnection(near, client_tls(SECRET)), TlsConnection(far, server_tls(SECRET), server=True)
    wire = Wire(passed, onward)
    done = threading.Event()

    def pass_on() -> None:
        while not done.is_set() or select.select([passed], [], [], 0)[0]:
            ready, _, _ = select.select([passed, onward], [], [], 0.01)
            if passed in ready:
                wire.to_server(wire.recv(1 << 16))
            if onward in ready:
                passed.sendall(onward.recv(1 << 16))

    def shake() -> None:
        try:
            server.shake()
        finally:
            done.set()

    with near, passed, onward, far:
        with beside(pass_on), beside(shake):
            client.shake()
        yield wire, server, client


def test_nothing_of_a_message_is_seen_on_the_way() -> None:
    with through() as (wire, server, client):
        client.sendall(MARKER * 100)
        wire.to_server(wire.recv(1 << 16))
        assert server.recv(1 << 16) == MARKER * 100
        assert MARKER not in b"".join(wire.seen)
        assert SECRET not in b"".join(wire.seen)


@pytest.mark.parametrize("at", [0, 3, 5, 20, -1])
def test_a_byte_that_was_changed_is_found(at: int) -> None:
    with through() as (wire, server, client):
        client.sendall(MARKER)
        record = bytearray(wire.recv(1 << 16))
        record[at] ^= 1
        wire.to_server(bytes(record) + bytes(1 << 15))
        with pytest.raises(TlsFailed):
            server.recv(1 << 16)


def test_a_record_that_comes_twice_is_found() -> None:
    with through() as (wire, server, client):
        client.sendall(MARKER)
        record = wire.recv(1 << 16)
        wire.to_server(record + record)
        assert server.recv(len(MARKER)) == MARKER
        with pytest.raises(TlsFailed):
            server.recv(1)


def test_what_was_recorded_of_one_connection_opens_no_other() -> None:
    with through() as (wire, _, client):
        client.sendall(MARKER)
        wire.recv(1 << 16)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stranger = socket.create_connection(listener.getsockname(), HANGS_S)
        far, _ = listener.accept()
    with stranger, TlsConnection(far, server_tls(SECRET), server=True) as server:
        stranger.sendall(b"".join(wire.seen))
        with pytest.raises(TlsFailed):
            server.shake()
