"""Acks in, notices out, over real sockets on loopback."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hanging import HANGS_S

from lowtide_tracker import (
    ConnectionLost,
    Floor,
    Flush,
    Graph,
    LocalTracker,
    MinTimes,
    Notice,
    ProtocolError,
    Tracker,
)
from lowtide_tracker.message_reader import MessageReader
from lowtide_tracker.messages import CloseFront, FrontClosed, FrontOpened, Hello, OpenFront, Subscribe, Unsubscribe
from lowtide_tracker.wire import decode, encode

if TYPE_CHECKING:
    from tracker_rig import Client, Running

    Serve = Callable[..., Running]
    Join = Callable[..., Client]

GRAPH = Graph({1: [], 2: [1]})
FLOORS = 90
"""Of each notice to a slow subscriber, with offsets of 9 bytes: large enough to fill the kernel's buffers."""
FIRST_OFFSET = 1 << 40


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
    heard = receives.hear(lambda at: at[1] == 4)
    assert [notice.floors for notice in heard if notice.floors] == [(Floor(0, 7, 9),)]
    receiver.fold(1, [4], value)
    receives.flush()
    for client in (sends, receives, listens):
        client.hear(lambda at: at.global_min == 9)
    assert receives.min_times.global_min == sends.min_times[2] == 9
    running.wait(lambda: sends.receive() or not sender.unacknowledged())
    running.wait(lambda: running.notices[-1].global_min == 9)
    assert running.faults == []


def test_a_late_subscriber_hears_everything_first(serve: Serve, join: Join) -> None:
    running, local = serve(), LocalTracker(1, 3)
    worker = join(running, local)
    for tick in range(1, 4):
        local.floor(Floor(0, tick, tick))
        local.heartbeat(0, tick)
        worker.flush()
    worker.hear(lambda at: at.global_min == 3)
    listener = join(running)
    [whole] = listener.hear(lambda at: at.global_min == 3)
    assert (whole.after, len(whole.floors)) == (0, 3)
    listener.unsubscribe()
    local.heartbeat(0, 5)
    worker.flush()
    worker.hear(lambda at: at.global_min == 5)
    assert listener.receive(0.05) == []
    listener.subscribe()
    listener.hear(lambda at: at.global_min == 5)


def test_fronts_open_late_and_close(serve: Serve, join: Join) -> None:
    running, local = serve(), LocalTracker(1, 3)
    worker, driver = join(running, local), join(running)
    local.heartbeat(0, 40)
    worker.flush()
    driver.hear(lambda at: at.global_min == 40)
    assert driver.open_front(1, 7) == 40
    assert driver.open_front(2, 50, feeds=[2]) == 50
    local.heartbeat(0, 60)
    worker.flush()
    assert driver.receive(0.05) == []
    driver.close_front(1)
    driver.hear(lambda at: at.global_min == 50)
    with pytest.raises(ProtocolError, match="front 1 was closed for good"):
        driver.open_front(1, 70)
    assert running.faults == []


def test_a_message_may_come_byte_by_byte(serve: Serve) -> None:
    running = serve()
    with running.raw() as connection:
        for byte in encode(Hello(3, 1, "slow")) + encode(Flush.of(1, 1, heartbeats=[(0, 9)])):
            connection.sendall(bytes([byte]))
        running.wait(lambda: running.notices)
        running.wait(lambda: running.notices[-1].global_min == 9)


def test_a_slow_subscriber_hears_merged_notices_in_order(serve: Serve, join: Join) -> None:
    running, local = serve(Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=8)), LocalTracker(1, 3)
    worker = join(running, local)
    with running.raw(Hello(3, None, "slow")) as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        slow.sendall(encode(Subscribe()))
        last = 1000
        for tick in range(1, last + 1):
            for offset in range(FLOORS):
                local.floor(Floor(0, FIRST_OFFSET + FLOORS * tick + offset, tick))
            local.heartbeat(0, tick)
            worker.flush()
            worker.hear_up_to(tick)  # So that none are merged as those of one turn.
        reader, heard, at = MessageReader(), list[Notice](), MinTimes()
        while at.global_min < last:
            for kind, payload in reader.feed(slow.socket.recv(1 << 16)):
                notice = decode(kind, payload)
                assert isinstance(notice, Notice)
                assert at.hear(notice) or notice.number == 0
                heard.append(notice)
    assert all(later.after == earlier.number for earlier, later in pairwise(heard))
    assert len(heard) < last / 2
    assert max(later.number - later.after for later in heard) > 100
    decided = {floor.offset - FIRST_OFFSET for notice in heard for floor in notice.floors}
    assert decided == set(range(FLOORS, FLOORS * last + FLOORS))


def test_a_slow_subscriber_that_has_had_enough_hears_no_more(serve: Serve, join: Join) -> None:
    running, local = serve(), LocalTracker(1, 3)
    worker = join(running, local)
    with running.raw(Hello(3, None, "slow")) as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        slow.sendall(encode(Subscribe()))
        for tick in range(1, 1000):
            for offset in range(FLOORS):
                local.floor(Floor(0, FIRST_OFFSET + FLOORS * tick + offset, tick))
            local.heartbeat(0, tick)
            worker.flush()
            worker.hear_up_to(tick)
        slow.sendall(encode(Unsubscribe()) + encode(OpenFront(9, 0)))
        running.wait(lambda: 9 in running.server.tracker._fronts)
        while not isinstance(slow.messages(1)[-1], FrontOpened):
            pass
        slow.sendall(encode(CloseFront(9)))
        assert slow.messages(1) == [FrontClosed(9)]


def test_a_large_flush_waits_for_a_tracker_that_is_busy(serve: Serve, join: Join) -> None:
    """It is larger than what kernels keep: the client waits, and says so if it waits in vain."""
    running, local, free = serve(), LocalTracker(1, 3), threading.Event()
    worker = join(running, local)
    local.fold(1, range(800_000), 5)

    def be_busy() -> None:
        running.wait(local.unacknowledged)
        time.sleep(0.2)

    busy = threading.Thread(target=running.do, args=[be_busy])
    busy.start()
    assert worker.flush()
    busy.join()
    running.wait(lambda: running.server.tracker.applied(1) == 1)

    other, held = LocalTracker(2, 3), threading.Event()
    hasty = join(running, other)
    hasty._timeout_s = 0.1  # To send; connecting may take as long as it does.
    other.fold(1, range(800_000), 5)

    def read_nothing() -> None:
        held.set()
        free.wait(HANGS_S)

    busy = threading.Thread(target=running.do, args=[read_nothing])
    busy.start()
    try:
        assert held.wait(HANGS_S)
        with pytest.raises(ConnectionLost, match=r"has read nothing for 0\.1 s"):
            hasty.flush()
    finally:
        free.set()
        busy.join()
    join(running, other)
    running.wait(lambda: running.server.tracker.applied(2) == 1)


def test_the_owner_s_acks_go_before_its_front_is_closed(serve: Serve, join: Join) -> None:
    """Front 0 is closed with a frame in flight at tick 5 that no flush has, as one still waits to be applied."""
    running = serve(Tracker(GRAPH, {0: 0, 1: 40}, start=0, capacity_ticks=64))
    local = LocalTracker(1, 3, max_unacknowledged=1)
    worker = join(running, local)
    local.heartbeat(0, 5)
    assert worker.flush()
    local.fold(1, [5], 77)
    assert not worker.flush()
    worker.close_front(0)
    assert running.server.tracker.min_time(1) == 5
    assert str(running.server.tracker.holder()) == "segment 1 has an open ack at tick 5"
