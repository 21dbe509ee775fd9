"""One worker without I/O: what it folds into its tracker, and what it does at a notice (R5, R6, R14, R18)."""

from __future__ import annotations

import msgspec
import pytest
from core_rig import Event, notice, read, reader, total, worker
from msgspec.structs import replace
from programs import source_rows

import lowtide as lt
from lowtide import Flow, json, kafka, millis, raw, tumbling
from lowtide.core.effects import letters_of
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.operators.order.bundle import Bundle
from lowtide.core.operators.order.order import OrderKey, Position
from lowtide.core.worker import WorkerCore
from lowtide.errors import TimeWentBack
from lowtide.flow.plan.compiler import compile_flow
from lowtide.local.run import Message
from lowtide_tracker import Floor, Flush, LocalTracker, Notice, Request


def acks(flush: Flush | None) -> dict[tuple[int, int], int]:
    assert flush is not None
    return {(segment, tick): value for segment, tick, value in flush.acks}


def test_a_frame_is_folded_at_each_of_its_ticks_by_sender_and_receiver_alike() -> None:
    level_0, level_1 = reader(), worker(1, "optimistic")
    (frame,) = read(level_0, [(5, 1), (7, 2)]).frames
    sent = acks(level_0.flush())
    level_1.frame(frame)
    taken = acks(level_1.flush())
    assert sent == {(1, 5): frame.value, (1, 7): frame.value}
    assert {key: value for key, value in taken.items() if key[0] == 1} == sent
    assert sorted(key for key in taken if key[0] == 2) == [(2, 5), (2, 7)], "what it caused is in the same flush (R5)"


def test_what_is_held_keeps_the_next_segment_open_until_it_is_out() -> None:
    """R6: the hold goes with the ack, and goes away with what is emitted."""
    level_0, level_1 = reader(), worker(1)
    (frame,) = read(level_0, [(5, 1), (7, 2)]).frames
    assert level_1.frame(frame).frames == []
    held = acks(level_1.flush())
    assert sorted(held) == [(1, 5), (1, 7), (2, 5), (2, 7)]
    (out,) = level_1.notice(notice(1, 6, 5)).frames
    assert out.ticks == [5]
    assert acks(level_1.flush()) == {(2, 5): held[2, 5] ^ out.value}, "one flush ends the hold and has the frame"


def test_a_frame_below_min_time_is_an_error() -> None:
    level_0, level_1 = reader(), worker(1, "optimistic")
    (frame,) = read(level_0, [(5, 1)]).frames
    level_1.notice(notice(1, 6, 6))
    with pytest.raises(TimeWentBack, match="worker 1/0"):
        level_1.frame(frame)


def test_state_below_a_pinned_tick_stays_until_it_is_captured() -> None:
    """R14: of the worker's own grouping and of its front."""
    level_0, level_1 = reader(), worker(1, "optimistic")
    for frame in read(level_0, [(5, 1), (7, 2), (9, 4)]).frames:
        level_1.frame(frame)
    for core in (level_0, level_1):
        core.notice(replace(notice(1, 10, 10), request=Request(1, 7)))  # As one that was merged.
    (parts,) = level_1.snapshot().state["one"].values()
    assert parts == [("a", 1)]
    assert level_0.snapshot().start == (1, 5)
    for core in (level_0, level_1):
        core.unpin()
    with pytest.raises(AssertionError, match="the state below a pruned tick is gone"):
        level_1.program.capture(9)  # Pruning has gone on.
    level_0.notice(replace(notice(2, 11, 11), request=Request(1, 7)))
    assert level_0.pinned is None, "it was heeded before"
    with pytest.raises(AssertionError, match="R14"):
        level_0.pin(Request(2, 9))


def counted(seen: int, _: Event) -> int:
    return seen + 1


def result(window: lt.Window, seen: int) -> Event:
    return Event(window.key[0], seen)


