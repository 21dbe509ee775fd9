"""Grouping: what late records, tombstones and pruning do to windows and states."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide import Flow, json, kafka
from lowtide.core.operators.faults.failure import Fault
from lowtide.core.operators.held.ordered import OrderedNode
from lowtide.core.operators.held.pending import Pending
from lowtide.core.operators.keyed.deduplicate import DeduplicateGrouping
from lowtide.core.operators.keyed.last import LastGrouping
from lowtide.core.operators.keyed.scan import FlatScanGrouping, ScanGrouping, classes_of
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import OrderKey, path_of, tick_of
from lowtide.core.operators.order.unmatched import UnmatchedTombstone
from lowtide.core.operators.state.grouping import Grouping
from lowtide.errors import TimeWentBack
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.steps.steps import FlatScan, Last, Scan


@dataclass(frozen=True)
class Event:
    key: str
    number: int


@dataclass(frozen=True)
class Seen:
    numbers: tuple[int, ...]


def remember(state: Seen, event: Event) -> tuple[Seen, Seen]:
    if event.number == 13 and state.numbers and state.numbers[-1] == 11:
        raise ValueError("thirteen after eleven")
    state = Seen((*state.numbers, event.number))
    return state, state


def newest(window: tuple[Event, ...]) -> Event:
    return window[-1]


def remember_each(state: Seen, event: Event) -> tuple[Seen, list[Seen]]:
    """A state that is the initial one again after every fifth record, and as many outputs as fit the number."""
    state, _ = remember(state, event)
    return (Seen(()) if event.number % 5 == 0 else state), [state] * (event.number % 3)


def last_grouping(count: int, partial: bool = True, ttl: int | None = None) -> Grouping:
    flow = Flow("test")
    keyed = flow.read("events", kafka("events", json(Event))).key_by("key")
    keyed.last(count, partial=partial, name="window").map(newest).write("out", kafka("out", json(Event)))
    plan = compile_flow(flow, parallelism=1)
    return LastGrouping(next(plan.those(Last)), ["key"], ttl)


def flat_grouping(ttl: int | None = None) -> Grouping:
    flow = Flow("test")
    keyed = flow.read("events", kafka("events", json(Event))).key_by("key")
    keyed.flat_scan("seen", remember_each, Seen(())).write("out", kafka("out", json(Seen)))
    plan = compile_flow(flow, parallelism=1)
    return FlatScanGrouping(next(plan.those(FlatScan)), ["key"], ttl)


def scan_vertex() -> Vertex[Scan]:
    flow = Flow("test")
    keyed = flow.read("events", kafka("events", json(Event))).key_by("key")
    keyed.scan("seen", remember, Seen(())).write("out", kafka("out", json(Seen)))
    plan = compile_flow(flow, parallelism=1)
    return next(plan.those(Scan))


def scan_grouping(ttl: int | None = None) -> Grouping:
    return ScanGrouping(scan_vertex(), ["key"], ttl)


def once_grouping(within: int) -> Grouping:
    return DeduplicateGrouping(scan_vertex(), ["key"], within)


class Taken(Node):
    """Takes what a node gives for what it delivers."""

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        feed.delivers.append((0, batch))


VERTEX = scan_vertex()

FORGETTING: list[Callable[[int], Grouping]] = [
    scan_grouping,
    flat_grouping,
    once_grouping,
    lambda ttl: last_grouping(2, True, ttl),
]
MAKE: list[Callable[[], Grouping]] = [
    lambda: last_grouping(1),
    lambda: last_grouping(2),
    lambda: last_grouping(3),
    lambda: last_grouping(3, partial=False),
    scan_grouping,
    flat_grouping,
    *[partial(make, ttl) for ttl in (1, 3, 6) for make in FORGETTING],
    lambda: last_grouping(3, False, 4),
]


def batch(events: Iterable[tuple[int, str] | tuple[int, str, bool]]) -> Batch:
    """Records by (tick, key, tombstone); a record's number is its tick."""
    listed = [(event[0], event[1], len(event) > 2 and bool(event[2])) for event in events]
    flags = [tombstone for _, _, tombstone in listed]
    return Batch(
        [OrderKey(tick, 0, tick, (), 7).packed() for tick, _, _ in listed],
        [ord(key[0]) for _, key, _ in listed],
        [Event(key, tick) for tick, key, _ in listed],
        flags if any(flags) else None,
    )


