"""A worker with a call, without I/O: it is read to, hears of min times and is answered by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from core_rig import Event, notice
from programs import source_rows

from lowtide import Flow, json, kafka, raw, seconds
from lowtide.core.effects import Effects, LastKeys
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.operators.order.bundle import Bundle
from lowtide.core.operators.order.order import Position, tick_of
from lowtide.core.operators.questions import Answer, Answered, Question
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.flow.schema.fields import encode_rows
from lowtide.flow.steps.steps import Ask, CallFailed
from lowtide.local.run import Message
from lowtide_tracker import Floor, LocalTracker, Request

FAILED = Answer(b"", CallFailed("raised OSError: no", 3))


def ask(event: Event) -> Event:
    raise AssertionError("it runs elsewhere")


def instead(event: Event, failure: CallFailed) -> Event:
    if event.number == 13:
        raise ValueError("unlucky")
    return Event(f"{event.key}: {failure.tries} tries", -event.number)


def newest(_: Event, event: Event) -> Event:
    return event


def plan(*, more_levels: bool = False, letters: bool = True, stateful: bool = False, **options: Any) -> Plan:
    """A call, right after the source or, with `stateful`, behind a step for which the order counts."""
    flow = Flow("test", dead_letters=kafka("dead", raw()) if letters else None)
    events = flow.read("events", kafka("events", json(Event)))
    if stateful:
        events = events.key_by("key").reduce("newest-before", newest)
    asked = events.call("ask", ask, timeout=seconds(1), **options)
    asked.write("out", kafka("out", json(Event)))
    if more_levels:
        asked.key_by("number").reduce("newest", newest).write("more", kafka("more", json(Event)))
    return compile_flow(flow, parallelism=1, units=8, lanes=1, slack_ms=1)


class Worker:
    """The worker that asks, with the reader before it; what it has sent out is kept until somebody takes it."""

    def __init__(self, made: Plan | None = None, last: LastKeys | None = None, known: Any = None, **rest: Any) -> None:
        self.plan = made or plan()
        (self.ask,) = self.plan.those(Ask)
        log = self.plan.answers_of(self.ask)
        self.log = -1 if log is None else log.id
        (self.out, *_) = [sink.id for sink in self.plan.sinks()]
        front = Front(0, FrontLimits(1, Window(1000, 10**6), 10**6), KnownFloors(0))
        self.reader = WorkerCore(self.plan, 0, 0, tracker=LocalTracker(0, 1, start=0), front=front)
        self.core = WorkerCore(self.plan, 1, 0, tracker=LocalTracker(1, 1, start=0), last=last, **rest)
        if known is not None:
            self.core.know(self.ask.id, known, min(known))
        self.number = 0
        self.offset = 0
        self.questions: list[Question] = []
        self.bundles: list[tuple[int, Bundle]] = []
        self.frames: list[Any] = []

    def read(self, *events: tuple[int, int]) -> None:
        """Take messages by (tick, number)."""
        values = [msgspec.json.encode(Event("a", number)) for _, number in events]
        messages = [
            Message(Position(0, self.offset + place), tick, None, value)
            for place, ((tick, _), value) in enumerate(zip(events, values, strict=True))
        ]
        self.offset += len(events)
        for frame in self.reader.rows(source_rows(messages), 0).frames:
            self._note(self.core.frame(frame))

    def hear(self, min_time: int, *floors: Floor, request: Request | None = None, cleared: int | None = None) -> None:
        """Hear of a min time, and of another one of the outlet that the call listens to."""
        self.number += 1
        segments = self.core.program.segments
        heard = dict.fromkeys(segments.inbound, min_time)
        if cleared is not None:
            heard[segments.outlet_of[self.ask.id]] = cleared
        said = notice(self.number, min(heard.values()), floors=floors)
        told = msgspec.structs.replace(said, min_times=heard, request=request)
        self._note(self.core.notice(told))

    def answer(self, *numbers: int) -> None:
        """Answer the questions about these numbers; 0 with a failure."""
        found = [next(each for each in self.questions if each.row.number == number) for number in numbers]
        self.give([(each.at, answer_to(each.row.number)) for each in found])

    def give(self, answers: Sequence[tuple[bytes, Answer]]) -> None:
        self.questions = [each for each in self.questions if each.at not in dict(answers)]
        self._note(self.core.answered(self.ask.id, [Answered(*each) for each in answers]))

    def durable(self, sink: int) -> Bundle:
        """Make the oldest bundle of a sink durable, and return it."""
        place = next(place for place, (other, _) in enumerate(self.bundles) if other == sink)
        _, bundle = self.bundles.pop(place)
        self._note(self.core.durable(sink, bundle.lane))
        return bundle

    def numbers(self) -> list[int]:
        """The numbers that are asked about and not answered."""
        return [each.row.number for each in self.questions]

    def folded(self, segment: int) -> list[int]:
        """The ticks of a segment that have changed since the last flush."""
        flush = self.core.flush()
        return [] if flush is None else sorted(tick for other, tick, _ in flush.acks if other == segment)

    def of(self, sink: int) -> list[tuple[int, Any]]:
        """What is under way to a sink, by tick."""
        pieces = [piece for other, bundle in self.bundles if other == sink for piece in bundle.pieces]
        return [(tick_of(at), plain(row)) for piece in pieces for at, row in zip(piece.ats, piece.rows, strict=True)]

    def _note(self, effects: Effects) -> None:
        self.questions += effects.questions
        self.bundles += effects.bundles
        self.frames += effects.frames


def plain(row: Any) -> Any:
    """An answer without the digest of its question; any other record as it is."""
    return row._replace(asked=b"") if isinstance(row, Answer) else row


def answer_to(number: int) -> Answer:
    return FAILED if number in (0, 13) else Answer(encode_rows([Event("answered", 10 * number)]))


def given(*numbers: int) -> list[Event]:
    return [Event("answered", 10 * number) for number in numbers]
