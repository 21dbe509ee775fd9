"""Notices on demand: what a subscriber does not wait for may be late, and is merged; nothing is lost (R14)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide_tracker import (
    Floor,
    Flush,
    Graph,
    LifeEnded,
    LocalTracker,
    MinTimes,
    Notice,
    ProtocolError,
    Tracker,
    UnknownSegment,
)
from lowtide_tracker.message_reader import MessageReader
from lowtide_tracker.messages import Applied, Await, Hello
from lowtide_tracker.peer import Life, Peer
from lowtide_tracker.wire import decode, encode

if TYPE_CHECKING:
    from tracker_rig import Client, Running

    Serve = Callable[..., Running]
    Join = Callable[..., Client]

GRAPH = Graph({1: [], 2: [1]})
FOR_EVER_S = 60.0


class Moving:
    """A server, and the worker that moves its min times tick by tick."""

    def __init__(self, running: Running) -> None:
        self.running, self.number = running, 0

    def to(self, tick: int, *, segment_2: int | None = None, floor: Floor | None = None) -> None:
        """Moves both segments' min times to a tick, or the second only as far as another one."""
        acks = [] if segment_2 is None else [(2, segment_2, 1)]
        self.number += 1
        flush = Flush.of(1, self.number, acks, [(0, tick)], [] if floor is None else [floor])
        self.running.do(lambda: self.running.server.announce(self.running.server.tracker.receive(flush)))
        self.running.do(lambda: None)  # The turn in which it is sent.


@pytest.fixture
def moving(serve: Serve) -> Moving:
    return Moving(serve())


