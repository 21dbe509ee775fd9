"""What the records of a lasts topic say, and what its keys make of it."""

from __future__ import annotations

import re
from itertools import chain, combinations, repeat

import msgspec
import pytest

from lowtide.core.operators.order.order import OrderKey
from lowtide.sinks.contract import LaneName
from lowtide.sinks.kafka import lasts
from lowtide.sinks.kafka.claims import pair_of, transactional_id
from lowtide.sinks.kafka.lasts import LastsUnreadable, records_of, topic_of
from lowtide.sinks.kafka.lasts_records import Archived, Durable, archived_record, durable_of, last_of, owner_record
from lowtide_tracker import Floor

LANE, OTHER, LETTERS = LaneName(1, "out", 3), LaneName(1, "out", 4), LaneName(0, "", 3)
LAST = OrderKey(-(1 << 63), (1 << 31) - 1, (1 << 63) - 1, (1, (1 << 32) - 1), (1 << 64) - 1)
JOBS = ["count", "a_b", "a.b", "a-b", "a.b.last", "a..b", "a/b", "", "é", "x" * 100, "x" * 101, "x" * 102]


def compacted(*records: tuple[bytes, bytes | None]) -> dict[bytes, bytes]:
    """What a reader finds of these at the end, with or without compaction."""
    table: dict[bytes, bytes] = {}
    for key, value in records:
        table.pop(key, None)
        if value is not None:
            table[key] = value
    return table


def test_what_is_written_is_what_is_read() -> None:
    floors = (Floor(0, 7, -5), Floor(2, 9, 1 << 62, cap=True))
    records = [*records_of(LANE, LAST, floors, 5), *records_of(LETTERS, OrderKey(1, 2, 3), (), 5)]
    assert durable_of(compacted(*records), "t") == Durable({LANE: LAST, LETTERS: OrderKey(1, 2, 3)}, floors)


def decoded(data: bytes | None) -> object:
    return None if data is None else msgspec.msgpack.decode(data)


def test_the_form_of_the_records() -> None:
    last, floor, covered = OrderKey(10, 2, 30, (4, 5), 6), Floor(2, 9, 11, cap=True), Floor(2, 9, 10)
    records = records_of(LaneName(1, "out", 3), last, [floor], 8, [covered])
    assert [(decoded(key), decoded(value)) for key, value in records] == [
        ([2, "floor", 2, 9, 11, True], [1, 8]),
        ([2, "floor", 2, 9, 10, False], None),
        ([1, "last", 1, "out", 3], [1, 8, 10, 2, 30, [4, 5], 6]),
    ]
    assert records[2][0].hex() == "9501a46c61737401a36f757403"
    key, value = archived_record(Archived("id", {3: 9, 1: 7}), 8)
    assert (decoded(key), decoded(value)) == ([2, "archived", 8], [1, "id", [[1, 7], [3, 9]]])
    key, value = owner_record("5f")
    assert (decoded(key), decoded(value)) == ([2, "owner"], [1, "5f"])


def test_the_form_of_a_strands_record() -> None:
    strand = LaneName(0, "out", 32, 64)
    ((key, value),) = records_of(strand, OrderKey(10, 2, 30), (), 8)
    assert decoded(key) == [2, "last", 0, "out", 32, 64]
    assert decoded(value) == [1, 8, 10, 2, 30, [], 0]
    assert durable_of({key: value or b""}, "t").last == {strand: OrderKey(10, 2, 30)}


def test_of_a_lane_the_furthest_strand_counts_that_has_all_of_it() -> None:
    """R13."""
    early, late = OrderKey(1, 0, 0), OrderKey(2, 0, 0)
    lane, units = LaneName(0, "out", 1), range(4, 8)
    for last, found in [
        ({}, None),
        ({lane: early}, early),
        ({LaneName(0, "out", 0, 8): late, lane: early}, late),
        ({LaneName(0, "out", 4, 8): early, LaneName(0, "out", 0, 16): late}, late),
        ({LaneName(0, "out", 0, 6): late, LaneName(0, "out", 6, 12): late}, None),
        ({LaneName(0, "else", 0, 8): late, LaneName(1, "out", 0, 8): late, LaneName(0, "out", 2): late}, None),
    ]:
        assert last_of(last, lane, units) == found


def test_a_topic_says_whose_it_is_whatever_else_it_says() -> None:
    records = [owner_record("5f"), *records_of(LANE, LAST, (), 5)]
    assert durable_of(compacted(*records), "t") == Durable({LANE: LAST}, (), owner="5f")
    assert durable_of(compacted(*records[1:]), "t").owner == ""


def test_what_version_1_wrote_of_floors_is_read() -> None:
    """Once per lane, the tick in the value."""
    key, value = [1, "floor", 1, "out", 3, 2, 9, True], [1, 11]
    table = {msgspec.msgpack.encode(key): msgspec.msgpack.encode(value)}
    assert durable_of(table, "t") == Durable({}, (Floor(2, 9, 11, cap=True),))


