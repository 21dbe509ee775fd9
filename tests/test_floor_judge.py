"""What judges floors finds each that was granted, or capped, wrongly: the classes that make them run here by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest
from tests.floor_judge import FrontLog, Recorded, wrong_floors

from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.order.order import Position
from lowtide.local.run import Message
from lowtide.service.fronts.tail_state import Grant, Tail, TailState
from lowtide_tracker import Floor

SLACK_MS, SKEW_MS, MAX_FUTURE_MS = 2, 3, 5_000
BEGAN_MS = 1_790_000_000_000
HOUR_MS = 3_600_000
FAR_MS = BEGAN_MS + 30 * HOUR_MS
OPENING = BEGAN_MS // SLACK_MS - 50


class Partition:
    """A partition whose broker has a clock, its front, and who grants it floors and keeps what it reports."""

    def __init__(self, seed: int, max_future_ms: int = MAX_FUTURE_MS) -> None:
        self.now_ms = BEGAN_MS
        self.messages: list[Message] = []
        self.recorded: list[Recorded] = []
        self.late_look_ms = 0
        self.reads_on_ms = 0
        """The age of a record that comes and is read between a look and its grant; 0 for none."""
        self._dice = random.Random(seed)
        self._tails = TailState(skew_ms=SKEW_MS, active_s=0.1, idle_s=0.1)
        self._tails.watch(Tail(0, "orders", 0, 0))
        self._max_future_ms = max_future_ms
        self.front = self._front()

    def run(self, steps: int = 60, stamp: Callable[[int], int] = lambda now_ms: now_ms) -> None:
        """Some messages, some looks at the tail and a second life; `stamp` dates a message."""
        for step in range(steps):
            self.now_ms += self._dice.choice([0, 1, 7, 400])
            if self._dice.random() < 0.4:
                self.look()
            else:
                self.write(stamp(self.now_ms))
            if step == steps // 2:
                offset, before = self.front.start_at(self.front.heartbeat)
                self.front = self._front(offset=offset, before=before, floors=[each.floor for each in self.recorded])
                self.keep()

    def write(self, timestamp: int) -> None:
        """A message comes, and is read."""
        offset = len(self.messages)
        self.messages.append(Message(Position(0, offset), timestamp, None, b"{}"))
        self.front.take(SourceRows(0, [offset], [timestamp], [None], [b"{}"]), self.now_ms)
        self.front.admitted(1 << 62)
        self._tails.at(0, offset + 1, self.now_ms / 1000)
        self.keep()

    def look(self) -> None:
        """The service looks at the tail; the grant comes some time later."""
        grant = self._tails.looked(
            0, len(self.messages), before_ms=self.now_ms + self.late_look_ms, now_s=self.now_ms / 1000
        )
        self.now_ms += 1
        if self.reads_on_ms:
            self.write(self.now_ms - self.reads_on_ms)
        self.front.grant(Floor(grant.front, grant.offset, grant.ms // SLACK_MS))
        self.keep()

    def keep(self) -> None:
        """What the front reports is recorded some time later."""
        self.recorded += [Recorded(floor, self.now_ms + 5) for floor in self.front.report().floors]

    def wrong(self, *, dated: bool = True) -> list[str]:
        fronts = {0: FrontLog(self.messages, OPENING, dated_by_broker=dated)}
        return wrong_floors(self.recorded, fronts, slack_ms=SLACK_MS, skew_ms=SKEW_MS, max_future_ms=MAX_FUTURE_MS)

    def _front(self, floors: Iterable[Floor] = (), **read: int) -> Front:
        limits = FrontLimits(SLACK_MS, Window(10**6, 1 << 20), self._max_future_ms)
        return Front(0, limits, KnownFloors(OPENING, floors), **read)


@pytest.mark.parametrize("seed", range(20))
def test_floors_of_a_right_run_are_right(seed: int) -> None:
    partition = Partition(seed)
    partition.run()
    assert partition.recorded
    assert partition.wrong() == []


@pytest.mark.parametrize("seed", range(20))
def test_producers_may_date_messages_as_they_like(seed: int) -> None:
    """Late, ahead, or not to be believed; labels ahead of the broker's clock are floors of a later life."""
    partition = Partition(seed)
    stamps = iter(range(1000))
    odd = (0, -HOUR_MS, MAX_FUTURE_MS - 10, FAR_MS - BEGAN_MS)
    partition.run(stamp=lambda now_ms: now_ms + odd[next(stamps) % len(odd)])
    assert any(each.floor.cap for each in partition.recorded)
    assert partition.wrong(dated=False) == []


