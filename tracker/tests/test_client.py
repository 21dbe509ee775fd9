"""Connections that break, and what is made up for on the next."""

from __future__ import annotations

import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from hanging import HANGS_S

from lowtide_tracker import (
    ConnectionLost,
    Graph,
    HandshakeError,
    LocalTracker,
    ProtocolError,
    Tracker,
    TrackerClient,
)
from lowtide_tracker.handshake import HELLO_BYTES, MAGIC, PROOF_BYTES, REPLY_BYTES
from lowtide_tracker.messages import Hello, Welcome
from lowtide_tracker.wire import encode

if TYPE_CHECKING:
    from tracker_rig import Client, Running

    Serve = Callable[..., Running]
    Join = Callable[..., Client]

GRAPH = Graph({1: [], 2: [1]})


def test_a_flush_cut_in_its_middle_is_sent_again(serve: Serve, join: Join) -> None:
    """Nothing of half a flush is applied; the connection after it brings all of it, once."""
    running, local = serve(), LocalTracker(1, 3)
    local.fold(1, [4], 77)
    local.heartbeat(0, 9)
    flush = local.flush()
    assert flush is not None
    data = encode(flush)
    with running.raw(Hello(3, 1, "worker 1")) as broken:
        broken.sendall(data[: len(data) // 2])
    assert running.server.tracker.applied(1) == 0
    worker = join(running, local)
    worker.hear(lambda at: at[1] == 4)
    assert running.server.tracker.applied(1) == 1


def test_a_flush_whose_answer_was_lost_is_not_applied_twice(serve: Serve, join: Join) -> None:
    running, local = serve(), LocalTracker(1, 3)
    worker = join(running, local)
    local.fold(1, [4], 77)
    local.heartbeat(0, 9)
    worker.flush()
    running.wait(lambda: running.server.tracker.applied(1) == 1)
    assert len(local.unacknowledged()) == 1
    before = worker.fileno()
    worker.connect()
    assert worker.fileno() >= 0
    assert before >= 0
    assert local.unacknowledged() == ()
    local.fold(2, [5], 78)
    worker.flush()
    worker.hear(lambda at: at[1] == 4)
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
    clients[1].hear(lambda at: at[1] == min([299, *(tick for tick, _ in in_flight)]))
    for tick, value in in_flight:
        locals_[2].fold(1, [tick], value)
    clients[2].flush()
    clients[0].hear(lambda at: at.global_min == 299)
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

    with pytest.raises(ConnectionLost, match="connect again: flushes that were not applied are kept"):
        work_on()
    with pytest.raises(ConnectionLost, match="not connected"):
        worker.fileno()
    with pytest.raises(ConnectionLost, match="cannot reach"):
        worker.connect()
    last = local.flush() or local.unacknowledged()[-1]
    again = serve()
    worker.connect(again.address)
    worker.hear(lambda at: at.global_min == dict(last.heartbeats)[0])


def test_a_worker_that_comes_back_replaces_its_old_connection(serve: Serve, join: Join) -> None:
    running, local = serve(), LocalTracker(1, 3)
    with running.raw(Hello(3, 1, "worker 1")) as old, running.raw(Hello(3, 1, "worker 1")) as middle:
        assert old.messages(1) == []
        worker = join(running, local)
        assert middle.messages(1) == []
    local.heartbeat(0, 9)
    worker.flush()
    worker.hear(lambda at: at.global_min == 9)
    assert running.faults == []


def test_a_new_tracker_is_rebuilt_over_connections(serve: Serve, join: Join) -> None:
    """R10: the process dies, workers work on, and the next one continues where it was."""
    first = serve()
    sender, receiver = LocalTracker(1, 3), LocalTracker(2, 3)
    sends, receives, listens = join(first, sender), join(first, receiver), join(first)
    value = sender.new_value()
    sender.fold(1, [4, 6], value)
    sender.heartbeat(0, 9)
    sends.flush()
    for client in (receives, listens):
        client.hear(lambda at: at.global_min == 4)
    first.stop()
    receiver.fold(1, [4], value)
    receiver.flush()  # Into nothing.

    second = serve(Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=64, era=2).rebuilt_from([1, 2]))
    receives.connect(second.address)
    listens.connect(second.address)
    assert listens.receive(0.05) == []
    assert second.server.tracker.missing == (1,)
    sends.connect(second.address)
    for client in (sends, receives, listens):
        client.hear(lambda at: at.era == 2 and at.global_min == 6)
    second.wait(lambda: receives.receive() or not receiver.unacknowledged())
    receiver.fold(1, [6], value)
    receives.flush()
    sends.hear(lambda at: at.global_min == 9)
    assert second.faults == []


def test_what_cannot_be_answered_yet_is_answered_after_the_rebuilding(serve: Serve, join: Join) -> None:
    running = serve(Tracker(GRAPH, {0: 5}, start=0, capacity_ticks=64, era=2).rebuilt_from([1]))
    driver, opened = join(running), list[int]()
    asking = threading.Thread(target=lambda: opened.append(driver.open_front(1, 0)))
    asking.start()
    time.sleep(0.05)
    assert opened == []
    join(running, LocalTracker(1, 3))
    asking.join(HANGS_S)
    assert opened == [5]


def test_a_tracker_of_an_era_that_is_over_is_left(serve: Serve, join: Join) -> None:
    """It was taken for dead and is not: what it applies, the one in its place would miss."""
    first, local = serve(), LocalTracker(1, 3)
    worker = join(first, local)
    second = serve(Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=64, era=2).rebuilt_from([1]))
    worker.connect(second.address)
    local.heartbeat(0, 9)
    with pytest.raises(ConnectionLost, match=r"of era 1; one of era 2 has replaced it"):
        worker.connect(first.address)
    worker.connect(second.address)
    worker.flush()
    worker.hear(lambda at: at.global_min == 9)
    assert first.server.tracker.applied(1) == 0


