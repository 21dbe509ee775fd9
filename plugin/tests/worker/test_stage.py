"""Workers' stages on messages as the JVM sends them, with a real tracker; what Kafka is given is kept."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Iterator

import pytest
from stage_rig import (
    LIMIT_S,
    NOW,
    Kept,
    Rig,
    Served,
    deployment,
    gauges_of_front,
    id_of,
    kept,
    line_of,
    opened,
    orders,
    packed,
    stage_of,
    tick,
)

from lowtide.assignment.messages import Grant, NewFronts, Reached
from lowtide.core.frames import FrameKind
from lowtide.core.fronts.front import Window
from lowtide.core.operators.faults.limits import Limits
from lowtide.errors import LifeEnded, LowtideError
from lowtide.worker import stage as stage_module
from lowtide.worker.host import KEEP_FLOORS_S
from lowtide_tracker import Flush

FLUSH_S = 0.002
"""By default."""
LATER_S = 1e9
"""A time that the monotonic clock does not come to."""


@pytest.fixture(autouse=True)
def _no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.worker.stage_parts.ExactlyOnce", Kept)


@pytest.fixture
def tracker() -> Iterator[Served]:
    with Served() as served:
        yield served
        assert served.faults == []


@pytest.fixture
def rig(tracker: Served) -> Rig:
    return Rig.of(deployment(), tracker.address)


def test_records_are_delivered_once_and_in_order_when_min_time_has_passed_them(rig: Rig) -> None:
    rig.read(packed(orders(25), 1, tick=5), 1)
    rig.read(packed(orders(25, first=39), 0, tick=3), 0)
    rig.turn()
    assert rig.delivered == [], "R12: nothing below min time yet"
    rig.grant(20)
    rig.until(lambda: len(rig.delivered) >= 50)
    assert sorted(record["number"] for record in rig.delivered) == list(range(14, 64))
    for place in (0, 1):
        messages = kept(rig.stages[f"1/{place}"]).messages
        assert {message[1] for message in messages} == {place}
        assert [message[4] for message in messages] == sorted(message[4] for message in messages)


def test_frames_that_came_together_keep_their_order(tracker: Served) -> None:
    made = deployment(limits=Limits(200_000, 1 << 20, 4))
    source, target = stage_of(made, "0/orders-1", 0, tracker.address), stage_of(made, "1/0", 1, tracker.address)
    frames = [frame for to, frame in source.rows(packed(orders(60)), NOW) if to == 0]
    assert len(frames) > 2
    list(target.frames(frames, NOW))
    assert target.gauges().waiting == sum(len(opened(frame).rows) for frame in frames)


def test_value_and_ticks_of_a_frame_are_what_both_sides_fold(rig: Rig) -> None:
    """R5, over the wire: the acks of a frame cancel out whatever way it went."""
    rig.read(packed(orders(9), tick=5))
    flushes = [stage.core.flush() for stage in rig.stages.values()]
    sums: dict[tuple[int, int], int] = {}
    for flush in flushes:
        if flush is not None:
            for segment, tick, value in flush.acks:
                sums[segment, tick] = sums.get((segment, tick), 0) ^ value
    sent = [opened(frame) for frame in rig.frames]
    assert {tick for head in sent for tick in head.ticks} == {5}
    assert all(head.value for head in sent)
    assert sums == {(1, 5): 0}


def flushes_of(stage: stage_module.LevelStage, monkeypatch: pytest.MonkeyPatch) -> list[Flush]:
    """Frames sent from now on."""
    sent: list[Flush] = []
    line = line_of(stage)
    monkeypatch.setattr(line, "flush", lambda flush: sent.append(flush) if flush is not None else None)
    return sent


def test_flushes_keep_their_distance(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the loop turns."""
    stage = rig.stages["0/orders-1"]
    tick(stage, 100.0)
    stage.host.news(100.0)
    sent = flushes_of(stage, monkeypatch)
    for number in range(10):
        list(stage.rows(packed(orders(1), first=number, tick=5 + number), NOW))
        tick(stage, 100.0 + FLUSH_S * number / 10)
    assert sent == []
    assert 0.0 < stage.host.due_s(100.0 + FLUSH_S * 0.9) <= FLUSH_S / 5
    tick(stage, 100.0 + FLUSH_S * 1.001)
    (flush,) = sent
    assert sorted(at for _, at, _ in flush.acks) == list(range(5, 15))
    assert flush.heartbeats == ((1, 14),), "R5: the heartbeat goes with the acks of what it closes"
    tick(stage, 101.0)
    assert len(sent) == 1, "nothing is left"


