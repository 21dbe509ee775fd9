"""A worker's line to the tracker: broken, mended, and nothing lost meanwhile."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pytest
from hanging import HANGS_S
from tracker_life import INCARNATION, SECRET, TrackerLife, Worker, wait

from lowtide.errors import LifeEnded
from lowtide.process.greeting import GREETING_LIMIT_S, TRY_EVERY_S
from lowtide.process.tracker_line import TrackerLine
from lowtide_tracker import LocalTracker, Notice


@pytest.fixture(scope="module")
def life() -> Iterator[TrackerLife]:
    with TrackerLife() as life:
        yield life


def cut(line: TrackerLine) -> None:
    """Break a line as the network does."""
    with socket.socket(fileno=os.dup(line.fileno())) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def line_to(address: str, incarnation: int = INCARNATION, limit_s: float = 20.0) -> TrackerLine:
    local = LocalTracker(1, incarnation)
    return TrackerLine(
        address, secret=SECRET, incarnation=incarnation, local=local, name="1/0", reconnect_limit_s=limit_s
    )


def test_the_core_is_the_first_that_hears_a_notice() -> None:
    """A local tracker that had heard it would tell its core that it says nothing new."""
    with TrackerLife() as life:
        one = Worker(life, 1)
        one.local.heartbeat(0, 5)
        one.line.flush(one.local.flush())
        notices: list[Notice] = []

        def heard() -> bool:
            notices.extend(one.line.receive())
            return len(notices) == 2

        wait(heard)
        assert one.local.global_min == 0
        assert [one.local.hear(notice) for notice in notices] == [True, True]
        assert one.local.global_min == 5


def test_what_is_flushed_while_the_line_is_broken_is_sent_by_the_next() -> None:
    with TrackerLife() as life:
        one, two = Worker(life, 1), Worker(life, 2)
        frame = one.local.new_value()
        one.local.fold(1, [4], frame)
        one.local.heartbeat(0, 6)
        one.hears(done=lambda: one.local.global_min == 4)
        old = two.line.fileno()
        cut(two.line)
        two.line.receive()
        assert (old >= 0, two.line.fileno()) == (True, -1)
        two.local.fold(1, [4], frame)
        two.line.flush(two.local.flush())
        one.local.heartbeat(0, 8)
        two.local.hold(2, 7)
        late = two.local.flush()
        assert len(two.local.unacknowledged()) == 2
        wait(lambda: two.line.mend(time.monotonic()))
        two.line.flush(late)  # The new line has carried it already.
        one.hears(two, done=lambda: dict(one.local.min_times.items()) == {1: 8, 2: 7})
        assert two.local.unacknowledged() == ()
        assert life.faults == []


def test_what_is_flushed_while_the_tracker_is_dead_is_in_the_report() -> None:
    with TrackerLife() as life:
        one, two = Worker(life, 1), Worker(life, 2)
        frame = one.local.new_value()
        one.local.fold(1, [4], frame)
        one.local.heartbeat(0, 6)
        one.hears(two, done=lambda: two.local.global_min == 4)
        life.kill()
        wait(lambda: one.line.receive() == [] and one.line.fileno() < 0)
        wait(lambda: two.line.receive() == [] and two.line.fileno() < 0)
        two.local.fold(1, [4], frame)
        late = two.local.flush()
        two.line.flush(late)
        wait(lambda: two.line.mend(time.monotonic()))
        two.line.flush(late)
        two.local.hold(2, 6)
        one.hears(two, done=lambda: dict(one.local.min_times.items()) == {1: 6, 2: 6})
        one.local.heartbeat(0, 9)
        one.hears(two, done=lambda: dict(one.local.min_times.items()) == {1: 9, 2: 6})
        assert life.faults == []


def test_what_was_heard_before_the_line_broke_is_reported() -> None:
    with TrackerLife() as life:
        one, two = Worker(life, 1), Worker(life, 2)
        one.local.heartbeat(0, 6)
        one.hears(done=lambda: one.local.global_min == 6)
        cut(two.line)  # What has come by now is still there.
        reported = [*two.line.receive(), *two.line.receive()]
        assert two.line.fileno() == -1
        assert reported[-1].min_times == {1: 6, 2: 6}


def test_the_end_of_the_life_is_ours_with_the_trackers_words(life: TrackerLife) -> None:
    old = line_to(life.address, INCARNATION - 1)
    with pytest.raises(LifeEnded, match=r"1/0 is of incarnation 2, but this tracker serves 3: that life is older"):
        old.connect()
    assert old.fileno() == -1
    stranger = TrackerLine(life.address, secret=b"x" * 32, incarnation=3, local=LocalTracker(5, 3), name="1/5")
    stranger._limit_s = 0.2
    with pytest.raises(LifeEnded, match="does not know the job's secret"):
        stranger.connect()


def test_a_line_that_stays_broken_ends_the_life() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    line = line_to(address, limit_s=20.0)
    for turn in range(80):
        assert not line.mend(100.0 + turn / 4)
    with pytest.raises(LifeEnded, match=r"worker 1/0 has had no connection to the tracker at .* for 20 s: .*refused"):
        line.mend(120.0)


def test_a_loop_that_was_busy_for_long_still_finds_the_tracker(life: TrackerLife) -> None:
    line = line_to(life.address)
    line.mend(100.0)
    turns = iter(range(10_000))
    wait(lambda: line.mend(1000.0 + next(turns) * 0.01))
    line.close()


def test_nobody_waits_for_a_tracker_that_takes_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(HANGS_S)
        line = line_to(f"127.0.0.1:{server.getsockname()[1]}")
        now = 0.0
        while now < 2 * GREETING_LIMIT_S:
            assert not line.mend(now)
            now += TRY_EVERY_S / 2
        connections = [server.accept()[0] for _ in range(2)]
        assert connections[0].recv(1) == b"", "the first was given up for the second"
        for connection in connections:
            connection.close()
        line.close()
