"""The barrier, against a model that keeps plain Python lists."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.core.operators.barrier import Barrier
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.bundle import NO_KEY, Bundle
from lowtide.core.operators.order.order import OrderKey, mark_key
from lowtide.core.operators.order.unmatched import UnmatchedTombstone
from lowtide.errors import TimeWentBack
from lowtide_tracker import Floor

LANES = 3
LANE_OF_UNIT = [0, 0, 1, 1, 2]
DEPTH = 2
END = 10_000
"""A tick that no number of steps comes to."""

Record = tuple[OrderKey, int, bool]
"""Order key, hash unit, whether it is a tombstone; the row is the key."""


def batch(records: list[Record]) -> Batch:
    flags = [tombstone for *_, tombstone in records]
    ats = [key.packed() for key, *_ in records]
    units = [unit for _, unit, _ in records]
    return Batch(ats, units, [key for key, *_ in records], flags if any(flags) else None)


def add(barrier: Barrier, records: list[Record]) -> None:
    if records:
        barrier.add(batch(records))


def items(ticks: list[int], unit: int = 0) -> Batch:
    return batch([(OrderKey(tick, 0, sequence), unit, False) for sequence, tick in enumerate(ticks)])


def make(*, mark_every: int = 0, **changes: object) -> Barrier:
    values: dict[str, object] = {"lanes": range(LANES), "lane_of_unit": LANE_OF_UNIT}
    barrier = Barrier("out", **(values | changes))  # type: ignore[arg-type]
    if mark_every:
        barrier.mark_lanes(mark_every)
    return barrier


def ticks(bundle: Bundle | None) -> list[int]:
    return [] if bundle is None else [row.tick for row in bundle.rows]


keys = st.builds(
    OrderKey,
    st.integers(0, 12),
    st.integers(0, 1),
    st.integers(0, 2),
    st.lists(st.integers(1, 2), max_size=DEPTH).map(tuple),
    st.integers(0, 2),
)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Record]:
    """Items, some of them taken back once or twice and given again, in any order that keeps each key's own."""
    chosen = draw(st.lists(keys, max_size=25, unique=True))
    records: list[Record] = []
    for key in chosen:
        unit = draw(st.integers(0, len(LANE_OF_UNIT) - 1))
        count = draw(st.sampled_from([1, 1, 1, 2, 3, 4]))
        records += [(key, unit, index % 2 == 1) for index in range(count)]
    places = draw(st.permutations(range(len(records))))
    slots: dict[OrderKey, list[int]] = {}
    for (key, *_), place in zip(records, places, strict=True):
        slots.setdefault(key, []).append(place)
    taken = {key: iter(sorted(places)) for key, places in slots.items()}
    return [record for _, record in sorted(((next(taken[record[0]]), record) for record in records), key=first)]


def first(pair: tuple[int, Record]) -> int:
    return pair[0]


def valid(records: list[Record]) -> dict[int, list[OrderKey]]:
    """The model: per lane, in order, the keys with more items than tombstones."""
    count: dict[OrderKey, int] = {}
    lanes: dict[OrderKey, int] = {}
    for key, unit, tombstone in records:
        count[key] = count.get(key, 0) + (-1 if tombstone else 1)
        lanes[key] = LANE_OF_UNIT[unit]
    return {lane: sorted(key for key in count if count[key] and lanes[key] == lane) for lane in range(LANES)}