def test_a_tick_that_is_half_done_is_not_announced_as_over() -> None:
    """R6b, R12, R14, R18: due, barrier, delivered time and snapshot wait until all of its windows have closed."""
    flow = Flow("closing", dead_letters=kafka("dead", raw()))
    windows = flow.read("events", kafka("events", json(Event))).key_by("key").window("w", tumbling(millis(10)))
    counts = windows.fold(counted, 0, result)
    counts.write("out", kafka("out", json(Event)))
    counts.key_by("number").scan("two", total, 0).write("totals", kafka("totals", json(Event)))
    plan = compile_flow(flow, parallelism=1, units=8, lanes=1, slack_ms=1)
    front = Front(0, FrontLimits(1, Window(1000, 10**6), 10**6), KnownFloors(0))
    level_0 = WorkerCore(plan, 0, 0, tracker=LocalTracker(0, 1, start=0), front=front)
    level_1 = WorkerCore(plan, 1, 0, tracker=LocalTracker(1, 1, start=0), portion=1)
    values = [msgspec.json.encode(Event(key, 1)) for key in "abc"]
    messages = [Message(Position(0, place), 5, None, value) for place, value in enumerate(values)]
    for frame in level_0.rows(source_rows(messages), 0).frames:
        level_1.frame(frame)
    began = Notice(1, 1, 0, dict.fromkeys(level_1.program.segments.inbound, 20), 20, (), Request(1, 20))
    effects = level_1.notice(began)
    frames = 0
    while level_1.unfinished:
        assert not level_1.complete
        assert effects.bundles == []
        assert level_1.delivered_time <= 10
        assert level_1.program.first_due == 10
        with pytest.raises(AssertionError, match="R14"):
            level_1.snapshot()
        effects = level_1.moved(())
        frames += len(effects.frames)
    assert frames == 3, "each window's result goes as soon as it has closed"
    ((_, bundle),) = effects.bundles
    assert len(bundle) == 3
    assert level_1.program.first_due is None
    assert not any(level_1.snapshot().state["w"].values()), "all windows below T have closed"


def test_floors_go_with_the_heartbeat_and_with_the_bundle() -> None:
    level_0, level_1, level_2 = reader(), worker(1, "optimistic"), worker(2, "optimistic")
    (frame,) = read(level_0, [(5, 1)]).frames
    level_0.flush()
    floor = Floor(0, 1, 20)
    assert level_0.grant(floor)
    flush = level_0.flush()
    assert flush is not None
    assert (flush.heartbeats, flush.floors) == (((0, 20),), (floor,))
    for sent in level_1.frame(frame).frames:
        level_2.frame(sent)
    ((sink, bundle),) = level_2.notice(notice(1, 20, 20, floors=(floor,))).bundles
    assert bundle.floors == (floor,)
    assert level_2.delivered_time < 5
    assert level_2.durable(sink, bundle.lane).bundles == []
    assert level_2.delivered_time == 20, "R18"


def test_a_failure_acts_when_min_time_has_passed_it() -> None:
    level_0, level_1 = reader(), worker(1)
    (frame,) = read(level_0, [(5, -1)]).frames
    level_1.frame(frame)
    assert level_1.notice(notice(1, 5, 5)).bundles == []
    ((sink, bundle),) = level_1.notice(notice(2, 6, 6)).bundles
    (letter,) = bundle.rows
    assert (sink, letter.vertex, letter.timestamp) == (letters_of(1), "one", 5)


@pytest.mark.parametrize("level", [0, 1])
def test_dead_letters_pass_a_barrier_like_any_output(level: int) -> None:
    """R13, R18: one bundle in flight, delivered time waits for it, and what was delivered is not delivered again."""

    def life(last: dict[tuple[int, int], OrderKey]) -> tuple[WorkerCore, list[tuple[int, Bundle]]]:
        level_0, level_1 = reader(last=last), worker(1, last=last)
        messages = [Message(Position(0, 0), 5, None, b"{}" if level == 0 else b'{"key":"a","number":-1}')]
        for frame in level_0.rows(source_rows(messages), 0).frames:
            level_1.frame(frame)
        core = (level_0, level_1)[level]
        return core, core.notice(notice(1, 6, 6)).bundles

    core, ((sink, bundle),) = life({})
    assert (sink, len(bundle), core.delivered_time) == (letters_of(level), 1, 5)
    assert core.durable(sink, bundle.lane).bundles == []
    assert core.delivered_time == 6
    assert bundle.last_key is not None
    core, bundles = life({(sink, bundle.lane): bundle.last_key})
    assert (bundles, core.delivered_time) == ([], 6)


def test_a_stopped_front_goes_on_when_min_time_does() -> None:
    """R8."""
    level_0 = reader(max_lead=3)
    assert [frame.ticks for frame in read(level_0, [(1, 1), (2, 1), (4, 1)]).frames] == [[1, 2]]
    assert [frame.ticks for frame in level_0.notice(notice(1, 2, 2)).frames] == [[4]]
