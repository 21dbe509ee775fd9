"""Order keys: as values, packed, in Arrow; at the edges of every type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.operators.batch import Batch
from lowtide.operators.exchange import ExchangeOperator
from lowtide.operators.merging import MergeOperator
from lowtide.operators.meta import Meta
from lowtide.operators.order import OrderKey, in_order, order_width, pack, step_id, tick_bytes, unpack
from lowtide.schema import schema_of
from lowtide.steps import Broadcast, KeyBy, Relay


@dataclass(frozen=True)
class Event:
    key: int


INT64 = (-(1 << 63), (1 << 63) - 1)
INT32 = (-(1 << 31), (1 << 31) - 1)


def edges(low: int, high: int) -> st.SearchStrategy[int]:
    return st.sampled_from([low, low + 1, -1, 0, 1, 255, 256, high - 1, high]).filter(
        lambda value: low <= value <= high
    ) | st.integers(low, high)


order_keys = st.builds(
    OrderKey,
    edges(*INT64),
    edges(*INT32),
    edges(*INT64),
    st.lists(edges(1, (1 << 32) - 1), max_size=3).map(tuple),
    edges(0, (1 << 64) - 1),
)


def meta_of(keys: Sequence[OrderKey]) -> Meta:
    return Meta.concat([key.meta() for key in keys])


@given(st.lists(order_keys, min_size=1, max_size=8), st.integers(3, 5))
def test_packed_keys_compare_as_the_keys_do(keys: list[OrderKey], depth: int) -> None:
    packed = pack(meta_of(keys), depth)
    assert packed.dtype.itemsize == order_width(depth)
    by_numpy = [keys[place] for place in np.argsort(packed, kind="stable").tolist()]
    by_bytes = [key for _, key in sorted(zip(packed.tolist(), keys, strict=True), key=lambda pair: pair[0])]
    assert by_numpy == by_bytes == sorted(keys)


@given(st.lists(order_keys, min_size=1, max_size=8))
def test_unpacking_gives_the_keys_back(keys: list[OrderKey]) -> None:
    again = unpack(pack(meta_of(keys), 4).tolist(), 4)
    assert [OrderKey.at(again, index) for index in range(len(keys))] == keys


@given(order_keys, edges(*INT64))
def test_a_ticks_bytes_stand_before_its_keys_and_behind_those_of_earlier_ticks(key: OrderKey, tick: int) -> None:
    (packed,) = pack(key.meta(), 3).tolist()
    assert (packed < tick_bytes(tick)) == (key.tick < tick)


@given(st.lists(order_keys, max_size=8))
def test_the_order_is_none_only_for_keys_in_order(keys: list[OrderKey]) -> None:
    packed = pack(meta_of(keys), 3) if keys else np.empty(0, "S28")
    order = in_order(packed)
    assert (order is None) == (keys == sorted(keys) or len(keys) < 2)


def test_a_child_stands_behind_its_parent_and_before_the_next_record() -> None:
    parent = OrderKey(5, 1, 7, (2,), 99)
    child = OrderKey(5, 1, 7, (2, 1), 0)
    assert parent < child < OrderKey(5, 1, 7, (3,), 0) < OrderKey(5, 1, 8) < OrderKey(5, 2, 0) < OrderKey(6, 0, 0)
    assert OrderKey(5, 1, 7, (2,), 98) < parent


@given(st.lists(st.tuples(st.lists(st.integers(1, 9), max_size=3), st.integers(1, 9)), min_size=1, max_size=6))
def test_an_element_goes_to_the_end_of_every_path_whatever_its_length(paths: list[tuple[list[int], int]]) -> None:
    meta = meta_of([OrderKey(0, 0, 0, tuple(path)) for path, _ in paths])
    appended = meta.with_child(np.array([element for _, element in paths], np.uint32))
    found = [OrderKey.at(appended, index).child for index in range(len(paths))]
    assert found == [(*path, element) for path, element in paths]


@given(st.lists(order_keys, min_size=1, max_size=6), st.lists(order_keys, min_size=1, max_size=6), st.data())
def test_meta_survives_an_exchange(first: list[OrderKey], second: list[OrderKey], data: st.DataObject) -> None:
    batches = []
    for keys in (first, second):
        flags = np.array(data.draw(st.lists(st.booleans(), min_size=len(keys), max_size=len(keys))), np.bool_)
        units = np.arange(len(keys), dtype=np.int32)
        meta = meta_of(keys).with_unit(units).with_tombstone(flags)
        rows = [Event(number) for number in range(len(keys))]
        batches.append(Batch(schema_of(Event), meta, rows=rows))
    table = [batch.to_arrow() for batch in batches]
    cut = data.draw(st.integers(0, len(first) - 1))
    received = [Batch.from_arrow(schema_of(Event), part) for part in (table[0].slice(cut), table[1])]
    batch = Batch.concat(received)
    keys = [*first[cut:], *second]
    assert [OrderKey.at(batch.meta, index) for index in range(len(keys))] == keys
    flags = np.concatenate([batches[0].meta.tombstone[cut:], batches[1].meta.tombstone])
    assert batch.meta.tombstone.tolist() == flags.tolist()
    assert batch.rows() == [*batches[0].rows()[cut:], *batches[1].rows()]


def test_child_paths_travel_big_endian() -> None:
    meta = OrderKey(1, 2, 3, (1, 256)).meta().with_unit(np.array([0], np.int32))
    table = Batch(schema_of(Event), meta, rows=[Event(1)]).to_arrow()
    assert table.column("_child").to_pylist() == [b"\0\0\0\1\0\0\1\0"]
    assert table.schema.names == ["key", "_tick", "_front", "_sequence", "_child", "_trace", "_tombstone", "_unit"]


# -- R4: the same in every life and at every parallelism --------------------------------------------------------------


def test_ids_of_steps_are_hashes_of_names() -> None:
    """R4: another life, another process, another parallelism: the same ids. Literal values, as they are in state."""
    assert step_id("job", "step", 0, 5) == np.uint64(0xCACC11DA72D574DF)
    assert len({int(step_id("job", "step", port, place)) for port in range(3) for place in range(100)}) == 300
    assert step_id("a", "bc", 0, 0) != step_id("ab", "c", 0, 0)


def batch_of(units: list[int] | None, front: int = 0) -> Batch:
    n = 3 if units is None else len(units)
    meta = Meta.of_source(front, 1, np.arange(n), np.arange(n))
    if units is not None:
        meta = meta.with_unit(np.array(units, np.int32))
    return Batch(schema_of(Event), meta, rows=[Event(number) for number in range(n)])


def test_an_exchange_folds_in_the_hash_unit() -> None:
    given_ = batch_of(None)
    batch = ExchangeOperator("job", "by-key", KeyBy(("key",)), 8).assign(given_)
    units = batch.meta.unit
    assert units is not None
    ids = [int(step_id("job", "by-key", 0, unit)) for unit in units.tolist()]
    assert (batch.meta.trace ^ given_.meta.trace).tolist() == ids


def test_a_relay_keeps_the_hash_unit_and_takes_the_fronts_before_the_first_exchange() -> None:
    relay = ExchangeOperator("job", "relay", Relay(), 8)
    kept = relay.assign(batch_of([3, 1, 7])).meta.unit
    assert kept is not None
    assert kept.tolist() == [3, 1, 7]
    by_front = relay.assign(batch_of(None, front=5)).meta.unit
    assert by_front is not None
    assert len(set(by_front.tolist())) == 1


def test_a_broadcast_goes_once_to_every_hash_unit() -> None:
    """R4: however many workers there are, the copies and their order keys are the same."""
    batch = ExchangeOperator("job", "rules", Broadcast(max, 0), 4).assign(batch_of(None))
    units = batch.meta.unit
    assert units is not None
    assert units.tolist() == [0, 1, 2, 3] * 3
    assert batch.meta.child.ravel().tolist() == [1, 2, 3, 4] * 3
    assert len({OrderKey.at(batch.meta, index) for index in range(12)}) == 12


@pytest.mark.parametrize("units", [None, [2, 2, 5]])
def test_a_merge_folds_in_the_port_and_the_place(units: list[int] | None) -> None:
    merge = MergeOperator("job", "both", 8)
    batch = batch_of(units, front=6)
    traces = [(merge.take(batch, port).meta.trace ^ batch.meta.trace).tolist() for port in (0, 1)]
    places = [6, 6, 6] if units is None else units
    assert traces == [[int(step_id("job", "both", port, place)) for place in places] for port in (0, 1)]


def test_a_path_that_is_longer_than_can_be_is_never_cut() -> None:
    one = np.zeros(1, np.int64)
    meta = Meta.of_source(0, 0, one, one).with_child(1)
    pack(meta, 1)
    with pytest.raises(AssertionError, match="a child path is longer than 0"):
        pack(meta, 0)