class Sink:
    """Takes bundles, and makes them durable on request."""

    def __init__(self, barrier: Barrier) -> None:
        self.barrier = barrier
        self.in_flight: dict[int, Bundle] = {}
        self.delivered: dict[int, list[OrderKey]] = {lane: [] for lane in range(LANES)}
        self.last: dict[int, OrderKey] = {}
        self.floors: list[Floor] = []

    def take(self, bundles: list[Bundle]) -> None:
        for bundle in bundles:
            assert bundle.lane not in self.in_flight, "one bundle in flight per lane"
            self.in_flight[bundle.lane] = bundle

    def done(self, lane: int) -> None:
        bundle = self.in_flight.pop(lane, None)
        if bundle is None:
            return
        found = [OrderKey.of(at) for piece in bundle.pieces for at in piece.ats]
        assert found == bundle.rows, "rows go with their order keys"
        assert all({key.tick for key in piece.rows} == {piece.tick} for piece in bundle.pieces)
        last = found[-1] if found else self.last.get(lane)
        if bundle.mark is not None:
            key = OrderKey.of(mark_key(bundle.mark))
            last = key if last is None else max(last, key)
        assert (bundle.last_key, bundle.last) == (last, last.packed() if last else NO_KEY)
        self.delivered[lane] += found
        if last is not None:
            self.last[lane] = last
        self.floors += bundle.floors
        following = self.barrier.durable(lane)
        self.take([] if following is None else [following])

    def finish(self) -> None:
        while self.in_flight:
            self.done(min(self.in_flight))


@settings(max_examples=300)
@given(arrivals(), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(-1, 2))), st.integers(1, 9))
def test_a_barrier_releases_in_order_each_once_and_taken_back_ones_never(
    records: list[Record], steps: list[tuple[int, int, int]], size: int
) -> None:
    barrier = make(max_bundle_records=size)
    sink = Sink(barrier)
    left = list(records)
    min_time = 0
    for count, advance, lane in steps:
        # What is still to come holds min time back.
        add(barrier, left[:count])
        del left[:count]
        min_time = min([min_time + advance, *(key.tick for key, *_ in left)])
        sink.take(barrier.advance(min_time))
        assert all(len(bundle) <= size for bundle in sink.in_flight.values())
        sink.done(lane)
        barrier.check()
        assert barrier.kept() == sink.last
        expected = valid([record for record in records if record[0].tick < barrier.delivered_time])
        for owned in range(LANES):
            done = [key for key in sink.delivered[owned] if key.tick < barrier.delivered_time]
            assert done == expected[owned], "R18: all below delivered time is durable"
            assert all(key.tick < min_time for key in sink.delivered[owned])
    add(barrier, left)
    sink.take(barrier.advance(END))
    sink.finish()
    assert sink.delivered == valid(records)
    assert barrier.delivered_time == END
    assert len(barrier) == 0


@settings(max_examples=200)
@given(arrivals(), st.integers(0, 14), st.lists(st.integers(0, 2), max_size=6), st.integers(1, 9), st.integers(1, 9))
def test_after_a_crash_each_lane_goes_on_behind_its_last(
    records: list[Record], crash_at: int, made_durable: list[int], bundle: int, piece: int
) -> None:
    first_life = make(max_bundle_records=2)
    sink = Sink(first_life)
    add(first_life, records)
    sink.take(first_life.advance(crash_at))
    for lane in made_durable:
        sink.done(lane)
    # What is in flight is lost; the log is replayed in other batches, and min time goes other ways.
    second_life = make(last=dict(sink.last), max_bundle_records=bundle)
    sink.barrier, sink.in_flight = second_life, {}
    for start in range(0, len(records), piece):
        second_life.add(batch(records[start : start + piece]))
    for min_time in range(14):
        sink.take(second_life.advance(min_time))
        sink.done(min_time % LANES)
        second_life.check()
    sink.finish()
    assert sink.delivered == valid(records)