def given_by(result: tuple[Batch | None, Batch | None]) -> list[Batch]:
    """The result of an insertion: outputs, then faults."""
    return [each for each in result if each is not None]


def insert(grouping: Grouping, events: Iterable[Any]) -> list[Batch]:
    return given_by(grouping.insert(batch(events)))


def said(batches: list[Batch]) -> list[str]:
    """Outputs as '+1,3' for a window of ticks 1 and 3 that was given, '-1,3' for one that was taken back."""
    texts = []
    for each in batches:
        assert len(each.ats) == len(each.units) == len(each.rows)
        for row, tombstone, at in zip(each.rows, each.flags or [False] * len(each), each.ats, strict=True):
            numbers = row.numbers if isinstance(row, Seen) else None
            if isinstance(row, Event):
                numbers = (row.number,)
            if isinstance(row, tuple):
                numbers = tuple(event.number for event in row)
            if isinstance(row, Fault):
                texts.append(f"{'-' if tombstone else '+'}fault at {tick_of(at)}")
                continue
            assert numbers is not None
            path = path_of(at)
            assert OrderKey.of(at) == OrderKey(numbers[-1], 0, numbers[-1], path, 7), "an output has its last one's key"
            texts.append(("-" if tombstone else "+") + ",".join(map(str, numbers)) + "".join(map("#{}".format, path)))
    return texts


def test_a_late_record_takes_back_the_windows_it_changes_and_gives_them_anew() -> None:
    grouping = last_grouping(2)
    steps = [said(insert(grouping, [(tick, "a")])) for tick in (1, 3, 2)]
    assert steps == [["+1"], ["+1,3"], ["-1,3", "+1,2", "+2,3"]]
    assert grouping.repairs == 1


def test_windows_shorter_than_the_size_come_out_at_the_start_unless_asked_otherwise() -> None:
    grouping = last_grouping(2, partial=False)
    steps = [said(insert(grouping, [(tick, "a")])) for tick in (1, 3, 2)]
    assert steps == [[], ["+1,3"], ["-1,3", "+1,2", "+2,3"]]


def test_a_late_record_changes_only_windows_that_hold_it() -> None:
    grouping = last_grouping(2)
    insert(grouping, [(tick, "a") for tick in (1, 3, 4, 5, 6)])
    assert said(insert(grouping, [(2, "a")])) == ["-1,3", "+1,2", "+2,3"]


def test_a_scan_replays_from_the_state_before_a_late_record() -> None:
    grouping = scan_grouping()
    steps = [said(insert(grouping, [(tick, "a")])) for tick in (1, 3, 2)]
    assert steps == [["+1"], ["+1,3"], ["-1,3", "+1,2", "+1,2,3"]]


def test_a_scan_replays_from_what_was_forgotten() -> None:
    grouping = scan_grouping()
    for tick in (1, 5):
        insert(grouping, [(tick, "a")])
    grouping.prune(3)
    assert len(grouping._groups["a"].elements) == 1
    assert said(insert(grouping, [(4, "a")])) == ["-1,5", "+1,4", "+1,4,5"]


def test_pruning_leaves_the_tick_itself() -> None:
    """R14."""
    makes: list[Callable[[], Grouping]] = [scan_grouping, lambda: last_grouping(1), lambda: last_grouping(2)]
    for make in makes:
        grouping, whole = make(), make()
        for tick in (1, 2, 5):
            insert(grouping, [(tick, "a")])
            insert(whole, [(tick, "a")])
        grouping.prune(5)
        assert len(grouping._groups["a"].elements) < 3
        assert grouping.capture(5) == whole.capture(5)
        assert said(insert(grouping, [(5, "a", True)])) == said(insert(whole, [(5, "a", True)]))


