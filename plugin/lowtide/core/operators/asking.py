"""`call`: records are asked about once they are certain, and hold min time until what was answered is durable.

A record is *asked about* when it is certain in every life. Behind steps that keep state, min time has passed it, the
floors on which that rests are durable (R2), and nothing before it can end the life, so that somebody corrects it (R6).
Where all steps before the call look at one record alone, it is certain as it comes: whatever tick a later life gives
it, the record is the same, and so is its call key. Its answer goes on at once, at the record's order key, and into the
step's own log through a barrier like a sink's. The step is through with a tick once its answers are durable (R23): only
then do the steps of its level go on, and min time behind it. Sinks whose records become durable no sooner than what the
log was given before them need not wait for that: they go as far as `given`.

A later life is given the answers of the log. It meets the same records with the same order keys, up to the last one
whose answer is durable, as those of a sink. If it does not, as a step before the call has changed, its answers would be
those to other questions, or be kept nowhere: the life ends (`CallChanged`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from lowtide.core.operators.barrier import Barrier
from lowtide.core.operators.call_node import CallNode, Found
from lowtide.core.operators.faults.failure import CallChanged
from lowtide.core.operators.held.pending import Pending
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import tick_of
from lowtide.core.operators.order.portion import Portion
from lowtide.core.operators.questions import Answer, Answered, Question, asked_of
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.steps.steps import Ask


class AskNode(CallNode):
    """One `call` at one worker, whose answers have the places of their records.

    Args:
        vertex: The step.
        at_once: True if its records are certain as they come (`Segments.certain`).
    """

    def __init__(self, vertex: Vertex[Ask], *, at_once: bool = False) -> None:
        super().__init__(vertex)
        self._at_once = at_once
        self._pending = Pending(f'step "{vertex.name}"')
        self._ready: list[tuple[bytes, int, Any]] = []
        """A heap of the records that are certain and not asked about: order key, hash unit, record."""
        self._open: dict[bytes, tuple[int, Any]] = {}
        """By order key the hash units and records of open questions."""
        self._open_ats: list[bytes] = []
        """A heap of the keys in `_open`, and of some that have left it."""
        self._known: dict[bytes, Answer] = {}
        self._since: bytes | None = None
        """The order key from which on the log has all answers; None if nothing is known of it."""

    # -- as it begins ----------------------------------------------------------------------------------------------

    def know(self, answers: Mapping[bytes, Answer], since: bytes | None = None) -> None:
        """See `CallNode`."""
        self._known.update(answers)
        self._since = since

    # -- figures ---------------------------------------------------------------------------------------------------

    @property
    def open_calls(self) -> int:
        """The number of questions without an answer."""
        return len(self._open)

    @property
    def waiting(self) -> int:
        """The number of records that have not been asked about."""
        return len(self._ready) + len(self._pending)

    # -- records in ------------------------------------------------------------------------------------------------

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Hold records; ask about those that are certain, as far as there is room."""
        if self._at_once:
            assert batch.flags is None or not any(batch.flags), "what looks at one record alone takes nothing back"
            self._are_certain(batch)
            self._ask(feed, Portion())
        else:
            self._pending.add(batch)
        self.hold(batch.ticks, feed)

    def advance(self, min_time: int, feed: Feed) -> None:
        """See `Holding`; what has no answer stays."""
        self.go_on(min_time, feed, Portion())

    def go_on(self, min_time: int, feed: Feed, portion: Portion) -> int:
        """Ask about what has become certain, as far as there is room; return the tick below which all is durable."""
        cleared = min_time if self._cleared is None else min(min_time, self._cleared)
        if self._known and self._outlived:
            self._known.clear()
        if self._log is not None:
            self._log.rest(min_time)
        if not self._at_once:
            certain = cleared if self._log is None else min(cleared, self._log.kept_time)
            for batch in self._pending.release(certain):
                self._are_certain(batch)
        # What is certain as it comes waits for room alone, and that bounds it.
        self._ask(feed, Portion() if self._at_once else portion)
        # The log is a sink: what is corrected further up must not give records below what it has (R6).
        return self._settled(cleared if self._at_once else min_time, feed)

    def first_tick(self) -> int | None:
        """The lowest tick that is held and might go on with min time alone; None if nothing is."""
        first = self._pending.first_tick
        if self._at_once and self._log is not None:
            first, open_ = self._log.first_tick, self._first_unanswered()
            if first is not None and open_ is not None and open_ <= first:
                return None
        return first

    def _are_certain(self, batch: Batch) -> None:
        for record in zip(batch.ats, batch.units, batch.rows, strict=True):
            heappush(self._ready, record)

    def _ask(self, feed: Feed, portion: Portion) -> None:
        """Ask about certain records in order, as far as there is room; those with a known answer need none."""
        answered: list[Found] = []
        while self._ready and not portion.spent:
            at, unit, row = self._ready[0]
            answer = self._known.pop(at, None)
            self._check(at, unit, row, answer)
            if answer is None and len(self._open) >= self._step.concurrency:
                break
            portion.spend(1)
            heappop(self._ready)
            if answer is not None:
                self.reused += 1
                answered.append((at, unit, row, answer))
                continue
            self._open[at] = unit, row
            heappush(self._open_ats, at)
            feed.questions.append(Question(self.vertex.id, at, row))
        if answered:
            self._pass(answered, feed)

    # -- answers ---------------------------------------------------------------------------------------------------

    def answered(self, answers: Sequence[Answered], feed: Feed) -> None:
        """See `CallNode`."""
        found = []
        for at, answer in answers:
            unit, row = self._open.pop(at)
            found.append((at, unit, row, answer if self._log is None else answer._replace(asked=asked_of(row))))
        found.sort(key=lambda each: each[0])
        self._pass(found, feed)

    def _settled(self, min_time: int, feed: Feed) -> int:
        """Hand the log what nothing before it is missing of; return the tick below which it is durable."""
        first, waiting = self._first_unanswered(), self._pending.first_tick
        below = min([min_time, *[tick for tick in (first, waiting) if tick is not None]])
        reached = self.given = below
        if self._log is not None:
            reached = self._kept(below, min_time, self._log, feed)
            self.given = min(below, self._log.sent_time)
        self.first_open = reached if reached < min_time else None
        return reached

    def _check(self, at: bytes, unit: int, row: Any, answer: Answer | None) -> None:
        """See that a record is the one that an earlier life has asked about (errors: CallChanged)."""
        if answer is not None:
            if answer.asked and answer.asked != asked_of(row):
                what = "an earlier life has asked about another record in the place of this one, and kept its answer"
                raise CallChanged(self.vertex, at, row, what)
        elif self._log is not None and self._since is not None and at >= self._since and self._log.passed(unit, at):
            what = "an earlier life has not asked about this record, and has kept answers of later ones"
            raise CallChanged(self.vertex, at, row, what)

    def _first_unanswered(self) -> int | None:
        """The lowest tick of a certain record without an answer; None if there is none."""
        while self._open_ats and self._open_ats[0] not in self._open:
            heappop(self._open_ats)
        ticks = [tick_of(ats[0]) for ats in (self._open_ats, [at for at, *_ in self._ready[:1]]) if ats]
        return min(ticks, default=None)

    def _kept(self, below: int, min_time: int, log: Barrier, feed: Feed) -> int:
        """Hand the log what lies below a tick; return the tick below which it is durable."""
        feed.kept += [(self._log_vertex, bundle) for bundle in log.advance(below)]
        first = self._pending.first_tick
        if first is not None and first < min_time and log.kept_time < min_time:
            # Records wait for floors to become durable.
            bundle = log.keep_floors()
            if bundle is not None:
                feed.kept.append((self._log_vertex, bundle))
        return min(below, log.durable_time)

    def _pass(self, found: list[Found], feed: Feed) -> None:
        """Pass answers on, and put them into the log."""
        self._give(found, feed)
        if self._log is not None:
            kept = [each[3] for each in found]
            self._log.add(Batch([each[0] for each in found], [each[1] for each in found], kept))
