"""Order keys: as values, packed, at the edges of every type; and what exchanges and merges make of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide import Flow, json, kafka
from lowtide.core.effects import Frame
from lowtide.core.frames import Outbox, open_frame
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import (
    OrderKey,
    Position,
    ascending,
    path_of,
    position_of,
    step_id,
    strictly_ascending,
    tail_of,
    tick_bytes,
    tick_cuts,
    tick_of,
    ticks_in,
    trace_of,
    with_child,
    with_trace,
)
from lowtide.core.operators.plain.exchange import ExchangeNode, front_unit
from lowtide.core.operators.plain.merge import MergeNode
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.schema.fields import encode_rows, kept
from lowtide.flow.steps.steps import Broadcast, KeyBy, Merge, Relay


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


@given(st.lists(order_keys, min_size=1, max_size=8))
def test_packed_keys_compare_as_the_keys_do(keys: list[OrderKey]) -> None:
    by_bytes = [key for _, key in sorted(((key.packed(), key) for key in keys), key=lambda pair: pair[0])]
    assert by_bytes == sorted(keys)
    for one, other in pairwise(keys):
        assert (one.packed() < other.packed()) == (one < other)
        assert (one.packed() == other.packed()) == (one == other)


paths = st.lists(st.sampled_from([1, 2, 255, 256, (1 << 32) - 1]), max_size=4).map(tuple)


@given(st.lists(st.builds(OrderKey, st.just(0), st.just(0), st.just(0), paths, st.sampled_from([0, 1, (1 << 64) - 1]))))
def test_paths_of_any_length_compare_without_padding_whatever_their_traces(keys: list[OrderKey]) -> None:
    assert sorted(key.packed() for key in keys) == [key.packed() for key in sorted(keys)]


@given(order_keys)
def test_unpacking_gives_the_keys_back(key: OrderKey) -> None:
    packed = key.packed()
    assert OrderKey.of(packed) == key
    assert (tick_of(packed), tick_of(packed[:8]), path_of(packed)) == (key.tick, key.tick, key.child)
    assert position_of(packed) == Position(key.front, key.sequence)
    assert (trace_of(packed), trace_of(tail_of(key.trace))) == (key.trace, key.trace)
    assert packed.endswith(tail_of(key.trace))


@given(order_keys, edges(*INT64))
def test_a_ticks_bytes_stand_before_its_keys_and_behind_those_of_earlier_ticks(key: OrderKey, tick: int) -> None:
    assert (key.packed() < tick_bytes(tick)) == (key.tick < tick)
    assert key.packed() != tick_bytes(tick)


@given(order_keys, edges(1, (1 << 32) - 1), edges(0, (1 << 64) - 1))
def test_a_child_and_a_trace_change_nothing_else_of_a_key(key: OrderKey, element: int, id_: int) -> None:
    position = (key.tick, key.front, key.sequence)
    assert OrderKey.of(with_child(key.packed(), element)) == OrderKey(*position, (*key.child, element), key.trace)
    assert OrderKey.of(with_trace(key.packed(), id_)) == OrderKey(*position, key.child, key.trace ^ id_)


@given(st.lists(order_keys, max_size=8) | st.lists(order_keys, max_size=8).map(sorted))
def test_keys_in_order_are_distinguished_from_others(keys: list[OrderKey]) -> None:
    ats = [key.packed() for key in keys]
    assert ascending(ats) == (keys == sorted(keys))
    assert strictly_ascending(ats) == (keys == sorted(set(keys)))


near = st.builds(OrderKey, st.integers(-3, 3), st.integers(0, 1), st.integers(0, 2), paths)


@given(st.lists(near | order_keys, min_size=1, max_size=12), st.booleans())
def test_the_ticks_of_keys_and_where_each_ends(keys: list[OrderKey], in_order: bool) -> None:
    keys = sorted(keys) if in_order else keys
    ticks = ticks_in([key.packed() for key in keys])
    assert ticks == sorted({key.tick for key in keys})
    ordered = sorted(keys)
    cuts = tick_cuts([key.packed() for key in ordered], ticks)
    assert [[key.tick for key in ordered[start:stop]] for start, stop in pairwise([0, *cuts])] == [
        [key.tick for key in ordered if key.tick == tick] for tick in ticks
    ]


@given(st.lists(st.tuples(near, st.booleans()), min_size=1, max_size=12), st.booleans(), st.integers(-3, 4))
def test_a_cut_parts_records_by_their_tick_and_leaves_them_as_they_came(
    records: list[tuple[OrderKey, bool]], in_order: bool, tick: int
) -> None:
    records = sorted(records) if in_order else records
    flags = [flag for _, flag in records]
    batch = Batch([key.packed() for key, _ in records], list(range(len(records))), records, flags)
    for part, wanted in zip(batch.cut(tick), (True, False), strict=True):
        kept = [(place, *each) for place, each in enumerate(records) if (each[0].tick < tick) == wanted]
        assert part.ats == [key.packed() for _, key, _ in kept]
        assert part.units == [place for place, _, _ in kept]
        assert part.rows == [(key, flag) for _, key, flag in kept]
        assert (part.flags or [False] * len(part)) == [flag for _, _, flag in kept]


def test_the_layout_of_a_packed_key() -> None:
    """State, lasts and frames have these bytes."""
    packed = OrderKey(1, 2, 3, (1, 256), 255).packed()
    assert packed.hex(" ", 4) == (
        "80000000 00000001 80000002 80000000 00000003 00000001 00000100 00000000 00000000 000000ff"
    )


def test_a_child_stands_behind_its_parent_and_before_the_next_record() -> None:
    parent = OrderKey(5, 1, 7, (2,), 99)
    child = OrderKey(5, 1, 7, (2, 1), 0)
    assert parent < child < OrderKey(5, 1, 7, (3,), 0) < OrderKey(5, 1, 8) < OrderKey(5, 2, 0) < OrderKey(6, 0, 0)
    assert OrderKey(5, 1, 7, (2,), 98) < parent


@settings(deadline=None)
@given(st.lists(order_keys, min_size=1, max_size=3), st.lists(order_keys, min_size=1, max_size=3), st.data())
def test_order_keys_units_and_flags_survive_an_exchange(
    first: list[OrderKey], second: list[OrderKey], data: st.DataObject
) -> None:
    batches = []
    for keys in (first, second):
        flags = data.draw(st.none() | st.lists(st.booleans(), min_size=len(keys), max_size=len(keys)))
        rows = [Event(number) for number in range(len(keys))]
        batches.append(Batch([key.packed() for key in keys], list(range(len(keys))), rows, flags))
    outbox, received = Outbox(0, 1), []
    for batch in batches:
        frame = Frame(3, 0, 1, batch.ticks, batch, encode_rows(batch.rows))
        head = open_frame(outbox.records(0, frame, 0), {3: Event})
        received.append(Batch(head.ats, head.units, head.rows, head.flags, head.ticks))
    cut = data.draw(st.integers(0, len(first) - 1))
    batch = Batch.concat([received[0].slice(cut, len(first)), received[1]])
    assert [OrderKey.of(at) for at in batch.ats] == [*first[cut:], *second]
    given_flags = [one.flags or [False] * len(one) for one in batches]
    assert (batch.flags or [False] * len(batch)) == given_flags[0][cut:] + given_flags[1]
    assert batch.units == [*range(cut, len(first)), *range(len(second))]
    assert batch.rows == [*batches[0].rows[cut:], *batches[1].rows]
    assert batch.ticks == sorted({key.tick for key in [*first[cut:], *second]})


# -- R4: the same in every life and at every parallelism --------------------------------------------------------------


def test_ids_of_steps_are_hashes_of_names() -> None:
    """R4: another life, another process, another parallelism: the same ids. Literal values, as they are in state."""
    assert step_id("job", "step", 0, 5) == 0xCACC11DA72D574DF
    assert len({step_id("job", "step", port, place) for port in range(3) for place in range(100)}) == 300
    assert step_id("a", "bc", 0, 0) != step_id("ab", "c", 0, 0)


def plan_of(units: int) -> Plan:
    flow = Flow("job")
    flow.read("events", kafka("events", json(Event))).write("out", kafka("out", json(Event)))
    return compile_flow(flow, units=units, lanes=1, parallelism=1)


def vertex_of(step: Any, name: str, plan: Plan) -> Vertex:
    return replace(plan.vertices[0], name=name, step=step)


def exchanged(step: Any, name: str, units: int, batch: Batch) -> Batch:
    """The frame of an exchange to the only worker."""
    plan = plan_of(units)
    feed = Feed()
    ExchangeNode(vertex_of(step, name, plan), plan, None).take(batch, 0, feed)
    (parcel,) = feed.parcels
    assert kept(Event, parcel.batch.rows, parcel.payload) == parcel.batch.rows
    return parcel.batch


def batch_of(units: list[int], front: int = 0) -> Batch:
    n = len(units) or 3
    ats = [OrderKey(number, front, number, (), 1).packed() for number in range(n)]
    return Batch(ats, units, [Event(number) for number in range(n)])


def test_an_exchange_folds_in_the_hash_unit() -> None:
    given_ = batch_of([])
    batch = exchanged(KeyBy(("key",)), "by-key", 8, given_)
    assert len(set(batch.units)) > 1
    ids = [step_id("job", "by-key", 0, unit) for unit in batch.units]
    assert [trace_of(at) ^ 1 for at in batch.ats] == ids
    assert [at[:-8] for at in batch.ats] == [at[:-8] for at in given_.ats]


def test_an_exchange_of_records_with_many_traces_remembers_only_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tails and keys have been seen, what comes out is the same."""
    ats = [OrderKey(0, 0, n, (), n % 7).packed() for n in range(40)]
    rows = [Event(n % 9) for n in range(40)]
    whole = exchanged(KeyBy(("key",)), "by-key", 8, Batch(ats, [], rows))
    monkeypatch.setattr("lowtide.core.operators.plain.exchange.MAX_TAILS", 2)
    monkeypatch.setattr("lowtide.core.operators.plain.exchange.MAX_KEYS", 2)
    again = exchanged(KeyBy(("key",)), "by-key", 8, Batch(ats, [], rows))
    assert (again.ats, again.units) == (whole.ats, whole.units)
    expected = [n % 7 ^ step_id("job", "by-key", 0, unit) for n, unit in enumerate(whole.units)]
    assert [trace_of(at) for at in whole.ats] == expected