def test_a_snapshot_has_the_units_that_may_have_changed_since_the_one_before() -> None:
    """W9: by tick, not by arrival; a record after T that came before the snapshot counts with the next one."""
    for make in MAKE:
        grouping = make()
        insert(grouping, [(1, "a"), (2, "b"), (12, "c")])
        assert grouping.changed(10) == [ord("a"), ord("b"), ord("c")], "a batch counts with its last tick"
        insert(grouping, [(13, "c")])
        assert grouping.changed(13) == [ord("c")]
        assert list(grouping.capture(20, 13)) == [ord("c")]
        assert list(grouping.capture(13, 1 << 40)) == []
        insert(grouping, [(30, "d")])
        insert(grouping, [(30, "d", True)])
        assert grouping.capture(40, 30) == {ord("d"): []}, "one without state any more is reported as well"
        restored = make()
        restored.restore(grouping.capture(20), 20)
        assert restored.changed(20) == []
        assert restored.changed(19) == [ord("a"), ord("b"), ord("c"), ord("d")]


def test_tombstones_of_all_keys_stand_before_items() -> None:
    """None may overtake the item that it takes back, which may be another key's by now."""
    grouping = last_grouping(1)
    insert(grouping, [(1, "b"), (2, "a")])
    changed: list[Any] = [(1, "b", True), (2, "a", True), (2, "b")]
    assert said(insert(grouping, changed)) == ["-1", "-2", "+2"]


def test_a_tombstone_removes_its_item_and_mends_what_came_behind() -> None:
    grouping = last_grouping(2)
    insert(grouping, [(1, "a"), (2, "a"), (3, "a")])
    assert said(insert(grouping, [(2, "a", True)])) == ["-1,2", "-2,3", "+1,3"]
    scan = scan_grouping()
    insert(scan, [(1, "a"), (2, "a"), (3, "a")])
    assert said(insert(scan, [(2, "a", True)])) == ["-1,2", "-1,2,3", "+1,3"]


def test_an_item_and_its_tombstone_in_one_batch_leave_nothing() -> None:
    for make in MAKE:
        grouping = make()
        insert(grouping, [(1, "a")])
        before = grouping.capture(9)
        assert said(insert(grouping, [(2, "a"), (2, "a", True)])) == []
        assert grouping.capture(9) == before


@pytest.mark.parametrize("make", MAKE)
def test_a_key_whose_records_were_all_taken_back_leaves_nothing(make: Callable[[], Grouping]) -> None:
    grouping = make()
    insert(grouping, [(1, "a"), (2, "a"), (3, "b")])
    insert(grouping, [(1, "a", True), (2, "a", True)])
    assert list(grouping._groups) == ["b"]
    insert(grouping, [(4, "a")])
    grouping.prune(9)
    assert set(grouping._groups) == {key for keys in grouping.capture(9).values() for key, _ in keys}


def test_an_item_taken_back_may_come_again() -> None:
    grouping = last_grouping(2)
    assert said(insert(grouping, [(1, "a"), (1, "a", True), (1, "a")])) == ["+1"]
    # The replaced item was another object: the window that holds it is sent again, tombstone first.
    assert said(insert(grouping, [(1, "a", True), (1, "a")])) == ["-1", "+1"]


@pytest.mark.parametrize("make", MAKE)
def test_a_tombstone_before_its_item_is_an_error(make: Callable[[], Grouping]) -> None:
    with pytest.raises(UnmatchedTombstone, match="a tombstone came without its item at step"):
        insert(make(), [(1, "a", True)])


@pytest.mark.parametrize("make", MAKE)
def test_a_second_item_with_the_same_order_key_is_an_error(make: Callable[[], Grouping]) -> None:
    grouping = make()
    insert(grouping, [(1, "a")])
    with pytest.raises(UnmatchedTombstone, match="a second item came with the same order key"):
        insert(grouping, [(1, "a")])
    with pytest.raises(UnmatchedTombstone, match="a second item"):
        insert(make(), [(1, "a"), (1, "a")])


@pytest.mark.parametrize("make", MAKE)
def test_a_record_below_the_prune_time_is_an_error(make: Callable[[], Grouping]) -> None:
    grouping = make()
    insert(grouping, [(5, "a")])
    grouping.prune(5)
    insert(grouping, [(5, "b")])
    with pytest.raises(TimeWentBack, match="a record of tick 4 came to step"):
        insert(grouping, [(4, "a")])


def test_a_snapshot_holds_the_last_window_minus_one_elements() -> None:
    grouping = last_grouping(3)
    insert(grouping, [(tick, "a") for tick in (1, 2, 3, 4, 5)])
    ((key, elements),) = grouping.capture(5)[ord("a")]
    assert (key, [row.number for _, row in elements]) == ("a", [3, 4])
    assert [row.number for _, row in grouping.capture(1 << 40)[ord("a")][0][1]] == [4, 5]


