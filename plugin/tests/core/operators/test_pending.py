"""Records that wait for min time, against a model that keeps plain Python lists."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.core.operators.held.pending import Pending
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.order.unmatched import UnmatchedTombstone
from lowtide.core.operators.state.group import SPARE
from lowtide.errors import TimeWentBack

DEPTH = 2

Record = tuple[OrderKey, bool, int]
"""Order key, whether it is a tombstone, and the payload."""


def batch(records: list[Record]) -> Batch:
    flags = [tombstone for _, tombstone, _ in records]
    return Batch(
        [key.packed() for key, *_ in records],
        [],
        [payload for *_, payload in records],
        flags if any(flags) else None,
    )


def item(tick: int, payload: int = 0, sequence: int = 0) -> Record:
    return (OrderKey(tick, 0, sequence), False, payload)


def tombstone(tick: int, sequence: int = 0) -> Record:
    return (OrderKey(tick, 0, sequence), True, 0)


class Model:
    """Ten lines that say what `Pending` is."""

    def __init__(self) -> None:
        self.held: dict[OrderKey, list[tuple[bool, int]]] = defaultdict(list)

    def add(self, records: list[Record]) -> None:
        for key, flag, payload in records:
            self.held[key].append((flag, payload))

    def release(self, tick: int) -> list[tuple[OrderKey, int]] | None:
        """The valid records below a tick; None if a tombstone came first, or an item twice."""
        below = sorted(key for key in self.held if key.tick < tick)
        histories = {key: self.held.pop(key) for key in below}
        if any(flag != bool(index % 2) for history in histories.values() for index, (flag, _) in enumerate(history)):
            return None
        return [(key, history[-1][1]) for key, history in histories.items() if len(history) % 2]


def out(released: list[Batch]) -> list[tuple[OrderKey, int]]:
    assert all(len(each) for each in released), "nothing is not a batch"
    assert all(each.flags is None for each in released)
    found = [OrderKey.of(at) for each in released for at in each.ats]
    assert [each.ticks for each in released] == [[tick] for tick in sorted({key.tick for key in found})], "one per tick"
    return list(zip(found, (row for each in released for row in each.rows), strict=True))


keys = st.builds(
    OrderKey,
    st.integers(0, 9),
    st.integers(0, 1),
    st.just(0),
    st.lists(st.integers(1, 2), max_size=DEPTH).map(tuple),
    st.integers(0, 1),
)
records = st.tuples(keys, st.booleans(), st.integers(0, 99))


@st.composite
def repaired(draw: st.DrawFn) -> list[Record]:
    """Records where each key's own alternate: an item, its tombstone, the item again."""
    count: dict[OrderKey, int] = defaultdict(int)
    found = []
    for key, payload in draw(st.lists(st.tuples(keys, st.integers(0, 99)), max_size=40)):
        found.append((key, count[key] % 2 == 1, payload))
        count[key] += 1
    return found


steps = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=12)


@settings(max_examples=400)
@given(st.lists(records, max_size=12) | repaired(), steps)
def test_any_interleaving_over_any_batches_is_the_model(
    given_records: list[Record], steps: list[tuple[int, int]]
) -> None:
    pending, model, left, min_time = Pending("here"), Model(), list(given_records), 0
    for count, advance in [*steps, (len(left), 100)]:
        part, left = left[:count], left[count:]
        if part:
            pending.add(batch(part))
        model.add(part)
        assert len(pending) == sum(map(len, model.held.values()))
        assert pending.first_tick == min((key.tick for key in model.held), default=None)
        min_time = min([min_time + advance, *(key.tick for key, *_ in left)])
        expected = model.release(min_time)
        if expected is None:
            with pytest.raises(UnmatchedTombstone):
                pending.release(min_time)
            return
        assert out(pending.release(min_time)) == expected
    assert len(pending) == 0


def test_an_item_and_its_tombstone_leave_no_trace() -> None:
    pending = Pending("here")
    pending.add(batch([item(1, 10), item(2, 20)]))
    pending.add(batch([tombstone(1)]))
    assert out(pending.release(5)) == [(OrderKey(2, 0, 0), 20)]


