"""Peers that are let in, and errors that end the life."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from hanging import HANGS_S

from lowtide_tracker import (
    ConnectionLost,
    Flush,
    FlushGap,
    Graph,
    LifeEnded,
    LocalTracker,
    ProtocolError,
    Refused,
    TimeWentBack,
    Tracker,
    TrackerClient,
    TrackerError,
)
from lowtide_tracker.handshake import HELLO_BYTES
from lowtide_tracker.message_reader import HEAD, MAX_HELLO_BYTES
from lowtide_tracker.messages import Fault, Hello
from lowtide_tracker.wire import Kind, encode

if TYPE_CHECKING:
    from tracker_rig import Client, Running

    Serve = Callable[..., Running]
    Join = Callable[..., Client]

GRAPH = Graph({1: [], 2: [1]})


def test_a_process_without_the_secret_is_refused(serve: Serve) -> None:
    client = TrackerClient(serve().address, secret=b"x" * 32, incarnation=3)
    with pytest.raises(ConnectionLost, match="does not know the job's secret"):
        client.connect()


@pytest.mark.parametrize(("incarnation", "fate"), [(2, "older, and over"), (4, "newer, and has a tracker of its own")])
def test_a_process_of_another_incarnation_is_refused(serve: Serve, join: Join, incarnation: int, fate: str) -> None:
    running = serve()
    with pytest.raises(Refused, match=f"worker 1 is of incarnation {incarnation}, .* serves 3: that life is {fate}"):
        join(running, LocalTracker(1, incarnation), incarnation)
    join(running)
    assert running.faults == []


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n" * 9, b"LOWTIDE\x05" + b"\0" * 200, b"\0"])
def test_garbage_before_the_proof_is_answered_by_nothing(serve: Serve, join: Join, garbage: bytes) -> None:
    running = serve()
    host, _, port = running.address.rpartition(":")
    with socket.create_connection((host, int(port)), HANGS_S) as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        try:
            while more := connection.recv(1 << 16):
                received += more
        except ConnectionResetError:
            pass
        assert len(received) <= HELLO_BYTES
    join(running)
    assert running.faults == []


def test_garbage_of_a_subscriber_ends_its_connection_alone(serve: Serve, join: Join) -> None:
    running = serve()
    listener = join(running)
    for bad in (b"\x05\0\0\0\x63abcd", b"\0\0\0\0\0", b"\xff\xff\xff\xff\x02", encode(Flush.of(0, 1))):
        with running.raw(Hello(3, None, "bad")) as connection:
            connection.sendall(bad)
            [fault] = connection.messages(2)
            assert isinstance(fault, Fault)
            assert fault.code == Fault.PROTOCOL
    assert [notice.number for notice in listener.receive(0.05)] == [0]
    assert running.faults == []


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (encode(Flush.of(1, 2)), FlushGap),
        (encode(Flush.of(1, 1, [(1, -1, 5)])), TimeWentBack),
        (encode(Flush.of(2, 1)), ProtocolError),
        (bytes([5, 0, 0, 0, 99, 1, 2, 3, 4]), ProtocolError),
        (encode(Hello(3, 1, "again")), ProtocolError),
        (bytes([1, 0, 0, 0, Kind.NOTICE]), ProtocolError),
    ],
    ids=["gap", "time went back", "of another worker", "unknown kind", "hello again", "broken"],
)
def test_a_workers_fault_ends_the_life_and_everybody_is_notified(
    serve: Serve, join: Join, sent: bytes, error: type[TrackerError]
) -> None:
    running = serve()
    others = [join(running, LocalTracker(2, 3)), join(running)]
    with running.raw(Hello(3, 1, "bad")) as connection:
        connection.sendall(sent + encode(Flush.of(1, 1)) * 1000)
        [fault] = connection.messages(2)
    running.wait(lambda: running.faults)
    for client in others:
        with pytest.raises(LifeEnded) as ended:
            client.hear(lambda at: False)
        assert fault == Fault(Fault.LIFE_ENDED, str(ended.value))
        assert str(ended.value) == str(running.faults[0])
    assert [type(fault) for fault in running.faults] == [error]
    with pytest.raises(LifeEnded):
        join(running)


def test_a_listening_socket_that_is_given_brings_those_who_wait_there(serve: Serve, join: Join) -> None:
    with socket.create_server(("127.0.0.1", 0)) as kept:
        waiting = socket.create_connection(kept.getsockname()[:2], HANGS_S)
        running = serve(sock=kept.dup())
        client = TrackerClient(running.address, secret=bytes(range(32)), incarnation=3)
        client.connect(connection=waiting)
        assert client.fileno() == waiting.fileno()
        assert client.receive(HANGS_S)[0].min_times == {1: 0, 2: 0}
        client.close()
        running.stop()
        with socket.create_connection(kept.getsockname()[:2], HANGS_S):
            pass  # Who kept the socket keeps the address.


def rebuilt_from(*workers: int) -> Tracker:
    return Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=64, era=2).rebuilt_from(workers)


def test_a_worker_that_the_register_has_got_since_waits_until_the_tracker_is_rebuilt(serve: Serve, join: Join) -> None:
    running = serve(rebuilt_from(1))
    new, old = LocalTracker(2, 3), LocalTracker(1, 3)
    client = join(running, new)
    for tick in (4, 5):
        new.fold(1, [tick], new.new_value())
        client.flush()
    running.wait(lambda: running.server.traffic.flushes == 2)
    assert (running.faults, running.server.tracker.missing) == ([], (1,))
    old.heartbeat(0, 9)
    worker = join(running, old)
    worker.flush()
    running.wait(lambda: running.server.tracker.applied(1) == 1)
    assert running.server.tracker.applied(2) == 2
    assert running.server.tracker.min_times() == {1: 4, 2: 4}


def test_a_worker_that_waited_and_has_flushed_before_ends_the_life(serve: Serve, join: Join) -> None:
    """The register should have named it: what it said to the process that died is missing."""
    running = serve(rebuilt_from(1))
    with running.raw(Hello(3, 2, "worker 2")) as connection:
        connection.sendall(encode(Flush.of(2, 5, [(1, 4, 77)])))
        running.wait(lambda: running.server.traffic.flushes == 1)
        assert running.faults == []
        join(running, LocalTracker(1, 3))
        running.wait(lambda: running.faults)
    assert isinstance(running.faults[0], FlushGap)


def test_who_does_not_say_hello_is_put_out(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide_tracker.peer.HELLO_TIMEOUT_S", 0.05)
    with serve().raw() as connection:
        assert connection.messages(1) == []


def test_who_has_said_hello_may_be_silent(serve: Serve, join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide_tracker.peer.HELLO_TIMEOUT_S", 0.05)
    client = join(serve())
    time.sleep(0.15)
    assert client.open_front(5, 7) == 7


def test_a_long_hello_is_refused_before_it_is_waited_for(serve: Serve) -> None:
    with serve().raw() as connection:
        connection.sendall(HEAD.pack(MAX_HELLO_BYTES + 1, Kind.HELLO))
        [fault] = connection.messages(1)
        assert isinstance(fault, Fault)
        assert (fault.code, "1 to 4096 are allowed" in fault.text) == (Fault.PROTOCOL, True)


def test_a_connection_that_its_peer_leaves_open_after_a_fault_is_closed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lowtide_tracker.peer.LAST_WORD_S", 0.05)
    running = serve()
    with running.raw(Hello(3, None, "bad")) as connection:
        connection.sendall(b"\0\0\0\0\0")
        running.wait(lambda: not running.server._peers)


def test_a_stranger_does_not_learn_why_the_life_ended(serve: Serve, join: Join) -> None:
    """What would come instead of the server's proof looks like a wrong secret, too."""
    running = serve()
    with socket.create_connection(("127.0.0.1", running.port), HANGS_S) as stranger:
        assert len(stranger.recv(HELLO_BYTES, socket.MSG_WAITALL)) == HELLO_BYTES
        running.do(lambda: running.server.end(FlushGap(1, 2, 1)))
        assert stranger.recv(4096) == b""
    with pytest.raises(LifeEnded, match="flush 2 where flush 1"):
        join(running)


