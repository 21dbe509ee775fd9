"""Server and client, over real sockets on loopback."""

import asyncio
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from lowtide_tracker import (
    ConnectionLost,
    Floor,
    Flush,
    FlushGap,
    Graph,
    LifeEnded,
    LocalTracker,
    MinTimes,
    Notice,
    ProtocolError,
    Refused,
    TimeWentBack,
    Tracker,
    TrackerClient,
    TrackerError,
    TrackerServer,
)
from lowtide_tracker.handshake import HELLO_BYTES, PROOF_BYTES, ClientHandshake
from lowtide_tracker.message_reader import MessageReader
from lowtide_tracker.messages import Fault, Hello, Message, Subscribe, Welcome
from lowtide_tracker.wire import Kind, decode, encode

SECRET = bytes(range(32))
GRAPH = Graph({1: [], 2: [1]})
LIMIT_S = 10.0


class Running:
    """A server in a thread of its own."""

    def __init__(self, tracker: Tracker) -> None:
        self.faults: list[TrackerError] = []
        self.notices: list[Notice] = []
        self.server = TrackerServer(
            tracker, secret=SECRET, incarnation=3, on_fault=self.faults.append, on_notice=self.notices.append
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.address = asyncio.run_coroutine_threadsafe(self.server.start(), self._loop).result(LIMIT_S)

    def stop(self) -> None:
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self.server.close(), self._loop).result(LIMIT_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(LIMIT_S)
            self._loop.close()


Serve = Callable[..., Running]
Join = Callable[..., TrackerClient]


@pytest.fixture
def serve() -> Iterator[Serve]:
    running: list[Running] = []

    def start(tracker: Tracker | None = None) -> Running:
        running.append(Running(tracker or Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=1 << 20)))
        return running[-1]

    yield start
    for each in running:
        each.stop()


@pytest.fixture
def join() -> Iterator[Join]:
    clients: list[TrackerClient] = []

    def connect(running: Running, local: LocalTracker | None = None, incarnation: int = 3) -> TrackerClient:
        name = "listener" if local is None else f"worker {local.worker}"
        client = TrackerClient(running.address, secret=SECRET, incarnation=incarnation, local=local, name=name)
        clients.append(client)
        client.connect()
        return client

    yield connect
    for client in clients:
        client.close()


def hear(client: TrackerClient, done: Callable[[MinTimes], bool]) -> list[Notice]:
    """Receives until what was heard satisfies ``done``."""
    heard: list[Notice] = []
    until = time.monotonic() + LIMIT_S
    while not done(client.min_times):
        assert time.monotonic() < until, f"heard only {heard}"
        heard += client.receive(0.1)
    return heard


def wait(done: Callable[[], object]) -> None:
    until = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < until
        time.sleep(0.002)


def raw(running: Running, hello: Hello | None = None) -> socket.socket:
    """A connection without a client: after the handshake, or after `Hello` and `Welcome`."""
    host, _, port = running.address.rpartition(":")
    connection = socket.create_connection((host, int(port)), LIMIT_S)
    shake = ClientHandshake(SECRET, b"n" * 32)
    connection.sendall(shake.reply(connection.recv(HELLO_BYTES, socket.MSG_WAITALL)))
    connection.recv(PROOF_BYTES, socket.MSG_WAITALL)
    if hello is not None:
        connection.sendall(encode(hello))
        assert isinstance(messages(connection, 1)[0], Welcome)
    return connection


def messages(connection: socket.socket, count: int) -> list[Message]:
    reader, seen = MessageReader(), list[Message]()
    while len(seen) < count:
        try:
            data = connection.recv(1 << 16)
        except ConnectionResetError:
            break
        if not data:
            break
        seen += [decode(kind, payload) for kind, payload in reader.feed(data)]
    return seen


# -- the way of an ack -------------------------------------------------------------------------------------------------