def test_a_failure_is_taken_back_like_any_other_output() -> None:
    grouping = scan_grouping()
    assert said(insert(grouping, [(11, "a"), (13, "a"), (14, "a")])) == ["+11", "+11,14", "+fault at 13"]
    assert said(insert(grouping, [(12, "a")])) == [
        "-11,14",
        "+11,12",
        "+11,12,13",
        "+11,12,13,14",
        "-fault at 13",
    ]


def test_states_and_outputs_of_a_wrong_type_fail() -> None:
    flow = Flow("test")
    keyed = flow.read("events", kafka("events", json(Event))).key_by("key")
    results: dict[int, Any] = {
        1: (1, Event("x", 1)),
        2: ("one", Event("x", 1)),
        3: (2, 5),
        4: None,
        5: (2, Event("x", 5)),
    }

    def step(state: int, event: Event) -> tuple[int, Event]:
        return results[event.number]  # type: ignore[no-any-return]

    keyed.scan("count", step, 0).write("out", kafka("out", json(Event)))
    plan = compile_flow(flow, parallelism=1)
    vertex = next(plan.those(Scan))
    grouping, late = ScanGrouping(vertex, ["key"]), ScanGrouping(vertex, ["key"])
    good, bad = insert(grouping, [(tick, "a") for tick in (1, 2, 3, 4, 5)])
    assert [tick_of(at) for at in good.ats] == [1, 5]
    assert [fault.failure.error for fault in bad.rows] == [
        "returned the state str, expected int",
        "returned the output int, expected Event",
        "raised TypeError: cannot unpack non-iterable NoneType object",
    ]
    insert(late, [(tick, "a") for tick in (2, 3, 4, 5)])
    insert(late, [(1, "a")])
    for each in (grouping, late):
        states = [each.capture(tick)[ord("a")][0][1] for tick in (2, 3, 4, 5, 6)]
        assert states == [1, 1, 1, 1, 2], "a record that fails leaves the state as it was"


def test_classes_of_a_hint() -> None:
    assert classes_of(int) == {int}
    assert classes_of(float) == {float, int}
    assert classes_of(dict[str, int] | None) == {dict, type(None)}
    assert classes_of(tuple[int, ...]) == {tuple}


# -- whatever the order of arrival ------------------------------------------------------------------------------------

keys = st.sampled_from(["a", "b"])
logs = st.lists(st.tuples(st.integers(0, 40), keys), max_size=24, unique_by=lambda event: event[0])


def settled(batches: list[Batch]) -> list[str]:
    """The items left in the end, in order, when every tombstone has met its own."""
    outputs, faults = Pending("outputs"), Pending("faults")  # They go to barriers of their own.
    for each in batches:
        (faults if isinstance(each.rows[0], Fault) else outputs).add(each)
    return said(outputs.release(1 << 40)) + said(faults.release(1 << 40))


def parts(data: st.DataObject, events: list[Any]) -> Iterable[list[Any]]:
    while events:
        count = data.draw(st.integers(1, len(events)))
        yield events[:count]
        events = events[count:]


@settings(deadline=None)
@given(st.sampled_from(MAKE), logs, st.data())
def test_any_order_of_arrival_comes_to_the_same(
    make: Callable[[], Grouping], events: list[tuple[int, str]], data: st.DataObject
) -> None:
    in_order, shuffled = make(), make()
    expected = [each for event in sorted(events) for each in insert(in_order, [event])]
    arrivals = data.draw(st.permutations(events))
    actual = [each for part in parts(data, arrivals) for each in insert(shuffled, part)]
    assert in_order.repairs == 0
    assert settled(actual) == settled(expected)
    for tick in (41, 44, 1 << 40):
        assert shuffled.capture(tick) == in_order.capture(tick)