def test_nothing_is_announced_when_the_life_has_ended(serve: Serve) -> None:
    running = serve()

    def move_and_end() -> None:
        running.server.announce(running.server.tracker.receive(Flush.of(1, 1, heartbeats=[(0, 9)])))
        running.server.end(FlushGap(2, 2, 1))

    running.do(move_and_end)
    running.do(lambda: None)
    assert running.notices == []


def test_why_the_life_ended_is_heard_by_one_who_only_sends(
    serve: Serve, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lowtide_tracker.peer.LAST_WORD_S", 0.05)
    running, local = serve(), LocalTracker(1, 3)
    worker = join(running, local)
    running.do(lambda: running.server.end(FlushGap(2, 2, 1)))
    running.wait(lambda: not running.server._peers)

    def send() -> None:
        for tick in range(1, 100):
            local.heartbeat(0, tick)
            worker.flush()
            time.sleep(0.01)

    with pytest.raises(LifeEnded, match="worker 2 sent flush 2"):
        send()


def test_the_log_says_who_it_was(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    running = serve()
    with running.raw() as connection:
        connection.sendall(encode(Hello(2, 1, "level 1/0")))
        connection.messages(2)
    with running.raw(Hello(3, 7, "level 1/1")) as connection:
        connection.sendall(encode(Flush.of(7, 1, [(1, -1, 5)])))
        connection.messages(2)
    said = [record.getMessage() for record in caplog.records if record.name.startswith("lowtide")]
    assert said[0].startswith("refused a process at 127.0.0.1:")
    assert said[1].startswith("worker 7 (level 1/1) at 127.0.0.1:")
    assert said[1].endswith("sent a message that ends the life")