def test_an_item_given_again_counts_with_its_last_payload() -> None:
    pending = Pending("here")
    for record in (item(1, 10), tombstone(1), item(1, 11)):
        pending.add(batch([record]))
    assert out(pending.release(5)) == [(OrderKey(1, 0, 0), 11)]


@pytest.mark.parametrize(
    ("given_records", "message"),
    [
        ([tombstone(3, sequence=7)], "tombstone came without its item at here: tick 3, front 0, offset 7"),
        ([tombstone(1), item(1)], "tombstone came without its item"),
        ([item(1), item(1)], "second item came with the same order key"),
        ([item(1), tombstone(1), tombstone(1)], "tombstone came without its item"),
    ],
)
@pytest.mark.parametrize("size", [1, 3])
def test_what_does_not_match_is_an_error(given_records: list[Record], message: str, size: int) -> None:
    pending = Pending("here")
    for start in range(0, len(given_records), size):
        pending.add(batch(given_records[start : start + size]))
    with pytest.raises(UnmatchedTombstone, match=message):
        pending.release(5)


def test_what_does_not_match_is_found_only_below_min_time() -> None:
    pending = Pending("here")
    pending.add(batch([item(1, 10), item(4), item(4)]))
    assert out(pending.release(4)) == [(OrderKey(1, 0, 0), 10)]
    with pytest.raises(UnmatchedTombstone):
        pending.release(5)


def test_nothing_comes_below_what_was_released() -> None:
    pending = Pending("here")
    assert pending.release(5) == []
    pending.add(batch([item(5)]))
    with pytest.raises(TimeWentBack, match="a record of tick 4 came to here, where everything below tick 5"):
        pending.add(batch([item(9), item(4)]))
    assert pending.release(3) == []
    assert pending.released == 5


def test_the_trace_alone_tells_two_records_apart() -> None:
    # Two versions of a window that went to different workers (R4).
    one, other = OrderKey(1, 0, 0, (1,), 5), OrderKey(1, 0, 0, (1,), 1 << 63)
    pending = Pending("here")
    pending.add(batch([(other, False, 2), (one, False, 1), (one, True, 1)]))
    assert out(pending.release(2)) == [(other, 2)]


def test_a_path_comes_after_its_prefix_whatever_the_trace() -> None:
    parent, child = OrderKey(1, 0, 0, (1,), (1 << 64) - 1), OrderKey(1, 0, 0, (1, 1), 0)
    pending = Pending("here")
    pending.add(batch([(child, False, 2), (parent, False, 1)]))
    assert out(pending.release(2)) == [(parent, 1), (child, 2)]


def test_a_batch_of_many_ticks_may_be_released_tick_by_tick() -> None:
    n = 3000
    ats = [OrderKey(n - 1 - place, 0, place).packed() for place in range(n)]
    pending = Pending("here")
    pending.add(Batch(ats, [], list(range(n))))
    found = [row for tick in range(n) for _, row in out(pending.release(tick + 1))]
    assert found == list(range(n))[::-1]


@settings(max_examples=400, deadline=None)
@given(st.lists(records, max_size=12) | repaired(), st.lists(st.integers(1, 4), min_size=40, max_size=40))
def test_what_has_been_taken_back_may_be_left_out_at_any_time(given_records: list[Record], sizes: list[int]) -> None:
    """The same comes out, or the same error, where nothing may be spared."""
    model, left = Model(), list(given_records)
    model.add(left)
    expected = model.release(100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lowtide.core.operators.held.pending.SPARE", 0)
        pending = Pending("here")
        try:
            for size in sizes:
                part, left = left[:size], left[size:]
                if part:
                    pending.add(batch(part))
            found = out(pending.release(100))
        except UnmatchedTombstone:
            assert expected is None
            return
    assert found == expected
    assert len(pending) == 0


def test_a_record_that_is_taken_back_again_and_again_takes_no_more_memory() -> None:
    pending, most = Pending("here"), 0
    pending.add(batch([item(1, 7), item(3, 0)]))
    for version in range(1, 1_000):
        pending.add(batch([tombstone(3), item(3, version)]))
        most = max(most, len(pending))
    assert most <= 2 + 3 * SPARE
    assert out(pending.release(5)) == [(OrderKey(1, 0, 0), 7), (OrderKey(3, 0, 0), 999)]