@pytest.mark.parametrize("flush_ms", [0.5, 2.0, 8.0])
def test_the_window_bounds_how_long_an_ack_waits_and_how_many_flushes_go(
    tracker: Served, monkeypatch: pytest.MonkeyPatch, flush_ms: float
) -> None:
    """A record each 0.1 ms of a manual clock, for 40 ms: the loop turns whenever one comes."""
    stage = Rig.of(deployment(flush_ms=flush_ms), tracker.address).stages["0/orders-1"]
    stage.core.tracker._max_unacknowledged = 1_000
    tick(stage, 100.0)
    sent = flushes_of(stage, monkeypatch)
    waiting: list[int] = []
    waits: list[int] = []
    for turn in range(1, 401):
        list(stage.rows(packed(orders(1), first=turn - 1, tick=4 + turn), NOW))
        waiting.append(turn)
        flushes = len(sent)
        tick(stage, 100.0 + turn / 9_999.99)
        if len(sent) > flushes:
            waits += [turn - at for at in waiting]
            waiting.clear()
    assert sum(len(flush.acks) for flush in sent) == len(waits) >= 400 - 10 * flush_ms
    assert max(waits) == 10 * flush_ms - 1, "in turns: one that comes right after a flush goes with the next"
    assert len(sent) == 40 / flush_ms