def test_a_lane_keeps_its_newest_last_and_the_newest_tick_of_each_floor() -> None:
    first = records_of(LANE, OrderKey(1, 0, 1), [Floor(0, 7, 100), Floor(0, 8, 50, cap=True)], 1)
    later = records_of(LANE, OrderKey(2, 0, 2), [Floor(0, 7, 200)], 2)
    table = compacted(*first, *later)
    assert len(table) == 4
    covered = records_of(LANE, OrderKey(2, 0, 2), [Floor(0, 7, 200)], 2, [Floor(0, 7, 100)])
    assert len(compacted(*first, *covered)) == 3
    assert durable_of(compacted(*first, *covered), "t") == durable_of(table, "t")
    assert durable_of(table, "t") == Durable({LANE: OrderKey(2, 0, 2)}, (Floor(0, 7, 200), Floor(0, 8, 50, cap=True)))


def test_floors_are_the_union_over_lanes() -> None:
    one = records_of(LANE, None, [Floor(0, 7, 200), Floor(1, 1, 1)], 1)
    two = records_of(OTHER, None, [Floor(0, 7, 100), Floor(0, 9, 300)], 1)
    for table in (compacted(*one, *two), compacted(*two, *one)):
        assert durable_of(table, "t").floors == (Floor(0, 7, 200), Floor(0, 9, 300), Floor(1, 1, 1))


def test_a_lane_without_a_delivery_has_no_last() -> None:
    assert records_of(LANE, None, (), 1) == []
    assert durable_of(compacted(*records_of(LANE, None, [Floor(0, 0, 5)], 1)), "t").last == {}


def test_a_floor_that_all_lanes_write_is_one_record() -> None:
    """R2: floors are kept once."""
    floor = Floor(0, 7, 100)
    written = [*records_of(LANE, None, [floor], 1), *records_of(OTHER, None, [floor], 1)]
    assert len(compacted(*written)) == 1


def test_a_lane_that_hears_of_a_front_later_takes_back_nothing_that_another_rests_on() -> None:
    """R2: the bundle that rests on tick 200 is durable, then the other lane's, which has heard of 100 alone."""
    quick = records_of(LANE, OrderKey(9, 0, 1), [Floor(0, 7, 200)], 1, [Floor(0, 7, 100)])
    slow = records_of(OTHER, OrderKey(5, 0, 1), [Floor(0, 7, 100)], 1)
    assert durable_of(compacted(*quick, *slow), "t").floors == (Floor(0, 7, 200),)


def test_the_newest_word_on_what_is_archived_counts_whoever_says_it_last() -> None:
    """A life that is over may still say less."""
    later, earlier = (archived_record(Archived("id", below), life) for life, below in ((2, {0: 9, 1: 4}), (1, {0: 5})))
    archived = durable_of(compacted(later, earlier), "t").archived
    assert archived == Archived("id", {0: 9, 1: 4})
    assert [archived.has({0: 9, 1: 4}), archived.has({0: 9}), archived.has({0: 8, 1: 4}), archived.has({})] == [
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ([2, "last", 1, "out", 3], [1, 8, 10, 2, 30, [], 6]),
        ([1, "last", 1, "out", 3], [2, 8, 10, 2, 30, [], 6]),
        ([1, "seen", 1, "out", 3], [1, 8]),
        ([3, "floor", 2, 9, 11, True], [1, 8]),
    ],
)
def test_another_version_is_refused_and_not_skipped(key: object, value: object) -> None:
    with pytest.raises(LastsUnreadable, match=r'"lowtide\.job\.last" has a record that this version'):
        durable_of({msgspec.msgpack.encode(key): msgspec.msgpack.encode(value)}, "lowtide.job.last")
    with pytest.raises(LastsUnreadable):
        durable_of({b"hello": b"\xc1"}, "lowtide.job.last")


def test_each_job_has_a_topic_that_kafka_allows_beside_all_others() -> None:
    topics = [topic_of(job) for job in JOBS]
    assert topics[0] == "lowtide.count.last"
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) for topic in topics)
    # Kafka makes no topic whose name is another one's but for dots and underscores.
    assert not [pair for pair in combinations([topic.replace(".", "_") for topic in topics], 2) if pair[0] == pair[1]]


def test_transactional_ids_name_job_level_and_lane() -> None:
    names = {(job, level, lane) for job in ("a", "a.1", "a.1.1") for level in (0, 1, 11) for lane in (0, 1, 11)}
    assert transactional_id("count", 1, 3) == "lowtide.count.1.3"
    assert len({each for name in names for each in pair_of(transactional_id(*name))}) == 2 * len(names)


@pytest.mark.parametrize(
    ("denials", "within_s", "found"), [(2, 60.0, "id"), (1_000_000, 0.1, None)], ids=["it starts", "it is gone"]
)
def test_a_broker_that_denies_a_topic_for_a_moment_has_not_lost_it(
    denials: int, within_s: float, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = chain(repeat(None, denials), repeat("id"))
    monkeypatch.setattr(lasts, "topic_id", lambda *_: next(answers))
    assert lasts.made_id({}, "lowtide.orders.last", 1.0, within_s) == found