def test_a_relay_keeps_the_hash_unit_and_takes_the_fronts_before_the_first_exchange() -> None:
    assert exchanged(Relay(), "relay", 8, batch_of([3, 1, 7])).units == [3, 1, 7]
    by_front = exchanged(Relay(), "relay", 8, batch_of([], front=5)).units
    assert by_front == [front_unit(5, 8)] * 3


def test_a_broadcast_goes_once_to_every_hash_unit() -> None:
    """R4: however many workers there are, the copies and their order keys are the same."""
    batch = exchanged(Broadcast(max, 0), "rules", 4, batch_of([]))
    assert batch.units == [0, 1, 2, 3] * 3
    assert [path_of(at) for at in batch.ats] == [(1,), (2,), (3,), (4,)] * 3
    assert len(set(batch.ats)) == 12
    assert [row.key for row in batch.rows] == [0] * 4 + [1] * 4 + [2] * 4


def test_a_broadcast_takes_back_every_copy() -> None:
    one = batch_of([])
    batch = exchanged(Broadcast(max, 0), "rules", 4, Batch(one.ats, [], one.rows, [False, True, False]))
    assert batch.flags == [False] * 4 + [True] * 4 + [False] * 4


class Taken(Node):
    """Keeps what it is given."""

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex)
        self.batches: list[Batch] = []

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        self.batches.append(batch)


@pytest.mark.parametrize("units", [[], [2, 2, 5]])
def test_a_merge_folds_in_the_port_and_the_place(units: list[int]) -> None:
    vertex = vertex_of(Merge(), "both", plan_of(8))
    merge, taken = MergeNode(vertex, "job"), Taken(vertex)
    merge.lead([(taken, 0)])
    for port in (0, 1):
        merge.take(batch_of(units, front=6), port, Feed())
    traces = [[trace_of(at) ^ 1 for at in batch.ats] for batch in taken.batches]
    places = units or [6, 6, 6]
    assert traces == [[step_id("job", "both", port, place) for place in places] for port in (0, 1)]