def test_what_cannot_be_flushed_yet_is_flushed_later(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local tracker with too many flushes under way makes no more; what it has is not forgotten."""
    stage = rig.stages["0/orders-1"]
    local = stage.core.tracker
    list(stage.rows(packed(orders(1)), NOW))
    sent = flushes_of(stage, monkeypatch)
    local._max_unacknowledged = 0
    tick(stage, 100.0)
    stage.host.news(100.0)
    assert sent == []
    assert stage.host.due_s(100.0) == pytest.approx(FLUSH_S)
    local._max_unacknowledged = 10
    tick(stage, 100.0 + 2 * FLUSH_S)
    assert [[at for _, at, _ in flush.acks] for flush in sent] == [[5]]


def test_a_grant_counts_only_at_the_offset_that_is_expected(rig: Rig) -> None:
    """R2."""
    stage = rig.stages["0/orders-1"]
    list(stage.rows(packed(orders(3)), NOW))
    for offset, heartbeat in ((2, 5), (4, 5), (3, 50)):
        stage.follow(Grant(1, offset, 50, 0))
        assert gauges_of_front(stage).heartbeat == heartbeat
    list(stage.rows(packed(orders(1), first=3, tick=7), NOW))
    assert len(opened(rig.frames[0] if rig.frames else last_frame(stage)).rows) == 1


def last_frame(stage: stage_module.LevelStage) -> bytes:
    """A frame of one more record."""
    ((_, frame),) = stage.rows(packed(orders(1), first=4, tick=7), NOW)
    assert opened(frame).ticks == [50], "R2: what comes after the grant is labelled no lower"
    return frame


def test_a_lane_has_one_bundle_in_flight(tracker: Served) -> None:
    """R13: the next goes when the one before is durable; `Kept` fails at a second one."""
    rig = Rig.of(deployment(parallelism=1, max_bundle_records=2), tracker.address)
    rig.settling = False
    sink = kept(rig.stages["1/0"])
    rig.read(packed(orders(5)))
    rig.grant(20)
    rig.stages["1/0"].host._kept_s = LATER_S  # No floors alone.
    rig.until(lambda: sink.packets)
    for _ in range(20):
        rig.turn()
    assert len(rig.delivered) == 2
    sink.settle()
    rig.turn()
    assert len(rig.delivered) == 4
    assert rig.stages["1/0"].gauges().delivered_time == 5, "R18"
    rig.settling = True
    rig.until(lambda: rig.stages["1/0"].gauges().delivered_time == 20)
    assert [record["number"] for record in rig.delivered] == [14, 15, 16, 17, 18]


def test_a_bundle_has_all_that_min_time_has_passed_when_the_one_before_is_durable(tracker: Served) -> None:
    """Notices that nothing waited for were left unread; now they decide how old the next bundle's records are."""
    rig = Rig.of(deployment(parallelism=1), tracker.address, hosts=1)
    rig.settling = False
    stage = rig.stages["1/0"]
    host, sink = stage.host, kept(stage)
    rig.read(packed(orders(1)))
    rig.grant(20)
    rig.until(lambda: sink.packets)
    rig.read(packed(orders(1), first=1, tick=30))
    rig.grant(40)
    host.tick(time.monotonic() + FLUSH_S)
    assert host.line is not None
    select.select([host.line.fileno()], [], [], LIMIT_S)
    assert len(rig.delivered) == 1
    sink.settle()
    rig.route(host.settle())
    host.send()
    assert len(rig.delivered) == 2


def test_floors_are_handed_on_though_a_sink_is_idle(rig: Rig) -> None:
    """R18: else time that has passed without records could not be published."""
    stage = rig.stages["1/0"]
    stage.host._kept_s = LATER_S
    rig.grant(20)
    rig.until(lambda: stage.core.min_time == 20)
    tick(stage, stage.host._kept_s + KEEP_FLOORS_S * 0.9)
    assert kept(stage).packets == []
    durable = stage.gauges().delivered_time
    assert durable is not None
    assert durable <= 0, "min time rests on floors that no sink has"
    tick(stage, stage.host._kept_s + KEEP_FLOORS_S * 1.1)
    (packet,) = kept(stage).packets
    assert packet.mark is not None
    assert (len(packet.messages), len(packet.mark.floors)) == (0, 2), "one floor of each front"
    kept(stage).settle()
    tick(stage, time.monotonic())
    assert stage.gauges().delivered_time == 20


def test_nothing_is_lost_while_the_tracker_is_made_anew(tracker: Served, rig: Rig) -> None:
    rig.read(packed(orders(10), tick=5))
    rig.turn()
    tracker.stop()
    rig.until(lambda: all(line_of(stage).fileno() < 0 for stage in rig.stages.values()))
    rig.read(packed(orders(10, first=24), first=10, tick=8))
    rig.grant(20)
    rig.turn()
    assert rig.delivered == []
    tracker.start(range(4))
    rig.until(lambda: len(rig.delivered) >= 20)
    assert sorted(record["number"] for record in rig.delivered) == list(range(14, 34))


def test_frames_flow_on_while_a_line_is_broken(rig: Rig) -> None:
    for number in range(20):
        rig.read(packed(orders(5), first=5 * number, tick=5 + number))
        for stage in list(rig.stages.values())[number % 4 :: 4]:
            if line_of(stage).fileno() >= 0:
                with socket.socket(fileno=os.dup(line_of(stage).fileno())) as connection:
                    connection.shutdown(socket.SHUT_RDWR)
        rig.turn()
    rig.grant(100)
    rig.until(lambda: len(rig.delivered) >= 100)
    assert len(rig.delivered) == 100


def test_a_worker_without_a_line_does_not_spin(tracker: Served, rig: Rig) -> None:
    """The tracker that is being recreated needs the processor."""
    stage = rig.stages["0/orders-1"]
    tracker.stop()
    rig.until(lambda: line_of(stage).fileno() < 0)
    list(stage.rows(packed(orders(1)), NOW))
    tick(stage, now := time.monotonic())
    assert stage.host.due_s(now + 1.0) > FLUSH_S


def test_a_stopped_front_goes_on_when_min_time_does(tracker: Served) -> None:
    """R8: it says that it is not to be read on, and what it has parked comes with a notice."""
    rig = Rig.of(deployment(window=Window(3, 1 << 20)), tracker.address)
    stage = rig.stages["0/orders-1"]
    rig.read(packed([*orders(1)], tick=2))
    rig.read(packed(orders(1), first=1, tick=9))
    assert (stage.pulling(), gauges_of_front(stage).parked, len(rig.frames)) == (False, 1, 1)
    other = rig.stages["0/orders-0"]
    other.follow(Grant(0, 0, 30, 0))
    rig.until(stage.pulling)
    assert (gauges_of_front(stage).parked, len(rig.frames)) == (0, 2)


@pytest.mark.parametrize(("opening", "floors"), [(40, []), (40, [(7, 40)]), (0, [(7, 40)])])
def test_a_front_begins_above_what_the_service_promised_for_it(
    opening: int, floors: list[tuple[int, int]], tracker: Served
) -> None:
    """R2, R3: a heartbeat is never taken back, by nobody."""
    stage = stage_of(deployment(), "0/orders-1", 0, tracker.address, opening=opening, offset=7, floors=floors)
    assert gauges_of_front(stage).heartbeat == 40
    assert stage.host.news(100.0) == [("0/orders-1", Reached(7, 40))]
    ((_, frame),) = stage.rows(packed(orders(1), first=7, tick=5), NOW)
    assert opened(frame).ticks == [40]


def test_the_service_hears_which_offset_is_expected_once(tracker: Served) -> None:
    stage = stage_of(deployment(), "0/orders-1", 0, tracker.address)
    assert stage.host.news(100.0) == [("0/orders-1", Reached(0, 0))]
    assert stage.host.news(200.0) == []
    list(stage.rows(packed(orders(3)), NOW))
    assert stage.host.news(100.0 + stage_module.RECORD_WAKE_S * 2) == []
    ((_, reached),) = stage.host.news(200.0)
    assert reached == Reached(3, gauges_of_front(stage).heartbeat)


def test_the_service_hears_of_a_record_at_once_if_few_come(tracker: Served) -> None:
    """Min time waits for what it grants; of many it hears together, and the loop turns when it is time."""
    stage = stage_of(deployment(), "0/orders-1", 0, tracker.address)
    tick(stage, 100.0)
    stage.host.news(100.0)
    list(stage.rows(packed(orders(1)), NOW))
    ((_, reached),) = stage.host.news(100.0 + stage_module.RECORD_WAKE_S)
    assert reached == Reached(1, gauges_of_front(stage).heartbeat)
    tick(stage, 101.0)
    list(stage.rows(packed(orders(9), first=1), NOW))
    assert stage.host.news(100.0 + stage_module.WAKE_S) == []
    tick(stage, now := 100.0 + stage_module.WAKE_S + stage_module.RECORD_WAKE_S / 2)
    assert stage.host.due_s(now) <= stage_module.RECORD_WAKE_S / 2
    assert len(stage.host.news(100.0 + stage_module.WAKE_S + stage_module.RECORD_WAKE_S)) == 1


def test_a_failed_record_is_named_by_its_partition(rig: Rig) -> None:
    rig.read(packed([*orders(3), {"user": "ann", "number": -1}]))
    rig.grant(20)
    with pytest.raises(LowtideError, match="raised ValueError: negative") as caught:
        rig.until(lambda: False)
    assert "record at orders-1, offset 3" in str(caught.value)
    assert "; order key: tick " in caught.value.where
    assert ", front 1, offset 3, trace " in caught.value.where


def test_a_dead_letter_passes_the_barrier_of_its_level(tracker: Served) -> None:
    """R13: with where it stood, and once min time has passed it."""
    rig = Rig.of(deployment(letters=True), tracker.address)
    source = kept(rig.stages["0/orders-1"])
    rig.read(packed([b"{}", *orders(1), {"user": "ann", "number": -1}]))
    rig.turn()
    assert source.packets == []
    rig.grant(20)
    rig.until(lambda: source.messages)
    headers = [dict(letter[5] or []) for letter in source.messages]
    assert [each["lowtide.offset"] for each in headers] == [b"0", b"2"]
    assert {each["lowtide.partition"] for each in headers} == {b"orders-1"}
    assert [(letter[0], letter[1], letter[4]) for letter in source.messages] == [("letters", 0, 5)] * 2
    assert json.loads(source.messages[1][3] or b"") == {"user": "ann", "number": -1}
    (packet,) = source.packets
    assert packet.mark is not None
    assert packet.mark.last, "with the lane's last"
    assert rig.stages["0/orders-1"].gauges().dead_letters == 2


def test_a_partition_that_appears_is_named_from_then_on(tracker: Served) -> None:
    stage = stage_of(deployment(letters=True), "1/0", 1, tracker.address)
    assert stage._outputs is not None
    stage.follow(NewFronts({2: "orders-2"}))
    assert stage._outputs._fronts[2] == "orders-2"


def test_a_worker_writes_under_the_name_of_its_first_lane(tracker: Served) -> None:
    """W10: every name is claimed by the next life, whatever lanes a worker has."""
    made = deployment(letters=True)
    names = ["0/orders-1", "1/0", "1/1"]
    stages = [stage_of(made, name, number, tracker.address) for number, name in enumerate(names)]
    ids = [id_of(stage) for stage in stages]
    assert len(set(ids)) == 3
    assert [part.rpartition(".")[0][-1] for part in ids] == ["0", "1", "1"]
    assert [part.rpartition(".")[2] for part in ids] == ["1", "0", "1"]


def test_records_of_another_partition_are_refused(tracker: Served) -> None:
    """R10: level-0 state goes by the topic-partition in the rows."""
    stage = stage_of(deployment(), "0/orders-1", 0, tracker.address)
    with pytest.raises(LifeEnded, match="0/orders-1 received records of orders-0"):
        list(stage.rows(packed(orders(1), partition=0), NOW))


def test_an_epochs_end_marks_every_target_and_the_last_level_none(tracker: Served) -> None:
    made = deployment()
    source, target = stage_of(made, "0/orders-1", 0, tracker.address), stage_of(made, "1/0", 1, tracker.address)
    marks = source.end(3, NOW)
    assert [place for place, _ in marks] == [0, 1]
    heads = [opened(frame) for _, frame in marks]
    assert [(mark.kind, mark.value) for mark in heads] == [(FrameKind.MARK, 3)] * 2
    assert list(target.frames([marks[0][1]], NOW)) == []
    assert target.end(3, NOW) == []


def test_an_epoch_whose_last_frames_are_missing_ends_the_life(tracker: Served) -> None:
    made = deployment()
    source, target = stage_of(made, "0/orders-1", 0, tracker.address), stage_of(made, "1/0", 1, tracker.address)
    frames = [frame for to, frame in source.rows(packed(orders(20)), NOW) if to == 0]
    list(target.frames(frames, NOW))
    with pytest.raises(LifeEnded, match="its last frames were lost"):
        target.end(0, NOW)