def test_a_worker_that_another_process_was_before_does_not_go_on(serve: Serve, join: Join) -> None:
    """Its flushes have numbers that are applied, so they would be ignored, acks and all."""
    running, local = serve(), LocalTracker(1, 3)
    local.heartbeat(0, 9)
    worker = join(running, local)
    worker.flush()
    worker.hear(lambda at: at.global_min == 9)
    again = TrackerClient(running.address, secret=bytes(range(32)), incarnation=3, local=LocalTracker(1, 3))
    with pytest.raises(ProtocolError, match="applied flush 1 of worker 1, which made 0: an earlier process was"):
        again.connect()
    with pytest.raises(ConnectionLost, match="not connected"):
        again.fileno()


def test_half_a_message_is_forgotten_with_its_connection(serve: Serve, join: Join) -> None:
    """Cut off by a relay in the middle of the first notice; the next connection begins with a message."""
    running = serve()
    with socket.create_server(("127.0.0.1", 0)) as door:

        def relay(limit_bytes: int) -> None:
            here, _ = door.accept()
            with here, socket.create_connection(("127.0.0.1", running.port)) as there:
                while limit_bytes:
                    for ready in select.select([here, there], [], [])[0]:
                        data = ready.recv(limit_bytes if ready is there else 4096)
                        (here if ready is there else there).sendall(data)
                        limit_bytes -= len(data) if ready is there else 0

        handshake_and_welcome = HELLO_BYTES + PROOF_BYTES + len(encode(Welcome(1, 0, report=False)))
        some_of_the_notice = 10
        cut = threading.Thread(target=relay, args=[handshake_and_welcome + some_of_the_notice])
        cut.start()
        client = TrackerClient(f"127.0.0.1:{door.getsockname()[1]}", secret=bytes(range(32)), incarnation=3)
        client.connect()
        with pytest.raises(ConnectionLost):
            client.receive(HANGS_S) or client.receive(HANGS_S)
        cut.join(HANGS_S)
    client.connect(running.address)
    [whole] = client.receive(HANGS_S)
    assert whole.min_times == {1: 0, 2: 0}
    client.close()


def test_a_server_that_does_not_know_the_secret_learns_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        reported: list[bytes] = []

        def pretend() -> None:
            here, _ = door.accept()
            with here:
                here.sendall(MAGIC + b"s" * 32)
                here.recv(REPLY_BYTES, socket.MSG_WAITALL)
                here.sendall(b"\0" * PROOF_BYTES)
                reported.append(here.recv(4096))

        impostor = threading.Thread(target=pretend)
        impostor.start()
        client = TrackerClient(f"127.0.0.1:{door.getsockname()[1]}", secret=bytes(range(32)), incarnation=3)
        with pytest.raises(HandshakeError, match="server does not know"):
            client.connect()
        impostor.join(HANGS_S)
    assert reported == [b""]


def test_an_answer_that_does_not_come_is_not_waited_for_for_ever(serve: Serve, join: Join) -> None:
    running = serve(Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=64, era=2).rebuilt_from([1]))
    driver = join(running)
    driver._timeout_s = 0.1
    with pytest.raises(ConnectionLost, match=r"has not answered for 0\.1 s"):
        driver.open_front(5, 0)
    running.wait(lambda: not running.server._peers)
    join(running, LocalTracker(1, 3)).hear(lambda at: at.era == 2)
    assert 5 not in running.server.tracker._fronts  # Nobody waits for it any more.


def test_who_says_unsubscribe_while_the_tracker_is_rebuilt_hears_nothing(serve: Serve, join: Join) -> None:
    running = serve(Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=64, era=2).rebuilt_from([1]))
    listener = join(running)
    listener.unsubscribe()
    running.wait(lambda: not running.server._waiting)
    join(running, LocalTracker(1, 3)).hear(lambda at: at.era == 2)
    assert listener.receive(0.05) == []


def test_a_local_tracker_that_somebody_else_tells_hears_nothing_of_the_client(serve: Serve) -> None:
    running, local = serve(), LocalTracker(1, 3, start=0)
    client = TrackerClient(running.address, secret=bytes(range(32)), incarnation=3, local=local)
    client.connect()
    local.heartbeat(0, 9)
    flush = local.flush()
    assert flush is not None
    client.send_flush(flush)
    heard = client.receive(HANGS_S)
    while client.min_times.global_min < 9:
        heard += client.receive(HANGS_S)
    assert local.global_min == 0
    assert [local.hear(notice) for notice in heard] == [True, True]
    assert local.global_min == 9
    client.close()
