"""From bundles to Kafka's messages, with what the lanes keep of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from stage_rig import Kept, Order, deployment
from staged_to import StagedTo

import lowtide as lt
from lowtide.assignment.deployment import Deployment
from lowtide.core.effects import letters_of
from lowtide.core.operators.faults.failure import Dead
from lowtide.core.operators.order.bundle import NO_KEY, Bundle, Piece
from lowtide.core.operators.order.order import OrderKey, Position
from lowtide.core.operators.questions import Answer
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.own_topics import staged_topic
from lowtide.flow.steps.steps import Answers, CallFailed
from lowtide.sinks.answers.encoder import ASKED, FAILED
from lowtide.sinks.contract import LaneName, Mark, lane_name
from lowtide.sinks.staged.encoder import MARK
from lowtide.worker.figures import Figures, span
from lowtide.worker.outputs import Outputs
from lowtide_tracker import Floor

FLOOR = Floor(0, 5, 40)
MADE = deployment(letters=True)
(SINK,) = MADE.plan.sinks()


def outputs(made: Deployment = MADE) -> tuple[Outputs, Kept, Figures]:
    delivery, figures = Kept({}), Figures()
    fronts = {0: "orders-0"}
    return (
        Outputs(made, level=1, delivery=delivery, figures=figures, fronts=fronts),
        delivery,
        figures,
    )


def bundle(lane: int, *orders: Order, rows: list[Any] | None = None) -> Bundle:
    made: list[Any] = list(orders) if rows is None else rows
    ats = [OrderKey(30, 0, offset, (), 1).packed() for offset in range(len(made))]
    pieces = [Piece(30, ats, made, [64 * lane] * len(made))] if made else []
    return Bundle(lane, 1, pieces, ats[-1] if ats else NO_KEY, (FLOOR,), width=1)


def test_a_strand_writes_its_records_to_their_partitions_and_one_last() -> None:
    """R12, R13: a partition follows from the hash unit, however many lanes there are."""
    plan = replace(MADE.plan, lanes=32)
    given, delivery, _ = outputs(deployment(plan=plan, sink_partitions={"out": 5}))
    units = [64, 127, 65, 90, 77]
    ats = [OrderKey(30, 0, offset, (), 1).packed() for offset in range(5)]
    strand = Bundle(16, 1, [Piece(30, ats, [Order("ann", n) for n in range(5)], units)], ats[-1], (), width=16)
    given.give(next(plan.sinks()).id, strand)
    (packet,) = delivery.packets
    assert [message[1] for message in packet.messages] == [unit * 5 // 128 for unit in units]
    assert packet.lane == 16
    assert packet.mark == Mark(LaneName(0, "out", 64, 128), ats[-1], NO_KEY, ())


def test_a_lane_writes_its_own_partition_with_the_tick_as_timestamp_and_its_last() -> None:
    """R12, R13."""
    given, delivery, _ = outputs()
    one = bundle(1, Order("ann", 1), Order("ann", 2))
    given.give(SINK.id, one)
    (packet,) = delivery.packets
    assert (packet.sink, packet.lane) == (SINK.id, 1)
    assert [message[:3] for message in packet.messages] == [("out", 1, b"ann")] * 2
    assert [message[4] for message in packet.messages] == [30, 30]
    assert packet.mark == Mark(LaneName(0, "out", 64, 128), one.last, NO_KEY, (FLOOR,))


def test_each_piece_has_its_own_ticks_timestamp() -> None:
    """R13."""
    given, delivery, figures = outputs()
    pieces = [
        Piece(tick, [OrderKey(tick, 0, n).packed() for n in range(tick)], [Order("ann", tick)] * tick, [64] * tick)
        for tick in (1, 2, 3)
    ]
    given.give(SINK.id, Bundle(1, 1, pieces, pieces[-1].ats[-1], ()))
    (packet,) = delivery.packets
    assert [message[4] for message in packet.messages] == [1, 2, 2, 3, 3, 3]
    assert [message[3] for message in packet.messages] == [
        b'{"user":"ann","number":%d}' % n for n in (1, 2, 2, 3, 3, 3)
    ]
    assert figures.records_out == 6
    assert span(Bundle(1, 1, pieces, b"", ())) == (1, 3, 6)
    assert span(Bundle(1, 1, [], b"", ())) == (0, 0, 0)


def test_floors_alone_are_kept_too() -> None:
    """R18."""
    given, delivery, figures = outputs()
    given.give(SINK.id, bundle(0))
    (packet,) = delivery.packets
    assert (len(packet.messages), packet.mark) == (0, Mark(LaneName(0, "out", 0, 64), NO_KEY, NO_KEY, (FLOOR,)))
    delivery.settle()
    assert given.settled() == [(SINK.id, 0)]
    assert figures.delivered == 0


def test_r20_staged_records_have_their_log_time_and_a_mark_comes_behind_them_in_each_lane() -> None:
    flow = lt.Flow("shop")
    flow.read("orders", lt.kafka("orders", lt.json(Order))).key_by("user").write(
        "a.b", StagedTo("shelf", Order, "user")
    )
    plan = compile_flow(flow, parallelism=2, lanes=8, slack_ms=10)
    given, delivery, figures = outputs(deployment(plan=plan))
    (sink,) = plan.sinks()
    ats = [OrderKey(30, 0, offset).packed() for offset in (7, 8)]
    rows = [Order("ann", 1), Order("bob", 2)]
    given.give(sink.id, Bundle(4, 1, [Piece(30, ats, rows, [127, 64])], ats[-1], (), mark=50, width=4))
    given.give(sink.id, Bundle(0, 1, [], NO_KEY, (FLOOR,), mark=50, width=4))
    one, other = delivery.packets
    topic = staged_topic("shop", "a.b")
    mark = (None, None, 0, [(MARK, b"500")])
    assert one.messages == [
        (topic, 7, b"ann", b'{"user":"ann","number":1}', 300, None),
        (topic, 4, b"bob", b'{"user":"bob","number":2}', 300, None),
        *((topic, lane, *mark) for lane in (4, 5, 6, 7)),
    ]
    assert other.messages == [(topic, lane, *mark) for lane in (0, 1, 2, 3)]
    assert other.mark == Mark(LaneName(0, "a.b", 0, 64), NO_KEY, NO_KEY, (FLOOR,))
    assert figures.records_out == 2


def scored(order: Order) -> Order:
    return order


def test_new_lanes_write_to_new_partitions_of_what_is_kept_by_lane() -> None:
    """R12: and a part of each lane that there was to the partition that this had; marks come behind their records."""
    flow = lt.Flow("shop")
    orders = flow.read("orders", lt.kafka("orders", lt.json(Order))).key_by("user")
    orders.call("score", scored, timeout=lt.seconds(1)).write("shelf", StagedTo("shelf", Order, "user"))
    plan = replace(compile_flow(flow, parallelism=2, lanes=8), grown=(2, 4))
    given, delivery, _ = outputs(deployment(plan=plan))
    ((sink,), (log,)) = plan.sinks(), plan.those(Answers)
    ats = [OrderKey(30, 0, 7).packed()]
    for lane in range(8):
        given.give(sink.id, Bundle(lane, 1, [Piece(30, ats, [Order("ann", 1)], [16 * lane])], ats[-1], (), mark=50))
        given.give(log.id, Bundle(lane, 1, [Piece(30, ats, [Answer(b"a score")])], ats[-1], ()))
    written = {vertex: [each for each in delivery.packets if each.sink == vertex] for vertex in (sink.id, log.id)}
    for packets, count in ((written[sink.id], 2), (written[log.id], 1)):
        partitions = [{message[1] for message in packet.messages} for packet in packets]
        assert partitions == [{0}, {4}, {2}, {5}, {1}, {6}, {3}, {7}]
        assert {len(packet.messages) for packet in packets} == {count}
        assert [packet.mark.lane.lane for packet in packets if packet.mark is not None] == list(range(8))


def test_answers_are_delivered_as_records_are_and_count_as_none() -> None:
    flow = lt.Flow("shop")
    orders = flow.read("orders", lt.kafka("orders", lt.json(Order))).key_by("user")
    orders.call("score", scored, timeout=lt.seconds(1)).write("out", lt.kafka("out", lt.json(Order)))
    plan = compile_flow(flow, parallelism=2, lanes=2, slack_ms=10)
    given, delivery, figures = outputs(deployment(plan=plan))
    (log,) = plan.those(Answers)
    ats = [OrderKey(30, 0, 7).packed(), OrderKey(30, 0, 8).packed()]
    answers = [Answer(b"a score", asked=b"12345678"), Answer(b"", CallFailed("took too long", 4))]
    given.give(log.id, Bundle(1, 1, [Piece(30, ats, answers)], ats[-1], (FLOOR,)))
    (packet,) = delivery.packets
    topic = "lowtide.shop.answers.score"
    assert packet.messages == [
        (topic, 1, ats[0], b"a score", 300, [(ASKED, b"12345678")]),
        (
            topic,
            1,
            ats[1],
            b'{"what":"took too long","tries":4,"traceback_text":""}',
            300,
            [(ASKED, b""), (FAILED, b"1")],
        ),
    ]
    assert packet.leads, "what was put after it may rest on it"
    assert packet.mark == Mark(LaneName(0, "score/answers", 1), ats[-1], NO_KEY, (FLOOR,))
    delivery.settle()
    assert given.settled() == [(log.id, 1)]
    assert (figures.records_out, figures.delivered, figures.latency.counts) == (0, 0, {})


def test_without_a_topic_for_lasts_nothing_is_kept() -> None:
    given, delivery, _ = outputs(deployment(delivery="at_least_once"))
    given.give(SINK.id, bundle(0, Order("ann", 1)))
    assert [packet.mark for packet in delivery.packets] == [None]


def test_records_count_as_delivered_when_they_are_durable() -> None:
    given, delivery, figures = outputs()
    given.give(SINK.id, bundle(0, Order("ann", 1)))
    given.give(SINK.id, bundle(1, Order("bob", 1), Order("bob", 2)))
    assert (given.settled(), figures.delivered) == ([], 0)
    delivery.settle()
    assert sorted(given.settled()) == [(SINK.id, 0), (SINK.id, 1)]
    assert (given.settled(), figures.delivered) == ([], 3)


@pytest.mark.parametrize("lane", [0, 1, 5])
def test_a_dead_letter_says_where_it_stood_whatever_its_lane(lane: int) -> None:
    given, delivery, figures = outputs()
    dead = [Dead("checked", Position(front, 9), 30, "it is bad", b"key", b"value", None) for front in (0, 3)]
    one = bundle(lane, rows=dead)
    given.give(letters_of(1), one)
    (packet,) = delivery.packets
    assert [message[:5] for message in packet.messages] == [("letters", 0, b"key", b"value", 30)] * 2
    assert [dict(m[5] or [])["lowtide.partition"] for m in packet.messages] == [b"orders-0", b"front 3"]
    assert dict(packet.messages[0][5] or [])["lowtide.error"] == b"it is bad"
    assert packet.mark == Mark(LaneName(1, "", 64 * lane, 64 * lane + 64), one.last, NO_KEY, (FLOOR,))
    assert figures.dead_letters == 2


def test_lanes_of_sinks_and_of_dead_letters_have_different_names() -> None:
    names = [lane_name(SINK, 1, 0), lane_name(SINK, 1, 1), lane_name(None, 1, 0), lane_name(None, 0, 0)]
    assert len(set(names)) == 4
    assert lane_name(SINK, 1, 0) == lane_name(SINK, 2, 0), "a sink's lane keeps its name where its level changes"


def test_the_sinks_are_full_by_records_or_by_their_bytes() -> None:
    """R8: a slow sink holds its source back before large records fill the worker's memory."""
    given, delivery, _ = outputs(deployment(max_queued_bytes=1 << 20))

    def deliver(user: str) -> None:
        given.give(SINK.id, bundle(0, Order(user, 1)))
        delivery.settle()
        given.settled()

    assert not given.full(99_999)
    assert given.full(100_000)
    for _ in range(8):
        deliver("x" * 20_000)
    assert not given.full(20), "some 40 kB each: the user is key and value"
    assert given.full(30)
    for _ in range(8):
        deliver("x")
    assert not given.full(1000), "later ones are small"


def test_what_a_store_has_been_given_and_has_not_taken_waits_for_it() -> None:
    """With all that its barrier holds meanwhile, as one bundle is in flight per lane."""
    given, delivery, _ = outputs()
    assert given.waiting({SINK.id: 0}) == {}
    given.give(SINK.id, bundle(0, Order("ann", 1)))
    given.give(SINK.id, bundle(1, Order("bob", 2)))
    [(name, (records, waits_s))] = given.waiting({SINK.id: 7}).items()
    assert (name, records) == ("out", 7)
    assert 0 <= waits_s < 60
    delivery.settle()
    assert given.settled()
    assert given.waiting({SINK.id: 0}) == {}


def test_records_wait_for_a_store_behind_a_bundle_of_floors_alone() -> None:
    """As when a store goes away while such a bundle is under way: the lane's next one comes only after it."""
    given, _, _ = outputs()
    given.give(SINK.id, bundle(1, rows=[]))
    assert given.waiting({SINK.id: 0}) == {}, "nobody waits"
    assert given.waiting({SINK.id: 7})["out"][0] == 7