@settings(max_examples=300)
@given(
    arrivals(),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(-1, 2))),
    st.integers(1, 9),
    st.integers(1, 5),
)
def test_r20_a_mark_comes_behind_all_that_is_below_it(
    records: list[Record], steps: list[tuple[int, int, int]], size: int, every: int
) -> None:
    barrier = make(max_bundle_records=size, mark_every=every)
    sink, marks, left, min_time = Sink(barrier), dict.fromkeys(range(LANES), -1), list(records), 0

    def done(lane: int) -> None:
        bundle = sink.in_flight.get(lane)
        if bundle is not None and bundle.mark is not None:
            assert bundle.mark > marks[lane]
            assert bundle.mark % every == 0
            marks[lane] = bundle.mark
        sink.done(lane)

    for count, advance, lane in steps:
        add(barrier, left[:count])
        del left[:count]
        min_time = min([min_time + advance, *(key.tick for key, *_ in left)])
        sink.take(barrier.advance(min_time))
        before = dict(marks)
        done(lane)
        barrier.check()
        for owned, bundle in sink.in_flight.items():
            assert all(piece.tick >= before[owned] for piece in bundle.pieces), "nothing follows below a mark"
            assert bundle.mark is None or barrier.delivered_time < bundle.mark, "delivered time waits for marks"
    add(barrier, left)
    sink.take(barrier.advance(END))
    while sink.in_flight:
        done(min(sink.in_flight))
    assert marks == dict.fromkeys(range(LANES), END // every * every), "lanes without records, too"
    assert (sink.delivered, barrier.delivered_time) == (valid(records), END)


def test_r20_a_mark_brings_the_floors_that_it_rests_on() -> None:
    barrier = make(mark_every=50)
    bundles = barrier.advance(120, [Floor(0, 5, 120)])
    assert [(bundle.lane, bundle.mark, bundle.floors) for bundle in bundles] == [
        (lane, 100, (Floor(0, 5, 120),)) for lane in range(LANES)
    ]
    assert barrier.delivered_time < 100
    for lane in range(LANES):
        assert barrier.durable(lane) is None
    assert barrier.delivered_time == 120


def test_r20_partitions_that_a_growth_made_get_the_mark_that_the_others_have() -> None:
    """Where nothing follows, as in a job that is finished, nobody would know that they are complete."""
    barrier = make()
    barrier.mark_lanes(50, 120)
    assert barrier.advance(120) == []
    barrier = make()
    barrier.mark_lanes(50, 120, again=True)
    assert [(bundle.lane, bundle.mark) for bundle in barrier.advance(120)] == [(lane, 100) for lane in range(LANES)]
    for lane in range(LANES):
        assert barrier.durable(lane) is None
    assert barrier.advance(130) == []
    assert [bundle.mark for bundle in barrier.advance(150)] == [150] * LANES


def test_min_time_is_strict() -> None:
    barrier = make()
    barrier.add(items([4, 5, 6]))
    assert [ticks(bundle) for bundle in barrier.advance(5)] == [[4]]
    assert barrier.advance(5) == []


def test_one_bundle_is_in_flight_while_the_next_one_fills() -> None:
    barrier = make()
    barrier.add(items([1, 2]))
    (bundle,) = barrier.advance(2)
    assert (ticks(bundle), bundle.number, bundle.last_key) == ([1], 1, OrderKey(1, 0, 0))
    barrier.add(items([3]))
    assert barrier.advance(3) == []
    assert barrier.advance(4) == []
    assert barrier.delivered_time == 1
    following = barrier.durable(0)
    assert following is not None
    assert (ticks(following), following.number) == ([2, 3], 2)
    assert barrier.delivered_time == 2
    assert barrier.durable(0) is None
    assert barrier.delivered_time == 4


def test_an_empty_lane_moves_with_min_time() -> None:
    barrier = make()
    barrier.advance(50)
    assert barrier.delivered_time == 50
    barrier.advance(40)
    assert barrier.delivered_time == 50, "min time never falls"


def test_a_record_below_what_was_released_is_never_delivered() -> None:
    barrier = make()
    barrier.advance(5)
    with pytest.raises(TimeWentBack, match='tick 4 came to the barrier before "out", where everything below tick 5'):
        barrier.add(items([4]))


def test_a_second_item_with_the_same_order_key_is_an_error() -> None:
    barrier = make()
    barrier.add(batch([(OrderKey(1, 0, 0), 0, False), (OrderKey(1, 0, 0), 0, False)]))
    with pytest.raises(UnmatchedTombstone, match=r'second item .* the barrier before "out"'):
        barrier.advance(2)


def test_floors_go_with_each_lanes_next_bundle_once() -> None:
    first, second = Floor(0, 5, 10), Floor(1, 3, 7, cap=True)
    barrier = make()
    barrier.add(items([1, 2, 3]))
    (bundle,) = barrier.advance(2, [first])
    assert bundle.floors == (first,)
    to_keep = [barrier.floors_to_keep]
    barrier.advance(3, [second])
    following = barrier.durable(0)
    assert following is not None
    assert following.floors == (second,)
    barrier.durable(0)
    assert [*to_keep, barrier.floors_to_keep] == [True, False], "until they are durable in one lane"
    barrier.add(items([3], unit=4))
    (one, other) = barrier.advance(4)
    assert (one.lane, one.floors, other.lane, other.floors) == (0, (), 2, ()), "they are durable, in whichever lane"


def test_a_floor_that_is_only_under_way_in_one_lane_goes_with_the_others_too() -> None:
    """R2: the other lane's bundle may become durable first, and that one never."""
    barrier = make()
    barrier.add(batch([(OrderKey(1, 0, 0), 0, False), (OrderKey(1, 0, 1), 4, False)]))
    one, other = barrier.advance(2, [Floor(0, 5, 10)])
    assert [one.floors, other.floors] == [(Floor(0, 5, 10),)] * 2
    barrier.durable(other.lane)
    barrier.add(items([2], unit=2))
    (third,) = barrier.advance(3)
    assert (third.lane, third.floors) == (1, ())


def test_a_floor_that_rises_takes_the_place_of_what_was_given_before() -> None:
    barrier = make()
    seen = []
    for tick in (10, 20, 30):
        barrier.advance(tick, [Floor(0, 5, tick), Floor(1, tick, tick, cap=True)])
        bundle = barrier.keep_floors()
        assert bundle is not None
        seen.append((bundle.floors[0].tick, bundle.covered))
        barrier.durable(bundle.lane)
    assert seen == [(10, ()), (20, (Floor(0, 5, 10),)), (30, (Floor(0, 5, 20),))]
    barrier.advance(40, [Floor(0, 6, 40)])
    bundle = barrier.keep_floors()
    assert bundle is not None
    assert bundle.covered == (), "offset 5 still goes by the one before"


def test_a_barrier_keeps_no_floor_that_is_durable() -> None:
    barrier = make()
    for offset in range(100):
        barrier.advance(offset + 1, [Floor(0, offset, offset + 1)])
        bundle = barrier.keep_floors()
        assert bundle is not None
        barrier.durable(bundle.lane)
    assert len(barrier._floors) == 0


def test_floors_of_a_quiet_sink_can_be_kept_by_a_bundle_of_their_own() -> None:
    barrier = make(last={0: OrderKey(3, 0, 1)})
    assert barrier.keep_floors() is None
    barrier.advance(100, [Floor(0, 5, 100)])
    bundle = barrier.keep_floors()
    assert bundle is not None
    assert (bundle.lane, len(bundle), bundle.last_key) == (0, 0, OrderKey(3, 0, 1))
    assert bundle.floors == (Floor(0, 5, 100),)
    assert barrier.keep_floors() is None, "they are on their way"
    to_keep = [barrier.floors_to_keep]
    assert barrier.durable(0) is None
    assert [*to_keep, barrier.floors_to_keep] == [True, False]


def test_delivered_time_waits_for_the_floors_that_min_time_rests_on() -> None:
    """R18: what was announced must not be undone by a later life that labels without them."""
    barrier = make()
    barrier.advance(20)
    assert barrier.delivered_time == 20, "what was found at recovery is durable"
    barrier.advance(100, [Floor(0, 5, 100)])
    assert barrier.delivered_time == 20
    assert barrier.keep_floors() is not None
    barrier.advance(150)
    barrier.advance(200, [Floor(0, 5, 200)])
    assert barrier.delivered_time == 20
    barrier.durable(0)
    assert barrier.delivered_time == 150
    barrier.add(items([210]))
    barrier.advance(220)
    barrier.durable(0)
    assert barrier.delivered_time == 220


def test_forgotten_floors_are_not_carried_any_more() -> None:
    barrier = make()
    assert barrier.advance(1, [Floor(0, 1, 1), Floor(0, 5, 10), Floor(1, 3, 7)]) == []
    barrier.forget(0, 6)
    barrier.add(items([1]))
    (bundle,) = barrier.advance(2)
    assert bundle.floors == (Floor(0, 5, 10), Floor(1, 3, 7))


def test_a_lane_has_one_owner() -> None:
    barrier = make(lanes=[0, 1])
    barrier.add(items([1], unit=4))
    with pytest.raises(AssertionError, match=r"lane 2 .* another owner"):
        barrier.advance(2)


EDGES = [
    OrderKey(tick, front, sequence, child, trace)
    for tick in (-(1 << 63), -1, 0, (1 << 63) - 2)
    for front in (-(1 << 31), -1, 0, (1 << 31) - 1)
    for sequence in (-(1 << 63), -1, 0, (1 << 63) - 1)
    for child in ((), (1,), (1, 1), (1, (1 << 32) - 1), (256,), (1 << 31,), ((1 << 32) - 1,))
    for trace in (0, 256, 1 << 63, (1 << 64) - 1)
]


def test_order_keys_at_every_types_edge_are_released_in_order() -> None:
    shuffled = Random(7).sample(range(len(EDGES)), len(EDGES))
    barrier = make()
    for start in range(0, len(EDGES), 100):
        barrier.add(batch([(EDGES[index], 0, False) for index in shuffled[start : start + 100]]))
    (bundle,) = barrier.advance((1 << 63) - 1)
    assert bundle.rows == sorted(EDGES)
    assert bundle.last_key == max(EDGES)


@pytest.mark.parametrize("place", [0, 1, 5, 700, len(EDGES) - 2, len(EDGES) - 1])
def test_a_last_at_every_types_edge_drops_what_it_covers(place: int) -> None:
    ordered = sorted(EDGES)
    barrier = make(last={0: ordered[place]})
    barrier.add(batch([(key, 0, False) for key in EDGES]))
    out = barrier.advance((1 << 63) - 1)
    assert [key for bundle in out for key in bundle.rows] == ordered[place + 1 :]


def test_a_barrier_that_keeps_no_floors_does_not_note_what_rests_on_them() -> None:
    """That of dead letters may have none for ever, while each notice brings a floor."""
    barrier = make(keeps_floors=False)
    for tick in range(1, 100):
        barrier.advance(tick, [Floor(0, 0, tick)])
    assert not barrier._resting
    assert barrier.durable_time == 99


def by_lane(bundle: Bundle) -> dict[int, list[OrderKey]]:
    found: dict[int, list[OrderKey]] = {}
    for piece in bundle.pieces:
        for key, unit in zip(piece.rows, piece.units, strict=True):
            found.setdefault(LANE_OF_UNIT[unit], []).append(key)
    return found


@given(arrivals(), st.integers(1, 9), st.dictionaries(st.integers(0, LANES - 1), keys))
def test_a_strand_gives_each_lane_what_the_lane_alone_would_get(
    records: list[Record], size: int, last: dict[int, OrderKey]
) -> None:
    """R12, R13: in the order of all, however bundles are cut; what a lane had when the life began is left out."""
    apart, strand = make(max_bundle_records=size, last=last), make(max_bundle_records=size, last=last, strand=True)
    wanted: dict[int, list[OrderKey]] = {}
    for barrier in (apart, strand):
        add(barrier, records)
    bundles = apart.advance(END)
    while bundles:
        bundle = bundles.pop()
        wanted.setdefault(bundle.lane, []).extend(bundle.rows)
        bundles += [each for each in [apart.durable(bundle.lane)] if each is not None]
    found: dict[int, list[OrderKey]] = {}
    order: list[OrderKey] = []
    bundles = strand.advance(END)
    while bundles:
        assert len(bundles) == 1, "one bundle for all lanes"
        bundle = bundles.pop()
        assert (bundle.lane, bundle.width) == (0, LANES)
        assert bundle.last_key == bundle.rows[-1], "all up to there is in this bundle, or was in one before"
        order += bundle.rows
        for lane, rows in by_lane(bundle).items():
            found.setdefault(lane, []).extend(rows)
        strand.check()
        bundles += [each for each in [strand.durable(0)] if each is not None]
    assert found == {lane: rows for lane, rows in wanted.items() if rows}
    assert order == sorted(order)
    assert strand.backlog == 0


def test_what_a_strand_has_delivered_each_of_its_lanes_has() -> None:
    """R13: one that had more when the life began keeps it."""
    had = OrderKey(9, 0, 0)
    barrier = make(last={1: had}, strand=True)
    assert (barrier.kept(), barrier.lanes) == ({1: had}, (0, 1, 2))
    barrier.add(items([4, 5], unit=0))
    barrier.add(batch([(OrderKey(4, 1, 0), 2, False)]))
    assert len(barrier.advance(6)) == 1
    assert (barrier.delivered_time, barrier.kept()) == (4, {1: had})
    assert barrier.durable(0) is None
    assert barrier.kept() == {0: OrderKey(5, 0, 1), 1: had, 2: OrderKey(5, 0, 1)}
    assert barrier.delivered_time == 6
    barrier.advance(20)
    assert barrier.kept()[1] == had, "also once min time has passed it"


def test_r20_what_waits_for_other_bundles_holds_back_no_mark_below_it() -> None:
    """While a job catches up, something always waits."""
    barrier = make(strand=True, mark_every=10, max_bundle_records=1)
    barrier.add(items([5, 15, 25]))
    bundles = barrier.advance(47)
    while (bundle := barrier.durable(0)) is not None:
        bundles.append(bundle)
    assert [(ticks(each), each.mark) for each in bundles] == [([5], 10), ([15], 20), ([25], 40)]
    assert barrier.delivered_time == 47


def test_delivered_time_waits_for_a_mark_that_comes_before_the_newest() -> None:
    barrier = make(strand=True, mark_every=1, max_bundle_records=1)
    barrier.advance(5)
    assert barrier.durable(0) is None
    barrier.add(items([7, 7]))
    (bundle,) = barrier.advance(10)
    assert (ticks(bundle), bundle.mark, barrier.delivered_time) == ([7], 7, 6)
    assert barrier.durable(0) is not None
    assert barrier.delivered_time == 7


def test_r20_a_strands_mark_is_that_of_each_of_its_lanes_and_takes_back_none() -> None:
    """In an earlier life with other strands, lane 0 had come to the mark 50, lane 2 to 30, and lane 1 nowhere."""
    last = {0: OrderKey.of(mark_key(50)), 2: OrderKey.of(mark_key(30))}
    barrier = make(last=last, strand=True)
    barrier.mark_lanes(10, 20)
    barrier.add(batch([(OrderKey(24, 0, unit), unit, False) for unit in (0, 2, 4)]))
    (bundle,) = barrier.advance(45)
    assert [LANE_OF_UNIT[unit] for piece in bundle.pieces for unit in piece.units] == [1], "others have had theirs"
    assert (bundle.mark, bundle.width, bundle.last) == (40, LANES, mark_key(40))
    assert barrier.delivered_time == 24
    assert barrier.durable(0) is None
    assert barrier.kept() == {0: last[0], 1: OrderKey.of(mark_key(40)), 2: OrderKey.of(mark_key(40))}
    assert barrier.delivered_time == 45
    again = make(last=barrier.kept(), strand=True)
    again.mark_lanes(10, 20)
    (bundle,) = again.advance(31)
    assert (bundle.mark, bundle.last) == (30, mark_key(40)), "what all of its lanes have had, it has had"


def test_a_strand_of_one_worker_knows_whose_lanes_it_has() -> None:
    barrier = make(lanes=[0, 1], strand=True, max_bundle_records=1)
    barrier.add(items([1], unit=0))
    barrier.add(items([2], unit=4))
    barrier.advance(3)
    with pytest.raises(AssertionError, match="has another owner"):
        barrier.check()
