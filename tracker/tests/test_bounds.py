"""The tracker's memory is bounded by its table, whatever workers send and however long a life lasts."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from lowtide_tracker import Flush, Graph, TableFull, Tracker

SEGMENTS = 4
CAPACITY = 2_000
GRAPH = {segment: [segment - 1] if segment > 1 else [] for segment in range(1, SEGMENTS + 1)}
FIRST, BIG = 1 << 40, 1 << 60
"""A tick and a value that are objects of their own each, as real ones are."""
BYTES_OF_TICK = 250
"""For a tick with an ack: the tick, its sum, and their places in a dict and a heap as these grow."""
SPARE_BYTES = 64 << 10


@pytest.fixture(autouse=True)
def _traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def held_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def kept(tracker: Tracker) -> int:
    return sum(1 for _ in tracker._table.kept_ticks())


def flush(worker: int, number: int, tick: int, *, beat: bool = False) -> Flush:
    """An ack of each segment at a tick; with `beat` its front labels nothing up to there any more."""
    beats = [(0, tick + 1)] if beat else []
    return Flush.of(worker, number, [(segment, tick, BIG + tick) for segment in GRAPH], beats)


def test_a_table_that_is_full_takes_no_more() -> None:
    """Segments x capacity ticks are all it ever holds; the flush beyond, which ends the life, leaves nothing behind."""
    tracker = Tracker(Graph(GRAPH), {0: FIRST}, start=FIRST, capacity_ticks=CAPACITY)
    before = held_bytes()
    for place in range(CAPACITY):
        tracker.receive(flush(1, place + 1, FIRST + place))
    assert kept(tracker) == SEGMENTS * CAPACITY
    full = held_bytes()
    assert full - before <= SEGMENTS * CAPACITY * BYTES_OF_TICK
    for place in range(CAPACITY, 2 * CAPACITY):
        with pytest.raises(TableFull):
            tracker.receive(flush(1, CAPACITY + 1, FIRST + place))
    assert kept(tracker) == SEGMENTS * CAPACITY
    assert held_bytes() - full <= SPARE_BYTES
    tracker.check()


def test_a_long_life_holds_no_more_than_what_is_open() -> None:
    """Three tables' worth of ticks later those that are closed are gone."""
    tracker = Tracker(Graph(GRAPH), {0: FIRST}, start=FIRST, capacity_ticks=CAPACITY)
    sizes = []
    for place in range(3 * CAPACITY):
        tracker.receive(flush(1, place + 1, FIRST + place, beat=True))
        assert kept(tracker) <= SEGMENTS
        tracker.receive(flush(2, place + 1, FIRST + place))
        if place % CAPACITY == CAPACITY // 2:
            sizes.append(held_bytes())
    assert tracker.global_min == FIRST + 3 * CAPACITY
    assert max(sizes) - sizes[0] <= SPARE_BYTES
