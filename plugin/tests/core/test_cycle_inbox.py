"""Records that have come round in a loop: taken in their order, in portions, and acknowledged frame by frame."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from random import Random

import pytest

from lowtide.core.cycle_inbox import FIRST_PORTION, CycleInbox
from lowtide.core.early_frames import Optimism
from lowtide.core.effects import Frame
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.state.group import SPARE

NUMBERS = count(1)


@dataclass(frozen=True)
class Row:
    tick: int
    offset: int
    version: int = 0
    tombstone: bool = False

    @property
    def at(self) -> bytes:
        return OrderKey(self.tick, 0, self.offset).packed()


def frame(*rows: Row, vertex: int = 1) -> Frame:
    batch = Batch([row.at for row in rows], [0] * len(rows), list(rows), [row.tombstone for row in rows])
    return Frame(vertex, 0, next(NUMBERS), sorted({row.tick for row in rows}), batch, b"x" * 10)


def rows(groups: list[list[Frame]]) -> list[Row]:
    return [row for group in groups for each in group for row in each.batch.rows]


def acks(groups: list[list[Frame]]) -> list[tuple[int, int]]:
    return [(each.value, tick) for group in groups for each in group for tick in each.ticks]


def of(made: Frame) -> list[tuple[int, int]]:
    return [(made.value, tick) for tick in made.ticks]


def test_records_come_out_in_the_order_whatever_order_they_came_in() -> None:
    inbox = CycleInbox(Optimism(100), 10**6)
    late, early = frame(Row(9, 1), Row(7, 3)), frame(Row(7, 1), Row(8, 0))
    assert inbox.take([late, early], 0) == []
    groups = inbox.go_on(0)
    assert rows(groups) == [Row(7, 1), Row(7, 3), Row(8, 0), Row(9, 1)]
    assert sorted(acks(groups)) == sorted([*of(late), *of(early)])
    assert not inbox


def test_a_frame_is_acknowledged_at_a_tick_with_its_last_record_there() -> None:
    inbox = CycleInbox(Optimism(100), 10**6)
    made = frame(Row(7, 1), Row(7, 9), Row(8, 0))
    inbox.take([made, frame(Row(7, 5))], 0)
    inbox._portion = 1
    assert acks(inbox.go_on(0)) == []
    assert len(acks(inbox.go_on(0))) == 1, "the other frame"
    assert acks(inbox.go_on(0)) == [(made.value, 7)]
    assert acks(inbox.go_on(0)) == [(made.value, 8)]


def test_an_item_that_waits_and_its_tombstone_take_each_other_away() -> None:
    inbox = CycleInbox(Optimism(100), 10**6)
    item, tombstone = frame(Row(7, 1)), frame(Row(7, 1, tombstone=True))
    assert inbox.take([item], 0) == []
    assert sorted(acks(inbox.take([tombstone], 0))) == sorted([*of(item), *of(tombstone)])
    assert not inbox.unfinished(0)
    assert inbox.first_tick is None


def test_a_tombstone_of_what_was_dealt_with_goes_before_the_item_in_its_stead() -> None:
    inbox = CycleInbox(Optimism(100), 10**6)
    inbox.take([frame(Row(7, 1))], 0)
    inbox.go_on(0)
    inbox.take([frame(Row(7, 1, tombstone=True), Row(7, 1, version=1))], 0)
    inbox.take([frame(Row(7, 1, version=1, tombstone=True), Row(7, 1, version=2))], 0)
    groups = inbox.go_on(0)
    assert rows(groups) == [Row(7, 1, tombstone=True), Row(7, 1, version=2)]
    assert groups[0][0].batch.flags == [True, False]


def test_one_frame_may_take_back_what_it_brings() -> None:
    inbox = CycleInbox(Optimism(100), 10**6)
    made = frame(Row(7, 1), Row(7, 1, tombstone=True), Row(7, 2))
    assert inbox.take([made], 0) == []
    groups = inbox.go_on(0)
    assert rows(groups) == [Row(7, 2)]
    assert acks(groups) == of(made)


def test_what_lies_beyond_the_window_waits_for_min_time_or_for_nothing_else_to_do() -> None:
    inbox = CycleInbox(Optimism(4), 10**6)
    inbox.take([frame(Row(5, 0), Row(11, 0))], 0)
    assert not inbox.unfinished(0)
    assert inbox.restless
    assert rows(inbox.rest(0)) == [Row(5, 0)]
    assert rows(inbox.go_on(3)) == []
    assert inbox.unfinished(4)
    assert rows(inbox.go_on(4)) == [Row(11, 0)]


def test_what_min_time_stands_at_never_waits() -> None:
    inbox = CycleInbox(Optimism(1), 10**6)
    inbox.take([frame(Row(5, 0))], 5)
    assert rows(inbox.go_on(5)) == [Row(5, 0)]


def test_beyond_its_room_the_window_is_not_heeded() -> None:
    inbox = CycleInbox(Optimism(1), 25)
    inbox.take([frame(Row(50, 0)), frame(Row(60, 0)), frame(Row(70, 0))], 0)
    assert rows(inbox.go_on(0)) == [Row(50, 0)]
    assert not inbox.unfinished(0), "it has room again"


def test_the_portion_follows_what_repairs_cost() -> None:
    inbox = CycleInbox(Optimism(1000), 10**6)
    inbox.take([frame(*(Row(1, number) for number in range(200)))], 0)
    inbox.worked(10, 10)
    assert len(rows(inbox.go_on(0))) == FIRST_PORTION // 2
    inbox.worked(10, 0)
    assert len(rows(inbox.go_on(0))) == FIRST_PORTION
    for _ in range(20):
        inbox.worked(1, 1)
    assert len(rows(inbox.go_on(0))) == 1


@pytest.mark.parametrize("seed", range(40))
def test_every_frame_is_acknowledged_once_and_what_is_left_of_each_record_is_its_newest(seed: int) -> None:
    """Versions of records come, are taken back and come again, in order per record, in frames of any size."""
    dice = Random(seed)
    inbox = CycleInbox(Optimism(dice.choice([1, 5, 1000])), dice.choice([50, 10**6]))
    newest: dict[tuple[int, int], int] = {}
    known: dict[bytes, Row] = {}
    owed: set[tuple[int, int]] = set()
    versions = count()

    def heed(groups: list[list[Frame]]) -> None:
        for row in rows(groups):
            assert row.tombstone == (row.at in known), "an item and its tombstone take turns"
            if row.tombstone:
                assert known.pop(row.at).version == row.version
            else:
                known[row.at] = row
        for ack in acks(groups):
            owed.remove(ack)

    def change() -> list[Row]:
        place = dice.randrange(6), dice.randrange(4)
        made = [Row(*place, newest.pop(place), tombstone=True)] if place in newest else []
        if not made or dice.random() < 0.7:
            newest[place] = next(versions)
            made.append(Row(*place, newest[place]))
        return made

    for _ in range(80):
        if dice.random() < 0.6:
            made = frame(*(row for _ in range(dice.randint(1, 4)) for row in change()), vertex=1)
            owed |= set(of(made))
            heed(inbox.take([made], 0))
        else:
            heed(inbox.go_on(0))
            inbox.worked(dice.randint(1, 9), dice.randint(0, 9))
    while inbox:
        assert inbox.unfinished(10), "the window has come to all of them"
        heed(inbox.go_on(10))
    assert owed == set()
    assert {(row.tick, row.offset): row.version for row in known.values()} == newest


def test_records_that_come_and_are_taken_back_again_and_again_leave_no_places() -> None:
    """While one waits before them, so that none of their places comes to the head."""
    inbox = CycleInbox(Optimism(1), 10**6)
    inbox.take([frame(Row(5, 0))], 0)
    for number in range(1_000):
        inbox.take([frame(Row(9, number))], 0)
        inbox.take([frame(Row(9, number, tombstone=True))], 0)
    assert len(inbox._positions) <= 2 * len(inbox) + SPARE
    assert rows(inbox.go_on(5)) == [Row(5, 0)]


def test_places_of_what_was_taken_back_do_not_outlast_the_records_before_them() -> None:
    inbox = CycleInbox(Optimism(1), 10**6)
    inbox.take([frame(*[Row(5, number) for number in range(1_000)])], 0)
    inbox.take([frame(*[Row(9, number) for number in range(1_000)])], 0)
    inbox.take([frame(*[Row(9, number, tombstone=True) for number in range(1_000)])], 0)
    while inbox:
        inbox.go_on(5)
    assert len(inbox._positions) <= SPARE