def test_a_frame_is_tracked_from_sender_to_receiver(serve: Serve, join: Join) -> None:
    running = serve()
    sender, receiver = LocalTracker(1, 3), LocalTracker(2, 3)
    sends, receives, listens = join(running, sender), join(running, receiver), join(running)
    value = sender.new_value()
    sender.fold(1, [4], value)
    sender.floor(Floor(0, 7, 9))
    sender.heartbeat(0, 9)
    assert sends.flush()
    assert not sends.flush()
    heard = hear(receives, lambda at: at[1] == 4)
    assert [notice.floors for notice in heard if notice.floors] == [(Floor(0, 7, 9),)]
    receiver.fold(1, [4], value)
    receives.flush()
    for client in (sends, receives, listens):
        hear(client, lambda at: at.global_min == 9)
    assert receiver.global_min == sender.min_times[2] == 9
    wait(lambda: sends.receive() or not sender.unacknowledged())
    wait(lambda: running.notices[-1].global_min == 9)
    assert running.faults == []


def test_a_late_subscriber_hears_everything_first(serve: Serve, join: Join) -> None:
    running, local = serve(), LocalTracker(1, 3)
    worker = join(running, local)
    for tick in range(1, 4):
        local.floor(Floor(0, tick, tick))
        local.heartbeat(0, tick)
        worker.flush()
    hear(worker, lambda at: at.global_min == 3)
    listener = join(running)
    [whole] = hear(listener, lambda at: at.global_min == 3)
    assert (whole.after, len(whole.floors)) == (0, 3)
    listener.unsubscribe()
    local.heartbeat(0, 5)
    worker.flush()
    hear(worker, lambda at: at.global_min == 5)
    assert listener.receive(0.05) == []
    listener.subscribe()
    hear(listener, lambda at: at.global_min == 5)


def test_fronts_open_late_and_close(serve: Serve, join: Join) -> None:
    running, local = serve(), LocalTracker(1, 3)
    worker, driver = join(running, local), join(running)
    local.heartbeat(0, 40)
    worker.flush()
    hear(driver, lambda at: at.global_min == 40)
    assert driver.open_front(1, 7) == 40
    assert driver.open_front(2, 50, feeds=[2]) == 50
    local.heartbeat(0, 60)
    worker.flush()
    assert driver.receive(0.05) == []
    driver.close_front(1)
    hear(driver, lambda at: at.global_min == 50)
    with pytest.raises(ProtocolError, match="front 1 was closed for good"):
        driver.open_front(1, 70)
    assert running.faults == []


def test_a_message_may_come_byte_by_byte(serve: Serve) -> None:
    running = serve()
    with raw(running) as connection:
        for byte in encode(Hello(3, 1, "slow")) + encode(Flush.of(1, 1, heartbeats=[(0, 9)])):
            connection.sendall(bytes([byte]))
        wait(lambda: running.notices)
        wait(lambda: running.notices[-1].global_min == 9)


def test_a_slow_subscriber_hears_merged_notices_in_order(serve: Serve, join: Join) -> None:
    running, local = serve(Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=8)), LocalTracker(1, 3)
    worker = join(running, local)
    with raw(running, Hello(3, None, "slow")) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        slow.sendall(encode(Subscribe()))
        last = 1000
        for tick in range(1, last + 1):
            # Floors make notices large enough to fill the kernel's buffers.
            for offset in range(60):
                local.floor(Floor(0, 60 * tick + offset, tick))
            local.heartbeat(0, tick)
            while not worker.flush():
                worker.receive(0.01)
        hear(worker, lambda at: at.global_min == last)
        reader, heard, at = MessageReader(), list[Notice](), MinTimes()
        while at.global_min < last:
            for kind, payload in reader.feed(slow.recv(1 << 16)):
                notice = decode(kind, payload)
                assert isinstance(notice, Notice)
                assert at.hear(notice) or notice.number == 0
                heard.append(notice)
    assert all(later.after == earlier.number for earlier, later in pairwise(heard))
    assert len(heard) < last / 2
    assert max(later.number - later.after for later in heard) > 100
    assert {floor.offset for notice in heard for floor in notice.floors} == set(range(60, 60 * last + 60))


