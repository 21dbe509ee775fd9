"""R3: a number is allotted once; a front opens above what was announced; a source that changed is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.fronts.floors import NO_TICK
from lowtide.core.fronts.register import (
    FrontEntry,
    FrontRegister,
    Partition,
    RegisterDamaged,
    SourceGone,
    SourceTooShort,
)
from lowtide_tracker import Floor, Graph, LocalTracker, Tracker

partitions = st.builds(Partition, st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]), st.integers(0, 3))


def two() -> FrontRegister:
    register, _ = FrontRegister().opened(Partition("orders", "x", 0), offset=5, above=NO_TICK)
    register, _ = register.opened(Partition("orders", "x", 1), offset=0, above=100)
    return register


@given(st.lists(st.tuples(partitions, st.integers(0, 9), st.integers(0, 99)), max_size=12))
def test_a_number_is_allotted_once_and_what_is_registered_never_changes(
    asked: list[tuple[Partition, int, int]],
) -> None:
    register = FrontRegister()
    first: dict[Partition, FrontEntry] = {}
    for partition, offset, above in asked:
        before = register.entries
        register, entry = register.opened(partition, offset=offset, above=above)
        assert entry == first.setdefault(partition, entry)
        assert register.entries[: len(before)] == before
    assert [entry.number for entry in register.entries] == list(range(len(first)))
    assert FrontRegister.from_json(reversed(json.loads(json.dumps(register.to_json())))) == register


def test_a_topic_that_was_made_again_has_other_fronts() -> None:
    register, entry = two().opened(Partition("orders", "y", 0), offset=0, above=7)
    assert (entry.number, len(register.entries)) == (2, 3)


def test_min_time_runs_over_the_register_connected_or_not() -> None:
    """W4c: a front whose worker has not come yet holds min time as well."""
    tracker = Tracker(Graph({1: []}), two().openings(start=50), start=50, capacity_ticks=100)
    local = LocalTracker(0, 1, start=50)
    local.heartbeat(0, 140)
    flush = local.flush()
    assert flush is not None
    tracker.receive(flush)
    assert tracker.global_min == 100, "front 1 opened there, and nothing has been heard of it"


def test_a_late_front_opens_above_what_was_announced_and_stays_there_in_every_life() -> None:
    """W4a, W4b."""
    tracker = Tracker(Graph({1: []}), {0: 300}, start=0, capacity_ticks=1000)
    local = LocalTracker(0, 1, start=0)
    local.heartbeat(0, 320)
    flush = local.flush()
    assert flush is not None
    tracker.receive(flush)
    last_tick = 310
    answered = tracker.open_front(1, last_tick + 1)
    register, entry = FrontRegister((FrontEntry(0, Partition("a", "x", 0), 0, 300),)).opened(
        Partition("a", "x", 1), offset=0, above=answered
    )
    assert entry.floor == Floor(1, 0, 320)
    again = FrontRegister.from_json(register.to_json())
    assert again.openings() == {0: 300, 1: 320}
    assert again.floors() == (Floor(0, 0, 300), Floor(1, 0, 320))


def test_start_offsets_name_every_front_manifest_first() -> None:
    there = {Partition("orders", "x", 0): 0, Partition("orders", "x", 1): 0, Partition("orders", "x", 2): 0}
    assert two().starts({}, there) == {0: 5, 1: 0}
    assert two().starts({0: 40}, there) == {0: 40, 1: 0}, "one was registered since the commit"
    assert two().starts({0: 40}, there, closed=[1]) == {0: 40}


def test_a_source_that_no_longer_reaches_back_or_is_gone_is_refused() -> None:
    there = {Partition("orders", "x", 0): 41, Partition("orders", "x", 1): 0}
    with pytest.raises(SourceTooShort, match="begins at offset 41, but the job must read from 40: 1 offsets"):
        two().starts({0: 40}, there)
    there[Partition("orders", "x", 1)] = 9
    with pytest.raises(SourceTooShort, match=r"41, but .* from 40: 1 offsets .*; .* 9, but .* 0: 9 offsets") as caught:
        two().starts({0: 40, 1: 0}, there, commit="000002-0001")
    assert caught.value.where == "the job would begin from commit 000002-0001"
    assert "lowtide recover --commit ID" in caught.value.way_out
    with pytest.raises(SourceTooShort) as caught:
        two().starts({}, there)
    assert caught.value.where == "there is no commit to begin from"
    assert "recover" not in caught.value.way_out
    with pytest.raises(SourceGone, match='partition 1 of source "orders"'):
        two().starts({}, {Partition("orders", "x", 0): 0, Partition("orders", "y", 1): 0})


@pytest.mark.parametrize(
    "change",
    [
        lambda entries: entries[1:],
        lambda entries: [*entries, entries[0]],
        lambda entries: [{**entries[0], "number": 1}, entries[1]],
        lambda entries: [{**entries[0], "partition": 1}, entries[1]],
        lambda entries: [{**entries[0], "opening": None}, entries[1]],
        lambda entries: [{"number": 0}],
    ],
)
def test_a_damaged_register_is_refused(change: object) -> None:
    with pytest.raises(RegisterDamaged, match="front register"):
        FrontRegister.from_json(change(two().to_json()))  # type: ignore[operator]
