"""What may end the life is passed by no sink: once it is corrected, all that it gives is delivered (R6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from programs import by_lane, source_rows
from proto_messages import add_field, generated_by

from lowtide import Flow, json, kafka, protobuf, raw
from lowtide.core.effects import Effects, Frame
from lowtide.core.ending_faults import Ending
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.operators.faults.failure import Failure, Fault, MessageRefused, NotWritable, TooLarge, UserError
from lowtide.core.operators.faults.limits import Limits
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import OrderKey, Position
from lowtide.core.operators.order.unmatched import UnmatchedTombstone
from lowtide.core.operators.plain.sink import SinkEncoder
from lowtide.core.worker import WorkerCore
from lowtide.errors import LowtideError
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.flow.plan.segments import segments_of
from lowtide.flow.schema.fields import kept
from lowtide.local.run import Message, run_log
from lowtide_tracker import Floor, Graph, LocalTracker, Tracker

COUNT = 12
BAD = 4
"""The document that something is wrong with."""
WORKERS = 2
END_TICK = 5_000
SMALL, LARGE = Limits(1 << 20, 400, 100), Limits(1 << 20, 4_000, 100)


@dataclass(frozen=True)
class Doc:
    number: int
    text: str = ""


@dataclass(frozen=True)
class Word:
    word: str
    number: int
    text: str


def _narrow(_file: Any, message: Any) -> None:
    for name, kind in (("word", "string"), ("number", "int32"), ("text", "string")):
        add_field(message, name, kind)


NARROW = generated_by(_narrow)


def sound(record: Any) -> None:
    """Nothing is wrong with it."""


def broken(record: Any) -> None:
    if record.number == BAD:
        raise ValueError("a case nobody thought of")


def flow_of(bad: str, *, letters: bool = False) -> Flow:
    """Sinks at two levels; in the step that is called `bad` something is wrong with one document."""
    checks: dict[str, Callable[[Any], None]] = dict.fromkeys(("words", "batches", "one", "two"), sound)
    checks[bad] = broken

    def words(doc: Doc) -> Iterator[Word]:
        checks["words"](doc)
        if bad == "upstream" and doc.number == BAD:
            yield Word("w0", -1, doc.text)
            return
        for place in range(6):
            number = 2**31 if bad == "wide" and doc.number == BAD else doc.number
            yield Word(f"w{(doc.number + place) % 9}", number, doc.text)

    def batches(batch: pa.RecordBatch) -> pa.RecordBatch:
        for number in batch.column("number").to_pylist():
            checks["batches"](Doc(number))
        return batch

    def one(state: int, word: Word) -> tuple[int, Word]:
        checks["one"](word)
        return state + 1, Word(f"{word.word}{state}", word.number, word.text)

    def two(state: int, word: Word) -> tuple[int, Word]:
        checks["two"](word)
        if word.number < 0:
            raise ValueError("no such number")
        return state + word.number, replace(word, number=state + word.number)

    flow = Flow("test", dead_letters=kafka("dead", raw()) if letters else None)
    docs = flow.read("docs", kafka("docs", json(Doc)))
    stream = docs.flat_map(words).map_batches(batches, Word)
    ones = stream.key_by("word", name="by-word").scan("one", one, 0)
    ones.write("ones", kafka("ones", protobuf(Word, NARROW)))
    twos = ones.key_by("number", name="by-number").scan("two", two, 0)
    twos.write("twos", kafka("twos", json(Word)))
    return flow


def plan_of(bad: str, *, letters: bool = False) -> Plan:
    return compile_flow(flow_of(bad, letters=letters), parallelism=WORKERS, lanes=WORKERS, units=16)


def messages_of(bad: str) -> list[Message]:
    texts = {BAD: b"x" * 1_000} if bad == "size" else {}
    values = [b'{"number":%d,"text":"%s"}' % (number, texts.get(number, b"")) for number in range(COUNT)]
    if bad == "message":
        values[BAD] = b'{"number":4.5}'
    return [Message(Position(0, place), 1_000 + place * 10, None, value) for place, value in enumerate(values)]


Todo = tuple[tuple[int, int], Callable[[], Effects]]
"""Actions by worker (level, place)."""


class Job:
    """Lives in one process: each hears what the tracker says as soon as it can, and nobody waits for anybody."""

    def __init__(self) -> None:
        self.delivered: dict[tuple[str, int], list[bytes | None]] = {}
        self.letters = 0
        self.last: dict[tuple[int, int], OrderKey] = {}
        self.lives = 0

    def live(
        self, plan: Plan, messages: list[Message], *, grouping: str = "optimistic", limits: Limits = SMALL
    ) -> LowtideError | None:
        """One life, to its end or until nothing moves any more; what it ended with."""
        self.lives += 1
        tracker = Tracker(Graph(segments_of(plan).inbound), {0: 0}, start=0, capacity_ticks=10**6)
        hosts = [LocalTracker(number, self.lives, start=0) for number in range(WORKERS)]
        cores = self._cores(plan, hosts, grouping, limits)
        reader = cores[0, 0]
        error: LowtideError | None = None
        todo: list[Todo] = [((0, 0), lambda: reader.rows(source_rows(messages), 10**4))]
        while todo:
            who, what = todo.pop(0)
            if who in cores:
                try:
                    todo += self._spread(plan, cores, cores[who], what())
                except LowtideError as caught:
                    error = error or caught
                    del cores[who]  # The others do not know of it yet, and go on.
            if not todo:
                reader.grant(Floor(0, len(messages), END_TICK))
                reader.report()
                todo += self._announced(tracker, hosts, cores)
        if error is None:
            assert tracker.global_min == END_TICK, f"liveness: {tracker.holder()}"
        return error

    def _cores(
        self, plan: Plan, hosts: list[LocalTracker], grouping: str, limits: Limits
    ) -> dict[tuple[int, int], WorkerCore]:
        """The workers: each host has one of every level, and the first also that of the front."""
        front = Front(0, FrontLimits(plan.slack_ms, Window(10**5, 1 << 26), 10**6), KnownFloors(0))
        common: dict[str, Any] = {"last": self.last, "limits": limits, "grouping": grouping}
        cores = {(0, 0): WorkerCore(plan, 0, 0, tracker=hosts[0], front=front, **common)}
        for level in range(1, plan.levels):
            for place, host in enumerate(hosts):
                cores[level, place] = WorkerCore(plan, level, place, tracker=host, **common)
        return cores

    def _announced(
        self, tracker: Tracker, hosts: list[LocalTracker], cores: Mapping[tuple[int, int], WorkerCore]
    ) -> list[Todo]:
        """All hosts flush, then all hear what that came to."""
        notices = [notice for host in hosts if (flush := host.flush()) for notice in tracker.receive(flush)]
        for host in hosts:
            for notice in notices:
                host.hear(notice)
        return [(place, partial(core.moved, ())) for place, core in cores.items()] if notices else []

    def _spread(
        self, plan: Plan, cores: Mapping[tuple[int, int], WorkerCore], core: WorkerCore, effects: Effects
    ) -> list[Todo]:
        """Send what a worker gives: frames to come, and what the sinks are given."""
        todo: list[Todo] = []
        for frame in effects.frames:
            frame.batch = frame.batch.with_rows(
                kept(plan.vertices[frame.vertex].gives, frame.batch.rows, frame.payload)
            )
            to = core.level + 1, frame.target
            if to in cores:
                todo.append((to, partial(cores[to].frame, frame)))
        bundles = list(effects.bundles)
        while bundles:
            sink, bundle = bundles.pop(0)
            if sink < 0:
                self.letters += len(bundle)
            else:
                (vertex,) = (each for each in plan.sinks() if each.id == sink)
                sent = SinkEncoder(vertex, plan.slack_ms).encode(bundle.lane, bundle.pieces)
                self.delivered.setdefault((vertex.name, bundle.lane), []).extend(message[3] for message in sent)
            if bundle.last_key is not None:
                self.last[sink, bundle.lane] = bundle.last_key
            bundles += core.durable(sink, bundle.lane).bundles
        return todo


def order_key(tick: int, offset: int) -> bytes:
    return OrderKey(tick, 0, offset, (), 1).packed()


def expected(plan: Plan, messages: list[Message]) -> dict[tuple[str, int], list[bytes | None]]:
    delivered, _ = run_log(plan, {"docs": messages}, [])
    lanes = by_lane(delivered)
    return {(sink, lane): [value for _, value, _ in found] for sink in lanes for lane, found in lanes[sink].items()}


CAUSES: list[tuple[str, type[LowtideError]]] = [
    ("words", UserError),
    ("batches", UserError),
    ("one", UserError),
    ("two", UserError),
    ("upstream", UserError),
    ("message", MessageRefused),
    ("size", TooLarge),
    ("wide", NotWritable),
]


@pytest.mark.parametrize("grouping", ["optimistic", "ordered"])
@pytest.mark.parametrize(("bad", "error"), CAUSES)
def test_what_ends_a_life_is_delivered_once_it_is_corrected(bad: str, error: type[LowtideError], grouping: str) -> None:
    job = Job()
    wrong = messages_of(bad)
    caught = job.live(plan_of(bad), wrong, grouping=grouping, limits=SMALL)
    assert isinstance(caught, error)
    early = {place: list(values) for place, values in job.delivered.items()}
    assert early or grouping == "ordered", "what lies before it is delivered, unless it was still held"
    if bad == "message":  # As if the dataclass were what is mended.
        wrong[BAD] = replace(wrong[BAD], value=b'{"number":4}')
    assert job.live(plan_of("nothing"), wrong, grouping=grouping, limits=LARGE) is None
    want = expected(plan_of("nothing"), wrong)
    assert job.delivered == want
    at = 1_000 + BAD * 10
    for sink in ("ones", "twos"):
        before = sum(len(values) for (name, _), values in early.items() if name == sink)
        assert before <= BAD * 6, f"no lane of {sink} has passed {at} ms"


def test_with_dead_letters_only_what_map_batches_cannot_do_ends_a_life() -> None:
    plan, messages = plan_of("batches", letters=True), messages_of("message")
    job = Job()
    assert job.live(plan, messages) is None
    assert job.letters == 1, "the very message that it would have failed with"
    messages = messages_of("nothing")
    job = Job()
    assert isinstance(job.live(plan, messages), UserError)
    assert job.live(plan_of("nothing", letters=True), messages) is None
    assert (job.delivered, job.letters) == (expected(plan_of("nothing"), messages), 0)


def folded(tracker: LocalTracker) -> list[int]:
    """The ticks of the outlet that the next flush speaks of."""
    flush = tracker.flush()
    return [] if flush is None else [tick for segment, tick, _ in flush.acks if segment == 3]


def test_a_fault_that_is_taken_back_lets_its_tick_go_in_the_turn_that_takes_it_back() -> None:
    plan, tracker = plan_of("one"), LocalTracker(0, 1, start=0)
    ending = Ending("worker 1/0", tracker, segments_of(plan).outlets)
    ats = [order_key(tick, offset) for tick, offset in ((5, 1), (5, 2), (7, 3))]
    fault = Fault(plan.vertices[1], Failure(0, None, "raised"), None)
    items = Batch(ats, [0] * 3, [fault] * 3)
    ending.add(items)
    assert (ending.first_tick, sorted(folded(tracker))) == (5, [5, 7])
    ending.act(5)
    ending.add(Batch(ats[:1], [0], [fault], [True]))
    ending.add(Batch(ats[2:], [0], [fault], [True]))
    assert sorted(folded(tracker)) == [5, 7], "one of two at tick 5, the only one at tick 7"
    ending.add(Batch(ats[1:2], [0], [fault], [True]))
    ending.add(Batch(ats[1:2], [0], [fault]))
    ending.add(Batch(ats[1:2], [0], [fault], [True]))
    assert folded(tracker) == [5]
    ending.act(6)
    ending.act(8)
    assert ending.first_tick is None


def test_the_first_fault_of_the_lowest_tick_is_the_one_that_is_reported() -> None:
    plan, tracker = plan_of("one"), LocalTracker(0, 1, start=0)
    ending = Ending("worker 1/0", tracker, segments_of(plan).outlets)
    fault = Fault(plan.vertices[1], Failure(0, None, "raised"), None)
    for tick, offset in ((7, 1), (5, 9), (5, 8)):
        ending.add(Batch([order_key(tick, offset)], [0], [fault]))
    ending.act(5)
    with pytest.raises(UserError) as caught:
        ending.act(8)
    assert caught.value.position == Position(0, 8)


def test_a_tombstone_without_its_fault_names_the_functions() -> None:
    plan, tracker = plan_of("one"), LocalTracker(0, 1, start=0)
    ending = Ending("worker 1/0", tracker, segments_of(plan).outlets)
    fault = Fault(plan.vertices[1], Failure(0, None, "raised"), None)
    ending.add(Batch([order_key(5, 1)], [0], [fault], [True]))
    assert folded(tracker) == [], "there is nothing to let go"
    with pytest.raises(UnmatchedTombstone, match="faults of worker 1/0"):
        ending.act(6)


@pytest.mark.parametrize("grouping", ["optimistic", "ordered"])
def test_without_faults_nothing_is_folded_for_them(grouping: str) -> None:
    plan, tracker = plan_of("nothing"), LocalTracker(0, 1, start=0)
    core = WorkerCore(plan, 1, 0, tracker=tracker, grouping=grouping)
    exchange = next(vertex for vertex in plan.exchanges() if vertex.level == 1)
    at, word = order_key(5, 1), Word("w0", 1, "")
    frames = core.frame(Frame(exchange.id, 0, 77, [5], Batch([at], [0], [word]), b"")).frames
    flush = tracker.flush()
    assert flush is not None
    segments = sorted(segment for segment, _, _ in flush.acks)
    assert segments == [1, 2], "its own ack, and what it sends or holds"
    assert len(frames) == (grouping == "optimistic")