@pytest.fixture
def never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes has not come because of the time limit."""
    monkeypatch.setattr("lowtide_tracker.peer.HOLD_S", FOR_EVER_S)


def waiting(moving: Moving, join: Join, *pairs: tuple[int, int]) -> Client:
    """A subscriber that has heard everything and waits for these ticks, as the server knows."""
    client = join(moving.running)
    client.hear(lambda at: at.era == 1)
    client.await_ticks(pairs)
    assert client.open_front(99, 1 << 40, feeds=[]) == 1 << 40  # Answered after what was sent before.
    return client


@pytest.mark.usefixtures("never_late")
def test_notices_wait_until_an_awaited_tick_is_passed(moving: Moving, join: Join) -> None:
    client = waiting(moving, join, (1, 5), (2, 90))
    for tick in (1, 3, 5):
        moving.to(tick, floor=Floor(0, tick, tick))
    assert client.receive(0.05) == []
    moving.to(6)
    [merged] = client.hear(lambda at: at[1] > 5)
    assert (merged.after, merged.number, merged.min_times, merged.global_min) == (0, 4, {1: 6, 2: 6}, 6)
    assert merged.floors == (Floor(0, 1, 1), Floor(0, 3, 3), Floor(0, 5, 5))


@pytest.mark.usefixtures("never_late")
def test_after_an_awaited_tick_everything_comes_until_the_next_is_named(moving: Moving, join: Join) -> None:
    client = waiting(moving, join, (1, 5))
    for tick in (6, 7, 8):
        moving.to(tick)
        assert [notice.number for notice in client.hear_up_to(tick)] == [tick - 5]
    client.await_ticks([(1, 20)])
    client.open_front(98, 1 << 40, feeds=[])
    moving.to(9)
    assert client.receive(0.05) == []


@pytest.mark.usefixtures("never_late")
def test_a_tick_that_was_passed_before_it_was_named_is_not_waited_for(moving: Moving, join: Join) -> None:
    """Its notice waits, or is on its way: in neither case does the subscriber wait for another one."""
    client = waiting(moving, join, (1, 50))
    moving.to(9)
    client.await_ticks([(1, 8)])
    assert client.hear_up_to(9)
    moving.to(10)
    assert client.hear_up_to(10)


@pytest.mark.usefixtures("never_late")
def test_another_segment_s_min_time_is_not_awaited(moving: Moving, join: Join) -> None:
    client = waiting(moving, join, (2, 3))
    moving.to(9, segment_2=3)
    assert client.receive(0.05) == []
    moving.number += 1
    flush = Flush.of(1, moving.number, [(2, 3, 1)])
    moving.running.do(lambda: moving.running.server.announce(moving.running.server.tracker.receive(flush)))
    [merged] = client.hear(lambda at: at[2] > 3)
    assert merged.min_times == {1: 9, 2: 9}


@pytest.mark.usefixtures("never_late")
def test_a_request_does_not_wait_and_is_heard_before_what_it_asks_for_is_pruned(moving: Moving, join: Join) -> None:
    """R14: it goes with the notices before it, and its tick is not smaller than what any of them allows to prune."""
    client = waiting(moving, join)
    for tick in (2, 4):
        moving.to(tick, floor=Floor(0, tick, tick))
    server = moving.running.server
    moving.running.do(lambda: server.announce([server.tracker.request(7)]))
    [merged] = client.hear_up_to(4)
    assert merged.request is not None
    assert (merged.request.number, merged.request.tick, merged.global_min) == (7, 4, 4)
    assert (merged.number, merged.floors) == (3, (Floor(0, 2, 2), Floor(0, 4, 4)))
    moving.to(5)
    assert client.receive(0.05) == [], "it still waits for nothing"


def test_nothing_waits_longer_than_the_limit(moving: Moving, join: Join) -> None:
    client = waiting(moving, join)
    began = time.monotonic()
    heard: list[Notice] = []
    for tick in range(1, 201):
        moving.to(tick)
        heard += client.receive()
    took_s = time.monotonic() - began
    heard += client.hear_up_to(200)
    assert heard[-1].number == 200
    assert len(heard) <= took_s / 0.05 + 2


def test_a_new_connection_hears_everything_until_it_says_what_it_waits_for(moving: Moving, join: Join) -> None:
    client = waiting(moving, join, (1, 50))
    client.connect()
    client.hear(lambda at: True)
    for tick in (1, 2, 3):
        moving.to(tick)
        assert len(client.hear_up_to(tick)) >= 1
    assert client._awaited is None


def test_only_what_changes_is_sent(moving: Moving, join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    client = join(moving.running)
    sent: list[bytes] = []
    monkeypatch.setattr(client, "_send", sent.append)
    for pairs in ([(1, 5), (2, 9)], [(2, 9), (1, 5), (1, 7)], [], [], [(1, 8)]):
        client.await_ticks(pairs)
    flush = Flush.of(1, 1)
    client.send_flush(flush, [(1, 8)])
    client.send_flush(flush, [(1, 9)])
    waits = [encode(Await(ticks)) for ticks in ({1: 5, 2: 9}, {}, {1: 8}, {1: 9})]
    assert sent == [*waits[:3], encode(flush), encode(flush) + waits[3]]


def test_a_worker_that_waits_for_an_unknown_segment_ends_the_life(serve: Serve, join: Join) -> None:
    running = serve()
    worker = join(running, LocalTracker(1, 3))
    worker.await_ticks([(7, 3)])
    with pytest.raises(LifeEnded, match="segment 7"):
        worker.hear(lambda at: False)
    running.wait(lambda: running.faults)
    assert [type(fault) for fault in running.faults] == [UnknownSegment]


def test_a_subscriber_that_waits_for_an_unknown_segment_is_put_out(serve: Serve, join: Join) -> None:
    running = serve()
    listener = join(running)
    listener.await_ticks([(7, 3)])
    with pytest.raises(ProtocolError, match="segment 7"):
        listener.hear(lambda at: False)
    assert running.faults == []


def test_many_flushes_are_answered_once(serve: Serve) -> None:
    running = serve()
    with running.raw(Hello(3, 1, "busy")) as connection:
        for number in range(1, 501):
            connection.sendall(encode(Flush.of(1, number)))
        answers = cast(list[Applied], connection.messages(1))
        while answers[-1].number < 500:
            answers += cast(list[Applied], connection.messages(1))
    assert answers[-1] == Applied(1, 500)
    assert len(answers) < 100


# -- held or not, it is the same ---------------------------------------------------------------------------------------


class Wire:
    """A transport that hands what is written to a subscriber."""

    def __init__(self, heard: Callable[[Notice], None]) -> None:
        self._heard, self._reader = heard, MessageReader()

    def write(self, data: bytes) -> None:
        """Lets the subscriber hear it."""
        for kind, payload in self._reader.feed(data):
            message = decode(kind, payload)
            assert isinstance(message, Notice)
            self._heard(message)


class Subscriber:
    """What somebody knows who heeds requests before he prunes."""

    def __init__(self) -> None:
        self.min_times = MinTimes()
        self.floors: dict[tuple[int, int, bool], Floor] = {}
        self.requests: list[int] = []
        self.messages = 0

    def hear(self, notice: Notice) -> None:
        """Takes a notice; it must not come too late for its request, nor out of turn."""
        if notice.request is not None and notice.request.number not in self.requests:
            assert notice.request.tick >= self.min_times.global_min, "what it asks for was pruned"
            self.requests.append(notice.request.number)
        assert self.min_times.hear(notice) or notice.number == 0
        self.floors |= {(floor.front, floor.offset, floor.cap): floor for floor in notice.floors}
        self.messages += 1

    def known(self) -> tuple[Any, ...]:
        """All there is to know in the end; of requests, the newest."""
        at = self.min_times
        return at.number, dict(at.items()), at.global_min, self.floors, self.requests[-1:]


class Course:
    """A tracker whose notices one subscriber hears one by one, and another as a peer of the server sends them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.tracker = Tracker(GRAPH, {0: 0, 1: 0}, start=0, capacity_ticks=64)
        self.every, self.some = Subscriber(), Subscriber()
        self.peer = Peer(cast(Life, None), b"s" * 32, memoryview(b""))
        self.peer._transport = cast(asyncio.Transport, Wire(self.some.hear))
        self.slow = False
        self.awaited: dict[int, int] = {}
        self.opened: dict[tuple[int, int], int] = {}
        self.beats, self.number, self.requests = [0, 0], 0, 0
        whole = self.tracker.whole_notice()
        self.every.hear(whole)
        self.peer.subscribe(whole)

    def step(self) -> None:
        """One thing happens."""
        flush, request = self.flush, self.request
        self.rng.choice([flush, flush, flush, flush, request, self.wait, self.stall, self.peer._send_now])()
        awaited, every, some = self.awaited, self.every.min_times, self.some.min_times
        if not self.slow:
            passed = [segment for segment, tick in awaited.items() if every[segment] > tick]
            assert all(some[segment] > awaited[segment] for segment in passed), "somebody waits in vain"
            assert self.some.requests[-1:] == self.every.requests[-1:]
        assert some.global_min <= every.global_min

    def flush(self) -> None:
        """A worker closes some ticks, opens another one, and a front moves on."""
        acks = [(*place, value) for place, value in self.opened.items() if self.rng.random() < 0.5]
        for segment, tick, _ in acks:
            del self.opened[segment, tick]
        self.number += 1
        segment = self.rng.choice((1, 2))
        place = segment, self.tracker.min_time(segment) + self.rng.randrange(8)
        if place not in self.opened:
            self.opened[place] = self.number
            acks.append((*place, self.number))
        front = self.rng.randrange(2)
        self.beats[front] += self.rng.randrange(6)
        floors = [Floor(front, self.rng.randrange(9), self.beats[front])]
        self.tell(self.tracker.receive(Flush.of(1, self.number, acks, [(front, self.beats[front])], floors)))

    def request(self) -> None:
        """A snapshot is asked for."""
        self.requests += 1
        self.tell([self.tracker.request(self.requests)])

    def wait(self) -> None:
        """The peer says what it waits for."""
        at = self.tracker.min_times()
        self.awaited = {segment: at[segment] + self.rng.randrange(-1, 5) for segment in at if self.rng.random() < 0.6}
        self.peer.await_ticks(self.awaited, at)

    def stall(self) -> None:
        """The peer does not keep up, or does again."""
        self.slow = not self.slow
        (self.peer.pause_writing if self.slow else self.peer.resume_writing)()

    def tell(self, notices: list[Notice]) -> None:
        """As the server does."""
        for notice in notices:
            self.every.hear(notice)
            if self.peer.takes(notice):
                self.peer.write(encode(notice))


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_held_and_merged_notices_tell_what_all_of_them_tell(rng: random.Random) -> None:
    async def in_loop() -> None:
        course = Course(rng)
        for _ in range(60):
            course.step()
        if course.slow:
            course.stall()
        course.peer._send_now()
        assert course.some.known() == course.every.known()
        assert course.some.messages <= course.every.messages

    asyncio.run(in_loop())
