"""Clocks and `when_done` at one worker: how far they go at a time, where time ends, and what snapshots have of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from programs import source_rows
from state_flows import Count, Document, size, words
from state_flows import total as counted

import lowtide as lt
from lowtide.assignment.messages import LabelsEnded, LookForLabels
from lowtide.core.fronts.end import end_tick
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.operators.keyed import ended as ended_module
from lowtide.core.operators.order.order import Position, tick_of
from lowtide.core.operators.program import Captured, Program
from lowtide.core.operators.state.keyed_state import NOTHING
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.local.run import Message
from lowtide.worker.key_lookup import KeyLookup
from lowtide_snapshots.format.fingerprint import compare
from lowtide_snapshots.format.parts import PartHead, decode_part, encode_part
from lowtide_tracker import LocalTracker, Notice, Request

SLACK_MS = 2
END = end_tick(SLACK_MS)


def plan_of(every: Any = None, tz: str | None = None) -> Plan:
    flow = lt.Flow("nodes")
    documents = flow.read("documents", lt.kafka("documents", lt.json(Document)))
    flow.clock("clock", every or lt.millis(100), tz=tz).write("moments", lt.kafka("moments", lt.json(lt.Moment)))
    totals = documents.flat_map(words).key_by("key").scan("totals", counted, 0)
    totals.write("totals-out", lt.kafka("totals", lt.json(Count)))
    documents.when_done("done", through=totals).write("done-out", lt.kafka("done", lt.json(Document)))
    labelled = documents.map(size).when_done("labelled", through=totals, label="key", keep=lt.millis(200))
    labelled.write("labelled-out", lt.kafka("labelled", lt.json(Count)))
    documents.map(size, name="both").when_done("two", through=totals, label=("key", "count"))
    return compile_flow(flow, units=8, lanes=1, parallelism=1, slack_ms=SLACK_MS)


class Rig:
    """A reader, and the worker of level 1 that gets all it sends."""

    def __init__(self, plan: Plan, lead_ticks: int = 20, start: int = 0) -> None:
        front = Front(0, FrontLimits(SLACK_MS, Window(10**6, 10**9), 10**12), KnownFloors(start))
        self.reader = WorkerCore(plan, 0, 0, tracker=LocalTracker(0, 1, start=start), front=front)
        self.worker = WorkerCore(
            plan, 1, 0, tracker=LocalTracker(1, 1, start=start), lead_ticks=lead_ticks, max_bundle_records=10**6
        )
        self.segments = list(self.worker.program.segments.inbound)
        self.number = 0
        self.given: dict[str, list[int]] = {}
        """By sink the ticks of what was released."""

    def read(self, documents: Sequence[tuple[int, str]], offset: int = 0) -> None:
        messages = [
            Message(Position(0, offset + place), at_ms, None, msgspec.json.encode(Document(name, "to be")))
            for place, (at_ms, name) in enumerate(documents)
        ]
        if not messages:
            return
        for frame in self.reader.rows(source_rows(messages), 10**12).frames:
            self.worker.frame(frame)

    def come_to(self, inbound: int, lowest: int, request: Request | None = None) -> None:
        """The worker hears of min times: of the segments that fronts feed, and the global one."""
        self.number += 1
        fed = {each for each, above in self.worker.program.segments.inbound.items() if not above}
        times = {each: inbound if each in fed else lowest for each in self.segments}
        notice = Notice(1, self.number, self.number - 1, times, lowest, (), request)
        effects = self.worker.notice(notice)
        while True:
            for sink, bundle in effects.bundles:
                name = self.worker.plan.vertices[sink].name
                self.given.setdefault(name, []).extend(tick_of(at) for piece in bundle.pieces for at in piece.ats)
            if not effects.bundles:
                return
            again = [self.worker.durable(sink, bundle.lane) for sink, bundle in effects.bundles]
            effects.bundles = [each for more in again for each in more.bundles]

    def clock_due(self) -> int | None:
        (node,) = [each for each in self.worker.program.holding if each.vertex.name == "clock"]
        return node.due_tick


def test_after_a_leap_a_clock_strikes_each_multiple_no_further_than_its_lead() -> None:
    rig = Rig(plan_of())
    rig.read([(1_010, "a")])
    assert rig.clock_due() is None, "the sign is held"
    rig.come_to(10_000, 506)
    assert rig.clock_due() == 550, "1,010 ms are tick 505; the next multiple is 1,100 ms"
    rig.come_to(10_000, 540)
    assert rig.clock_due() == 600, "550 is below 540 + 20"
    rig.come_to(10_000, 640)
    assert rig.clock_due() == 700
    rig.come_to(10_000, 10_000)
    assert rig.given["moments"] == [550 + 50 * place for place in range(189)]


def test_where_time_ends_a_clock_stops_at_the_span_of_the_last_sign_be_it_held_or_not() -> None:
    rig = Rig(plan_of())
    rig.read([(1_010, "a"), (1_430, "b")])
    rig.come_to(506, 506)
    assert rig.clock_due() == 550
    assert rig.worker.ready is False
    rig.come_to(END, 550)
    assert rig.clock_due() == 600, "b's sign is held yet"
    rig.come_to(END, 740)
    rig.come_to(END, 760)
    assert rig.clock_due() is None, "all spans with records are over"
    rig.come_to(END, END)
    assert rig.given["moments"] == [550, 600, 650, 700, 750]


def test_a_worker_is_asked_to_go_on_where_time_has_ended() -> None:
    """Though what is due lies further ahead than it may go: it is due no more."""
    rig = Rig(plan_of())
    rig.read([(1_010, "a")])
    rig.come_to(551, 551)
    assert rig.given["moments"] == [550]
    assert rig.clock_due() == 600
    fed = {each for each, above in rig.worker.program.segments.inbound.items() if not above}
    rig.worker.tracker.hear(Notice(1, 9, rig.number, {each: END if each in fed else 551 for each in rig.segments}, 551))
    assert rig.worker.ready
    rig.worker.moved(())
    assert rig.clock_due() is None
    assert not rig.worker.ready


def saved(plan: Plan, captured: Captured, tick: int) -> Captured:
    """Through the bytes of parts."""
    found: Captured = {}
    for name, step in saved_steps(plan, 1).items():
        for unit, entries in captured.get(name, {}).items():
            head = PartHead(plan.name, name, step.kind, unit, tick, plan.slack_ms, "000001-0001")
            _, table = decode_part(encode_part(head, step.table(entries)), head.name)
            found.setdefault(name, {})[unit] = step.entries(table)
    return found


@pytest.mark.parametrize("at", [505, 506, 507, 540, 551, 600])
def test_a_snapshot_has_what_is_still_to_come(at: int) -> None:
    """Of clocks when they strike, of `when_done` the records of the tick before, of labels which have ended."""
    plan = plan_of()
    log = [(1_010, "a"), (1_010, "b"), (1_012, "c"), (1_080, "a"), (1_102, "d")]
    whole = Rig(plan)
    whole.read(log)
    for tick in range(500, 700, 10):
        whole.come_to(tick, tick)
    first = Rig(plan)
    first.read(log)
    first.come_to(at, at, Request(1, at))
    while not first.worker.complete:
        first.come_to(at + 1, at + 1)
    captured = saved(plan, first.worker.snapshot().state, at)
    then = Rig(plan, start=at)
    then.worker.restore(captured, at)
    then.read([each for each in log if each[0] // SLACK_MS >= at], offset=100)
    for tick in range(at, 700, 10):
        then.come_to(tick, tick)
    for sink, ticks in whole.given.items():
        assert then.given.get(sink, []) == [tick for tick in ticks if tick >= at], sink


def test_labels_are_known_from_their_end_on_as_long_as_they_are_kept() -> None:
    rig = Rig(plan_of())
    looking = KeyLookup(rig.worker)

    def ended(*labels: str) -> dict[str, int]:
        answer = looking.look_for_labels(LookForLabels(1, "labelled", list(labels)))
        assert isinstance(answer, LabelsEnded)
        return answer.ended

    rig.read([(1_010, "a"), (1_012, "b")])
    rig.come_to(506, 506)
    assert ended("a", "b") == {}, "its end stands at 506"
    rig.come_to(507, 507)
    assert ended("a", "b", "c") == {"a": 506}
    rig.come_to(520, 520)
    assert ended("a", "b") == {"a": 506, "b": 507}
    rig.read([(1_050, "a")], offset=10)
    rig.come_to(530, 530)
    assert ended("a", "b") == {"a": 526, "b": 507}
    looking = KeyLookup(rig.worker)
    rig.come_to(506 + 101 + 1, 506 + 101 + 1)
    assert rig.worker.program.look("labelled/ended", "b", 608) is NOTHING, "kept for 100 ticks"
    assert rig.worker.program.look("labelled/ended", "a", 608)[1] == 526
    assert looking.look_for_labels(LookForLabels(1, "done", ["a"])).ended == {}, "it has no labels"


def test_a_label_of_several_columns_is_asked_for_by_their_names() -> None:
    rig = Rig(plan_of())
    rig.read([(1_010, "a")])
    rig.come_to(520, 520)
    right, wrong = lt.done("two", {"count": 5, "key": "a"}).text, lt.done("two", {"count": 4, "key": "a"}).text
    assert right == 'done:two:{"count":"5","key":"a"}'
    labels = [each.split(":", 2)[2] for each in (right, wrong)]
    odd = ['{"key":"a","count":5}', '{"key":"a"}', '{"key":"a","count":"x"}', "a", "{"]
    ended = KeyLookup(rig.worker).look_for_labels(LookForLabels(1, "two", [*labels, *odd])).ended
    assert ended == {labels[0]: 506, odd[0]: 506}, "it is written in two ways"


def test_a_label_that_is_waited_for_is_not_forgotten_before_it_is_reported() -> None:
    """Though more log time goes by between two questions than labels are kept for."""
    rig = Rig(plan_of())
    looking = KeyLookup(rig.worker)

    def ended(*labels: str) -> dict[str, int]:
        return looking.look_for_labels(LookForLabels(1, "labelled", list(labels))).ended

    assert ended("a") == {}
    rig.read([(1_010, "a"), (1_012, "b")])
    rig.come_to(5_000, 5_000)
    assert ended("a", "b") == {"a": 506}, "nobody waited for b"
    for _ in range(ended_module.REMEMBERED_QUESTIONS):
        assert ended("b") == {}
    assert ended("a") == {}, "nobody waits for it any more"


def test_where_time_ends_labels_are_not_forgotten_all_at_once() -> None:
    rig = Rig(plan_of())
    rig.read([(1_010, "a"), (1_430, "b")])
    rig.come_to(700, 700)
    rig.come_to(END, 800)
    rig.come_to(END, END)
    ended = KeyLookup(rig.worker).look_for_labels(LookForLabels(1, "labelled", ["a", "b", "c"])).ended
    assert ended == {"b": 716}, "a was forgotten before"


def test_a_clock_that_strikes_otherwise_is_another_step() -> None:
    def shapes(plan: Plan) -> dict[str, Any]:
        return {step.shape.vertex: step.shape for step in saved_steps(plan).values()}

    was, now = shapes(plan_of())["clock"], shapes(plan_of(lt.millis(200)))["clock"]
    assert "is a clock every 200 ms, but was a clock every 100 ms" in str(compare([was], [now], {}))
    zoned = saved_steps(plan_of(lt.hours(1), tz="Europe/Berlin"))["clock"]
    assert zoned.cut_otherwise(zoned.shape, 0) is None


def test_what_is_waited_for_is_never_taken() -> None:
    program = Program(plan_of(), 1)
    through = next(node for node in program._nodes.values() if node.vertex.name == "done/through")
    with pytest.raises(AssertionError, match="not taken"):
        through.take(None, 0, None)  # type: ignore[arg-type]