@pytest.mark.parametrize("seed", range(20))
def test_floors_that_a_front_sets_by_itself_are_right(seed: int) -> None:
    """Older messages flow: each grant comes when its front has read on."""
    partition = Partition(seed)
    partition.reads_on_ms = HOUR_MS
    partition.run(stamp=lambda now_ms: now_ms - HOUR_MS)
    partition.write(partition.now_ms)
    partition.run(stamp=lambda now_ms: now_ms - HOUR_MS)
    assert partition.front.own_floors
    assert partition.wrong(dated=False) == []


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, 1_000])
def test_a_grant_that_is_ahead_of_the_brokers_clock_is_found(ahead_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = TailState.looked

    def ahead(self: TailState, front: int, lso: int, *, before_ms: int, now_s: float) -> Grant:
        return looked(self, front, lso, before_ms=before_ms + ahead_ms, now_s=now_s)

    monkeypatch.setattr(TailState, "looked", ahead)
    for dated in (True, False):
        partition = Partition(1)
        partition.run()
        assert "was recorded at" in partition.wrong(dated=dated)[0]


def test_a_time_that_was_taken_after_the_end_was_asked_for_is_found() -> None:
    """A message comes between the two: the floor stands above it, though not above the broker's clock."""
    partition = Partition(1)
    partition.late_look_ms = 60
    partition.run()
    assert "a message at or after it came at" in partition.wrong()[0]


def test_a_floor_without_the_allowed_skew_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TailState, "__init__", _without_skew(TailState.__init__))
    partition = Partition(1)
    partition.run()
    assert partition.wrong()


def _without_skew(init: Callable[..., None]) -> Callable[..., None]:
    def made(self: TailState, *, skew_ms: int, active_s: float, idle_s: float) -> None:
        init(self, skew_ms=0, active_s=active_s, idle_s=idle_s)

    return made


def test_a_cap_on_what_is_to_be_believed_is_found() -> None:
    partition = Partition(1, max_future_ms=1_000)
    partition.run(stamp=lambda now_ms: now_ms + 2_000)
    assert "is to be believed" in partition.wrong(dated=False)[0]


@pytest.mark.parametrize(
    ("floor", "what"),
    [
        (Floor(0, 1, (BEGAN_MS + 900) // SLACK_MS), "was recorded at"),
        (Floor(0, 1, (BEGAN_MS + 40) // SLACK_MS), "a message at or after it came at"),
        (Floor(0, 1, (BEGAN_MS + HOUR_MS) // SLACK_MS, cap=True), "is to be believed"),
        (Floor(0, 2, (BEGAN_MS + HOUR_MS) // SLACK_MS, cap=True), "was recorded at"),
        (Floor(0, 9, BEGAN_MS // SLACK_MS, cap=True), "the timestamp None"),
        (Floor(1, 0, 0), "there is no such front"),
    ],
)
def test_each_kind_of_fault_is_named(floor: Floor, what: str) -> None:
    stamps = (BEGAN_MS, BEGAN_MS + 20, FAR_MS)
    partition = Partition(1)
    partition.messages = [Message(Position(0, n), stamp, None, None) for n, stamp in enumerate(stamps)]
    partition.recorded = [Recorded(Floor(0, 2, (BEGAN_MS + 20) // SLACK_MS, cap=True), BEGAN_MS + 30)]
    assert partition.wrong() == []
    partition.recorded.append(Recorded(floor, BEGAN_MS + 100))
    assert what in " ".join(partition.wrong())


def test_what_was_written_in_a_transaction_may_be_older_than_its_floor() -> None:
    """It came before anyone could read it, and offsets show where transactions ended."""
    partition = Partition(1)
    partition.messages = [Message(Position(0, offset), BEGAN_MS, None, None) for offset in (0, 2)]
    partition.recorded = [Recorded(Floor(0, 1, (BEGAN_MS + 40) // SLACK_MS), BEGAN_MS + 50)]
    assert partition.wrong() == []
