"""A front: its window, its heartbeats, what it remembers of its log."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.conf import Conf
from lowtide.core.fronts.end import END_MS, end_tick
from lowtide.core.fronts.floors import NO_TICK
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, OffsetWentBack, Report, Window
from lowtide.core.fronts.source_rows import ROW_BYTES, SourceRows
from lowtide_tracker import Floor

WIDE = Window(lead_ticks=1 << 40, max_bytes=1 << 40)
FAR = 1 << 50
"""A min time that lets everything pass."""
VALUE = b"12345678"
CLICK = b"x" * 55
SIZE = ROW_BYTES + len(VALUE)


def rows(messages: list[tuple[int, int]], front: int = 0) -> SourceRows:
    """Messages given as (offset, timestamp)."""
    return SourceRows(
        front,
        [offset for offset, _ in messages],
        [timestamp for _, timestamp in messages],
        [None] * len(messages),
        [VALUE] * len(messages),
    )


def make(window: Window = WIDE, opening: int = 0, floors: Iterable[Floor] = (), **read: Any) -> Front:
    """A front with ticks of 10 ms."""
    return Front(0, FrontLimits(10, window, 1000), KnownFloors(opening, floors, read.pop("unreported", ())), **read)


def labels(out: list[SourceRows]) -> list[int]:
    return [tick for part in out for tick in part.ticks]


def handed(out: list[SourceRows]) -> list[int]:
    return [offset for part in out for offset in part.offsets]


def test_a_front_labels_parks_and_hands_out() -> None:
    front = make()
    front.take(rows([(5, 105), (7, 99), (8, 123)]), 200)
    assert (front.parked, front.next_offset, front.pulling) == (3, 9, False)
    out = front.admitted(0)
    assert (handed(out), labels(out)) == ([5, 7, 8], [10, 10, 12])
    assert [part.values for part in out] == [[VALUE] * 3]
    assert (front.parked, front.heartbeat, front.pulling) == (0, 12, True)


def test_a_window_in_ticks_is_exact() -> None:
    front = make(Window(3, 1 << 40))
    front.take(rows([(0, 40), (1, 60), (2, 69), (3, 70), (4, 71)]), 0)
    assert handed(front.admitted(4)) == [0, 1, 2]
    assert front.heartbeat == 7, "the first parked label: min time may jump over the gap"
    assert front.admitted(4) == []
    assert handed(front.admitted(5)) == [3, 4]


def test_a_window_in_bytes_is_exact_and_what_is_below_min_time_makes_room() -> None:
    front = make(Window(100, 3 * SIZE))
    front.take(rows([(0, 10), (1, 20), (2, 20), (3, 30), (4, 40)]), 0)
    assert handed(front.admitted(0)) == [0, 1, 2]
    assert front.admitted(1) == []
    assert handed(front.admitted(2)) == [3]
    assert handed(front.admitted(3)) == [4]
    assert front.pulling
    front.take(rows([(5, 50), (6, 60)]), 0)
    assert handed(front.admitted(3)) == [5]
    assert not front.pulling


def test_the_front_that_holds_min_time_back_is_never_stopped() -> None:
    front = make(Window(1, 1))
    front.take(rows([(offset, 70) for offset in range(100)] + [(100, 80)]), 0)
    assert front.admitted(6) == []
    assert handed(front.admitted(7)) == list(range(100)), "min time has come to it: bytes do not count"
    assert (front.heartbeat, front.parked) == (8, 1)
    assert handed(front.admitted(8)) == [100]
    assert front.pulling, "it holds min time back"
    assert front.admitted(9) == []
    assert front.pulling


def test_a_long_backlog_has_no_more_under_way_than_a_short_one_by_default() -> None:
    """What a life that catches up takes at most, its process keeps: it must not depend on how long the job was away."""
    most = []
    for count in (20_000, 400_000):
        front = make(Window(1 << 40, Conf().job.max_front_bytes))
        handed_out = 0
        for first in range(0, count, 1_000):
            offsets = list(range(first, first + 1_000))
            front.take(SourceRows(0, offsets, offsets, [None] * 1_000, [CLICK] * 1_000), count)
            handed_out += len(handed(front.admitted(0)))
        most.append(handed_out)
    assert most[0] == most[1] < 20_000


def test_a_parked_front_does_not_pull_and_one_with_a_full_window_neither() -> None:
    front = make(Window(5, 2 * SIZE))
    pulling = [front.pulling]  # No min time has come yet.
    front.take(rows([(0, 10), (1, 11), (2, 20)]), 0)
    pulling.append(front.pulling)
    assert handed(front.admitted(0)) == [0, 1]
    pulling.append(front.pulling)
    assert handed(front.admitted(2)) == [2]
    pulling.append(front.pulling)
    front.take(rows([(3, 30)]), 0)
    assert handed(front.admitted(2)) == [3]
    pulling.append(front.pulling)  # Full to the last byte.
    front.admitted(3)
    pulling.append(front.pulling)
    assert pulling == [True, False, False, True, False, True]


def test_a_grant_is_applied_only_where_it_was_made() -> None:
    front = make()
    front.take(rows([(0, 100)]), 200)
    assert not front.grant(Floor(0, 1, 50)), "something is parked"
    front.admitted(0)
    assert not front.grant(Floor(0, 0, 50)), "the front has read on"
    assert not front.grant(Floor(0, 1, 10)), "it says nothing new"
    assert front.grant(Floor(0, 1, 50))
    assert front.report() == Report(50, (Floor(0, 1, 50),))
    assert not front.grant(Floor(0, 1, 40)), "a heartbeat is never taken back"
    assert front.report() == Report(50, ())
    front.take(rows([(1, 110)]), 200)
    assert labels(front.admitted(0)) == [50], "whatever comes from there on is labelled no lower"


def test_a_heartbeat_never_passes_what_is_labelled_and_not_handed_out() -> None:
    front = make(Window(2, 1 << 40))
    front.take(rows([(0, 10), (1, 20), (2, 50)]), 0)
    assert front.heartbeat == 1
    front.admitted(0)
    assert front.heartbeat == 2
    front.admitted(1)
    assert front.heartbeat == 5


def test_a_cap_goes_out_before_anything_rests_on_it() -> None:
    front = make(Window(1, 1 << 40))
    front.take(rows([(0, 10), (1, 9000), (2, 30)]), 100)
    assert front.report() == Report(1, (Floor(0, 1, 10, cap=True),))
    front.admitted(1)
    assert front.heartbeat == 10, "the cap's tick; the cap is known by now"
    assert labels(front.admitted(10)) == [10, 10]


def test_an_opening_floor_lifts_labels_and_is_not_reported_again() -> None:
    front = make(opening=30)
    assert front.report() == Report(30, ())
    front.take(rows([(0, 100), (1, 310)]), 1000)
    assert labels(front.admitted(0)) == [30, 31]


def test_offsets_may_leave_gaps_but_never_go_back() -> None:
    front = make(offset=10)
    with pytest.raises(OffsetWentBack, match="expected offset 10 or later, found 9"):
        front.take(rows([(9, 0)]), 0)
    front.take(rows([(10, 0), (15, 0)]), 0)
    with pytest.raises(OffsetWentBack, match="expected offset 16 or later, found 15"):
        front.take(rows([(15, 0)]), 0)
    with pytest.raises(OffsetWentBack, match="expected offset 22 or later, found 20"):
        front.take(rows([(20, 0), (21, 0), (20, 0)]), 0)
    with pytest.raises(OffsetWentBack, match="expected offset 21 or later, found 20"):
        front.take(rows([(20, 0), (20, 0)]), 0)


messages = st.lists(st.tuples(st.integers(1, 3), st.integers(-50, 300)), min_size=1, max_size=30)


def log_of(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    offsets = accumulate(step for step, _ in steps)
    return [(offset, timestamp) for offset, (_, timestamp) in zip(offsets, steps, strict=True)]


@given(messages, st.integers(-10, 40), st.integers(-10, 40), st.integers(1, 7))
def test_a_front_restored_from_where_a_tick_starts_labels_the_same(
    steps: list[tuple[int, int]], pruned: int, tick: int, size: int
) -> None:
    log = log_of(steps)
    front = make(opening=-10)
    first: dict[int, int] = {}
    for start in range(0, len(log), size):
        front.take(rows(log[start : start + size]), 0)
        out = front.admitted(FAR)
        first |= dict(zip(handed(out), labels(out), strict=True))
        front.check()
    front.prune(pruned)
    tick = max(tick, pruned)
    offset, before = front.start_at(tick)
    below = [label for label in first.values() if label < tick]
    assert {o for o, label in first.items() if label >= tick} == {o for o in first if o >= offset}
    assert before == max([-10, *below])
    again = make(opening=-10, offset=offset, before=before)
    left = [message for message in log if message[0] >= offset]
    again.take(rows(left), 0)
    out = again.admitted(FAR)
    assert dict(zip(handed(out), labels(out), strict=True)) == {o: label for o, label in first.items() if o >= offset}


def test_a_front_that_was_idle_is_restored_with_its_floor_even_if_floors_below_are_gone() -> None:
    front = make()
    front.take(rows([(6, 100)]), 0)
    front.admitted(0)
    assert front.grant(Floor(0, 7, 1000))
    front.take(rows([(9, 200)]), 0)
    assert labels(front.admitted(0)) == [1000]
    assert front.start_at(500) == (9, 1000), "what no label from there on is below"
    again = make(offset=9, before=1000)
    again.take(rows([(9, 200)]), 0)
    assert labels(again.admitted(FAR)) == [1000]
    assert again.start_at(1000) == (9, 1000), "the message is remembered though its label is the one before it"


def test_what_a_snapshot_says_of_labels_is_reported_as_a_floor() -> None:
    """It may be a floor granted after T was published: no lane has it, and an older commit does not know it."""
    assert make(offset=9, before=1000).report().floors == (Floor(0, 9, 1000),)
    assert make(offset=9, before=1000, floors=[Floor(0, 7, 1000)]).report().floors == ()
    assert make(offset=9, before=1000, opening=1000).report().floors == ()


def test_a_floor_that_a_commit_alone_knows_holds_and_is_reported() -> None:
    """R2: the commit may be gone before the floor is needed again."""
    kept, alone, of_another = Floor(0, 5, 20), Floor(0, 9, 90), Floor(1, 9, 95)
    front = make(floors=[kept], unreported=[alone, of_another], offset=4, before=NO_TICK)
    assert front.report().floors == (alone,)
    assert front.report().floors == ()
    front.take(rows([(4, 10), (5, 11), (9, 12)]), 0)
    assert labels(front.admitted(FAR)) == [1, 20, 90]


def test_a_tick_is_remembered_once_however_many_messages_have_it() -> None:
    front = make()
    for offset in range(100):
        front.take(rows([(offset, 55)]), 100)
    assert len(front._history) == 1
    assert front.start_at(5) == (0, 0)
    assert front.start_at(6) == (100, 5)


def test_nothing_is_remembered_below_the_prune_time() -> None:
    front = make()
    for start in range(0, 10_000, 100):
        front.take(rows([(offset, 10 * offset) for offset in range(start, start + 100)]), 1 << 40)
        front.admitted(FAR)
        front.prune(start)
        assert len(front._history) == 100
        assert front.start_at(start + 50) == (start + 50, start + 49)


@given(messages, st.integers(1, 5), st.integers(1, 6), st.lists(st.integers(0, 12), max_size=30), st.integers(1, 7))
def test_windows_change_neither_order_nor_labels_and_let_everything_pass_in_the_end(
    steps: list[tuple[int, int]], lead: int, room: int, advances: list[int], size: int
) -> None:
    log = log_of(steps)
    whole = make(opening=-10)
    whole.take(rows(log), 0)
    expected = whole.admitted(FAR)
    front = make(Window(lead, room * SIZE), opening=-10)
    out: list[SourceRows] = []
    batches = [log[start : start + size] for start in range(0, len(log), size)]
    min_time = -10
    for advance in advances + [12] * 5 * (len(log) + 1):
        if front.pulling and batches:
            front.take(rows(batches.pop(0)), 0)
        before = front.heartbeat
        passed = front.admitted(min_time)
        out += passed
        front.check()
        assert front.heartbeat >= max(before, min_time)
        under_way = sum(tick >= min_time for tick in labels(out))
        assert under_way <= room or all(tick <= min_time for tick in labels(passed))
        assert all(tick < min_time + lead for tick in labels(out))
        min_time = min(min_time + advance, front.heartbeat)
    assert not batches
    assert front.parked == 0
    assert (handed(out), labels(out)) == (handed(expected), labels(expected))


def test_slices_are_the_same_messages() -> None:
    keys: list[bytes | None] = [b"a", None, b"ccc"]
    values: list[bytes | None] = [VALUE, None, VALUE]
    whole = SourceRows(4, [1, 2, 5], [10, 20, 30], keys, values, [b"", b"h", b"hh"], [1, 2, 3])
    part = whole.slice(1, 3)
    assert (len(part), part.front) == (2, 4)
    assert (part.offsets, part.timestamps, part.ticks) == ([2, 5], [20, 30], [2, 3])
    assert (part.keys, part.values, part.headers) == ([None, b"ccc"], [None, VALUE], [b"h", b"hh"])
    assert part.slice(1, 2).keys == [b"ccc"]
    assert whole.slice(0, 3) is whole
    assert len(whole.slice(1, 1)) == 0
    picked = whole.pick([0, 2])
    assert (picked.offsets, picked.keys, picked.values) == ([1, 5], [b"a", b"ccc"], [VALUE, VALUE])
    assert (picked.timestamps, picked.headers, picked.ticks) == ([10, 30], [b"", b"hh"], [1, 3])


def test_bytes_of_messages_are_those_of_key_value_and_headers() -> None:
    keys: list[bytes | None] = [b"a", None, b"ccc"]
    values: list[bytes | None] = [VALUE, None, VALUE]
    plain, sized = (SourceRows(4, [1, 2, 5], [10, 20, 30], keys, values, each) for each in (None, [b"", b"h", b"hh"]))
    assert [plain.bytes_of(index) - ROW_BYTES for index in range(3)] == [9, 0, 11]
    assert [sized.bytes_of(index) - ROW_BYTES for index in range(3)] == [9, 1, 13]
    assert sized.ends() == [ROW_BYTES + 9, 2 * ROW_BYTES + 10, 3 * ROW_BYTES + 23]
    for rows_ in (plain, sized):
        assert rows_.size == rows_.ends()[-1]
        assert [rows_.pick([index]).size for index in range(3)] == [rows_.bytes_of(index) for index in range(3)]
        assert rows_.pick([]).size == 0
    assert [plain.index_of(offset) for offset in (1, 2, 5)] == [0, 1, 2]


def test_what_a_front_without_history_says() -> None:
    front = make()
    assert front.start_at(5) == (0, 0)
    assert make(opening=NO_TICK).heartbeat == NO_TICK


END = end_tick(10)


def test_a_front_that_has_come_to_its_stop_is_closed_once_all_is_handed_out() -> None:
    front = make(Window(3, 1 << 40), stop=8)
    front.take(rows([(5, 40), (6, 60), (7, 90), (8, 90), (9, 100)]), 0)
    assert (handed(front.admitted(4)), front.heartbeat, front.closed) == ([5, 6], 9, True)
    assert (handed(front.admitted(9)), front.heartbeat, front.pulling) == ([7], END, True)
    front.take(rows([(10, 110)]), 0)
    assert (handed(front.admitted(END)), front.heartbeat, front.next_offset) == ([], END, 11)
    assert front.start_at(9) == (7, 6), "a later life reads the last record again"
    assert front.start_at(END)[0] == 11
    assert make(stop=8, offset=11, before=9).heartbeat == END
    front.check()


def test_a_stop_behind_the_last_record_closes_when_nothing_lies_before_it() -> None:
    front = make(stop=8)
    front.take(rows([(5, 40)]), 0)
    front.admitted(0)
    assert not front.grant(Floor(0, 7, END)), "it is for a front that has read more"
    assert front.grant(Floor(0, 6, END))
    assert (front.heartbeat, front.next_offset) == (END, 8)
    assert front.report() == Report(END, ()), "it rests on no floor: labels of other fronts must not see it"
    assert front.start_at(END) == (8, 4)


def test_a_front_without_a_stop_takes_the_end_of_time_as_any_tick() -> None:
    front = make()
    assert front.grant(Floor(0, 0, 7))
    assert front.report() == Report(7, (Floor(0, 0, 7),))
    assert END == END_MS // 10


def test_what_is_preloaded_is_labelled_with_the_opening_floor_and_the_rest_later() -> None:
    """However it is cut into batches, whatever its timestamps say, and the same from a later offset on."""
    messages = [(3, 999), (4, 5_000_000), (7, 20), (8, 0), (9, 130)]
    for cut in range(len(messages) + 1):
        front = make(preloaded=8, opening=2)
        for part in (messages[:cut], messages[cut:]):
            front.take(rows(part), 200) if part else None
        assert labels(front.admitted(FAR)) == [2, 2, 2, 3, 13]
        assert front.start_at(3) == (8, 3)
    again = make(preloaded=8, opening=2, offset=7)
    again.take(rows(messages[2:]), 200)
    assert labels(again.admitted(FAR)) == [2, 3, 13]


def test_a_front_without_preloaded_messages_has_no_floor_of_them() -> None:
    front = make(preloaded=5, offset=5)
    front.take(rows([(5, 0)]), 200)
    assert labels(front.admitted(FAR)) == [0]
    assert front.report().floors == ()