@settings(deadline=None)
@given(st.sampled_from(MAKE), logs, logs, st.data())
def test_what_is_taken_back_might_as_well_never_have_come(
    make: Callable[[], Grouping], events: list[tuple[int, str]], gone: list[tuple[int, str]], data: st.DataObject
) -> None:
    gone = [event for event in gone if event[0] not in {tick for tick, _ in events}]
    arrivals: list[Any] = data.draw(st.permutations([*events, *gone]))
    for event in data.draw(st.permutations(gone)):
        place = data.draw(st.integers(arrivals.index(event) + 1, len(arrivals)))
        arrivals.insert(place, (*event, True))
    grouping, without = make(), make()
    actual = [each for part in parts(data, arrivals) for each in insert(grouping, part)]
    expected = [each for event in sorted(events) for each in insert(without, [event])]
    assert settled(actual) == settled(expected)
    assert _with_state(grouping) == _with_state(without)


@settings(deadline=None)
@given(st.sampled_from(MAKE), logs, st.integers(0, 42), st.data())
def test_pruning_and_a_snapshot_change_nothing_above_their_tick(
    make: Callable[[], Grouping], events: list[tuple[int, str]], tick: int, data: st.DataObject
) -> None:
    """R14: below T everything has come; above it anything may still come in any order."""
    below = [event for event in events if event[0] < tick]
    above = [event for event in events if event[0] >= tick]
    early = data.draw(st.integers(0, len(above)))
    arrivals = data.draw(st.permutations(above))
    pruned, whole = make(), make()
    for grouping in (pruned, whole):
        for part in (below, arrivals[:early]):
            if part:
                insert(grouping, part)
    pruned.prune(tick)
    captured = pruned.capture(tick)
    assert captured == whole.capture(tick)
    if arrivals[early:]:
        assert said(insert(pruned, arrivals[early:])) == said(insert(whole, arrivals[early:]))
    # A life that starts from the snapshot and reads on from T comes to the same as one that has seen everything.
    restored, fresh = make(), make()
    restored.restore(captured, tick)
    if below:
        insert(fresh, below)
    if above:
        assert settled(insert(restored, above)) == settled(insert(fresh, above))


@settings(deadline=None)
@given(st.sampled_from(MAKE), logs, st.data())
def test_the_ordered_mode_gives_the_same_and_has_nothing_to_mend(
    make: Callable[[], Grouping], events: list[tuple[int, str]], data: st.DataObject
) -> None:
    optimistic, grouping = make(), make()
    ordered = OrderedNode(VERTEX, grouping)
    ordered.sends = (2,)
    ordered.lead([(Taken(VERTEX), 0)])
    arrivals = data.draw(st.permutations(events))
    given: list[Batch] = []
    for part in parts(data, arrivals):
        feed = Feed()
        ordered.take(batch(part), 0, feed)
        assert (feed.delivers, feed.faults, feed.held) == ([], [], {2: {tick for tick, _ in part}})
        seen = arrivals.index(part[-1]) + 1
        min_time = min((tick for tick, _ in arrivals[seen:]), default=1 << 40)
        feed = Feed()
        ordered.advance(min_time, feed)
        given += [each for _, each in feed.delivers] + feed.faults
    expected = [each for part in parts(data, arrivals) for each in insert(optimistic, part)]
    assert grouping.repairs == 0
    assert settled(given) == settled(expected)


# -- a state that is None ----------------------------------------------------------------------------------------------


def forgetful(state: int | None, event: Event) -> tuple[int | None, Seen]:
    return (None if event.number % 2 else event.number), Seen((-1 if state is None else state,))


def test_a_state_that_is_none_is_saved_like_any_other() -> None:
    initial: int | None = 0
    flow = Flow("test")
    keyed = flow.read("events", kafka("events", json(Event))).key_by("key")
    keyed.scan("seen", forgetful, initial).write("out", kafka("out", json(Seen)))
    vertex = next(compile_flow(flow, parallelism=1).those(Scan))
    grouping, restored = ScanGrouping(vertex, ["key"]), ScanGrouping(vertex, ["key"])
    insert(grouping, [(1, "a"), (2, "b")])
    restored.restore(grouping.capture(3), 3)
    expected, found = insert(grouping, [(3, "a"), (4, "b")]), insert(restored, [(3, "a"), (4, "b")])
    assert expected[0].rows == found[0].rows == [Seen((-1,)), Seen((2,))]


def _with_state(grouping: Grouping) -> dict[int, Any]:
    return {unit: keys for unit, keys in grouping.capture(1 << 40).items() if keys}