# -- connections that break --------------------------------------------------------------------------------------------


def test_a_flush_cut_in_its_middle_is_sent_again(serve: Serve, join: Join) -> None:
    """Nothing of half a flush is applied; the connection after it brings all of it, once."""
    running, local = serve(), LocalTracker(1, 3)
    local.fold(1, [4], 77)
    local.heartbeat(0, 9)
    flush = local.flush()
    assert flush is not None
    data = encode(flush)
    with raw(running, Hello(3, 1, "worker 1")) as broken:
        broken.sendall(data[: len(data) // 2])
    assert running.server.tracker.applied(1) == 0
    worker = join(running, local)
    hear(worker, lambda at: at[1] == 4)
    assert running.server.tracker.applied(1) == 1


def test_a_flush_whose_answer_was_lost_is_not_applied_twice(serve: Serve, join: Join) -> None:
    running, local = serve(), LocalTracker(1, 3)
    worker = join(running, local)
    local.fold(1, [4], 77)
    local.heartbeat(0, 9)
    worker.flush()
    wait(lambda: running.server.tracker.applied(1) == 1)
    assert len(local.unacknowledged()) == 1
    before = worker.fileno()
    worker.connect()
    assert worker.fileno() >= 0
    assert before >= 0
    assert local.unacknowledged() == ()
    local.fold(2, [5], 78)
    worker.flush()
    hear(worker, lambda at: at[1] == 4)
    assert running.server.tracker.min_times() == {1: 4, 2: 4}
    assert running.faults == []


@pytest.mark.parametrize("seed", range(5))
def test_connections_cut_at_random_lose_and_double_nothing(serve: Serve, join: Join, seed: int) -> None:
    running, rng = serve(), random.Random(seed)
    locals_ = [LocalTracker(worker, 3) for worker in range(3)]
    clients = [join(running, local) for local in locals_]
    in_flight: list[tuple[int, int]] = []
    for tick in range(1, 300):
        value = locals_[0].new_value()
        locals_[0].fold(1, [tick], value)
        locals_[0].heartbeat(0, tick)
        in_flight.append((tick, value))
        if rng.random() < 0.9:
            done, value = in_flight.pop(rng.randrange(len(in_flight)))
            locals_[rng.choice([1, 2])].fold(1, [done], value)
        worker = rng.randrange(3)
        if rng.random() < 0.2:
            flush = locals_[worker].flush()
            data = b"" if flush is None else encode(flush)
            os.write(clients[worker].fileno(), data[: rng.randrange(len(data) + 1)])
            clients[worker].connect()
        else:
            clients[worker].flush()
            clients[worker].receive()
        assert all(running.server.tracker.min_time(1) <= tick for tick, _ in in_flight)
    for client in clients:
        client.flush()
    hear(clients[1], lambda at: at[1] == min([299, *(tick for tick, _ in in_flight)]))
    for tick, value in in_flight:
        locals_[2].fold(1, [tick], value)
    clients[2].flush()
    hear(clients[0], lambda at: at.global_min == 299)
    assert running.faults == []


def test_a_lost_connection_is_said_and_nothing_is_lost(serve: Serve, join: Join) -> None:
    running, local = serve(), LocalTracker(1, 3)
    worker = join(running, local)
    running.stop()
    local.heartbeat(0, 9)

    def work_on() -> None:
        for tick in range(10, 1000):
            local.heartbeat(0, tick)
            worker.flush()
            worker.receive(0.01)

    with pytest.raises(ConnectionLost, match="connect again, what was not applied is kept"):
        work_on()
    with pytest.raises(ConnectionLost, match="there is no connection"):
        worker.fileno()
    with pytest.raises(ConnectionLost, match="cannot be reached"):
        worker.connect()
    last = local.flush() or local.unacknowledged()[-1]
    again = serve()
    worker.connect(again.address)
    hear(worker, lambda at: at.global_min == dict(last.heartbeats)[0])


def test_a_worker_that_comes_back_replaces_its_old_connection(serve: Serve, join: Join) -> None:
    running, local = serve(), LocalTracker(1, 3)
    with raw(running, Hello(3, 1, "worker 1")) as old:
        worker = join(running, local)
        assert messages(old, 1) == []
    local.heartbeat(0, 9)
    worker.flush()
    hear(worker, lambda at: at.global_min == 9)
    assert running.faults == []


def test_a_new_tracker_is_rebuilt_over_connections(serve: Serve, join: Join) -> None:
    """R10, T10: the process dies, workers work on, and the next one continues where it was."""
    first = serve()
    sender, receiver = LocalTracker(1, 3), LocalTracker(2, 3)
    sends, receives, listens = join(first, sender), join(first, receiver), join(first)
    value = sender.new_value()
    sender.fold(1, [4, 6], value)
    sender.heartbeat(0, 9)
    sends.flush()
    for client in (receives, listens):
        hear(client, lambda at: at.global_min == 4)
    first.stop()
    receiver.fold(1, [4], value)
    receiver.flush()  # Into nothing.

    second = serve(Tracker.rebuilding(GRAPH, {0: 0}, workers=[1, 2], start=0, capacity_ticks=64, era=2))
    receives.connect(second.address)
    listens.connect(second.address)
    assert listens.receive(0.05) == []
    assert second.server.tracker.missing == (1,)
    sends.connect(second.address)
    for client in (sends, receives, listens):
        hear(client, lambda at: at.era == 2 and at.global_min == 6)
    wait(lambda: receives.receive() or not receiver.unacknowledged())
    receiver.fold(1, [6], value)
    receives.flush()
    hear(sends, lambda at: at.global_min == 9)
    assert second.faults == []


def test_what_cannot_be_answered_yet_is_answered_after_the_rebuilding(serve: Serve, join: Join) -> None:
    running = serve(Tracker.rebuilding(GRAPH, {0: 5}, workers=[1], start=0, capacity_ticks=64, era=2))
    driver, opened = join(running), list[int]()
    asking = threading.Thread(target=lambda: opened.append(driver.open_front(1, 0)))
    asking.start()
    time.sleep(0.05)
    assert opened == []
    join(running, LocalTracker(1, 3))
    asking.join(LIMIT_S)
    assert opened == [5]


# -- who is not let in, and what ends the life -------------------------------------------------------------------------


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


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n" * 9, b"LOWTIDE\x01" + b"\0" * 200, b"\0"])
def test_garbage_before_the_proof_is_answered_by_nothing(serve: Serve, join: Join, garbage: bytes) -> None:
    running = serve()
    host, _, port = running.address.rpartition(":")
    with socket.create_connection((host, int(port)), LIMIT_S) as connection:
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
        with raw(running, Hello(3, None, "bad")) as connection:
            connection.sendall(bad)
            [fault] = messages(connection, 2)
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
def test_a_workers_fault_ends_the_life_and_everybody_is_told(
    serve: Serve, join: Join, sent: bytes, error: type[TrackerError]
) -> None:
    running = serve()
    others = [join(running, LocalTracker(2, 3)), join(running)]
    with raw(running, Hello(3, 1, "bad")) as connection:
        connection.sendall(sent + encode(Flush.of(1, 1)) * 1000)
        [fault] = messages(connection, 2)
    wait(lambda: running.faults)
    for client in others:
        with pytest.raises(LifeEnded) as ended:
            hear(client, lambda at: False)
        assert fault == Fault(Fault.LIFE_ENDED, str(ended.value))
        assert str(ended.value) == str(running.faults[0])
    assert [type(fault) for fault in running.faults] == [error]
    with pytest.raises(LifeEnded):
        join(running)


def test_who_does_not_say_hello_is_put_out(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide_tracker.peer.HELLO_TIMEOUT_S", 0.05)
    with raw(serve()) as connection:
        assert messages(connection, 1) == []
