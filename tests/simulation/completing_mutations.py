"""Rules of calls that give answers in the order in which they come, broken on purpose: ticks, dues and state."""

from __future__ import annotations

from typing import Any

from lowtide.core.operators.completing import CompletingNode
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.order import FIRST_TICK, tick_of
from lowtide.core.operators.questions import Answer, Answered
from lowtide.core.worker import WorkerCore

from .flow_mutations import OFTEN
from .mutation import Mutation, Patch


def the_records_own_tick() -> list[Patch]:
    """An answer has the tick of its record."""
    return [(CompletingNode, "_tick_of", lambda _self, at: tick_of(at))]


def nothing_due() -> list[Patch]:
    """Nothing is due, whatever is open."""
    return [(CompletingNode, "due_tick", None)]


def due_at_min_time() -> list[Patch]:
    """A question is due at min time alone, also where its record is ahead of what is known of it."""
    return [(CompletingNode, "_due_of", lambda self, _at: self._earliest())]


def due_after_the_ack() -> list[Patch]:
    """What is due is told before a frame is taken, so that it goes into a later flush than the frame's ack."""
    real = WorkerCore.report_due
    before: dict[int, dict[int, int | None]] = {}

    def report_due(self: WorkerCore) -> None:
        told = before.get(id(self), {})
        before[id(self)] = {segment: self.program.due(segment) for segment in self._reports_due}
        if not told:
            real(self)
        for segment, due in told.items():
            self.tracker.due(segment, due, owner=self._owners[segment])

    return [(WorkerCore, "report_due", report_due)]


def no_state() -> list[Patch]:
    """A snapshot has no open questions."""

    def capture(self: CompletingNode, _tick: int, since: int = FIRST_TICK) -> Any:
        return {unit: [] for unit in self.changed(since)}

    return [(CompletingNode, "capture", capture)]


def answered_left_out() -> list[Patch]:
    """A snapshot lacks the records whose answers lie above it."""
    return [(CompletingNode, "_answered_from", lambda _self, _end: iter(()))]


def below_what_was_relied_on() -> list[Patch]:
    """An answer may lie below what an earlier life has delivered."""

    def rely_on(_self: CompletingNode, _tick: int) -> None:
        """Rely on nothing."""

    return [(CompletingNode, "rely_on", rely_on)]


def kept_anew() -> list[Patch]:
    """An answer that is known gets another tick, and is kept once more."""

    def reuse(self: CompletingNode, _kept: bytes, at: bytes, unit: int, row: Any, answer: Answer) -> None:
        self._open[at] = unit, row
        self.answered([Answered(at, answer)], Feed())

    return [(CompletingNode, "_reuse", reuse)]


def ticks_of_infinite_min_time() -> list[Patch]:
    """At the end of time answers go by min time all the same."""

    def time_ends(_self: CompletingNode) -> None:
        """Go on."""

    return [(CompletingNode, "time_ends", time_ends)]


def one_tick_at_the_end() -> list[Patch]:
    """At the end of time all answers have the tick of the last one before."""

    def tick(self: CompletingNode, at: bytes) -> int:
        return max(tick_of(at), self._relied_on, self._now, self._last)

    return [(CompletingNode, "_tick_of", tick)]


def far_ahead() -> list[Patch]:
    """Answers go on however far they lie ahead, as where an earlier life had come further."""
    return [(CompletingNode, "_may_leave", lambda _self, _tick: True)]


def through_before_it_is_durable() -> list[Patch]:
    """The step is through with a tick once its answers have gone on, and they are due no longer."""
    real = CompletingNode.due_tick.fget  # type: ignore[attr-defined]

    def due_tick(self: CompletingNode) -> Any:
        log, self._log = self._log, None
        try:
            return real(self)
        finally:
            self._log = log

    return [(CompletingNode, "due_tick", property(due_tick))]


def completes(name: str, rule: str, what: str, patches: Any, **options: Any) -> Mutation:
    options = {"flow": "call_as_answers_come", "faults": OFTEN, "snapshots": 4} | options
    return Mutation(name, rule, what, "calls", patches, options, seeds=300)


COMPLETING = [
    completes("answer-at-record", "R12", "an answer has the tick of its record", the_records_own_tick),
    completes("question-not-due", "R6b", "nothing is due for open questions", nothing_due),
    completes("question-due-early", "R6b", "a question is due at min time, not at its record", due_at_min_time),
    completes("question-due-late", "R5, R6b", "a due goes into a later flush than the ack", due_after_the_ack),
    completes("questions-forgotten", "R14", "a snapshot has no open questions", no_state),
    completes("answered-forgotten", "R14", "a snapshot lacks what is answered above its T", answered_left_out),
    completes("answer-below", "R3, R12", "an answer lies below what was relied on", below_what_was_relied_on),
    completes("answer-kept-anew", "R23", "known answers are kept once more", kept_anew),
    completes("answer-at-the-end", "R12", "infinite min time gives ticks", ticks_of_infinite_min_time, ending=1.0),
    completes("answers-at-one-tick", "R12", "at the end all answers have one tick", one_tick_at_the_end, ending=1.0),
    completes("answer-due-briefly", "R6b, R23", "an answer is due until it goes on, not until it is durable",
              through_before_it_is_durable),
    completes("answer-far-ahead", "R8", "answers go on however far ahead they lie", far_ahead),
]  # fmt: skip
