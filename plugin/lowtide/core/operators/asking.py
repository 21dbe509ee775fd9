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

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from lowtide.core.operators.barrier import Barrier
from lowtide.core.operators.faults.failure import CallChanged, CallGivenUp, Failure, Fault, raised
from lowtide.core.operators.held.ordered import Holding
from lowtide.core.operators.held.pending import Pending
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import FIRST_TICK, position_of, tick_of
from lowtide.core.operators.order.portion import Portion
from lowtide.core.operators.plain.per_record import said_type
from lowtide.core.operators.questions import Answer, Answered, Question, asked_of
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.schema.fields import decoder_of
from lowtide.flow.steps.steps import Ask, CallFailed
from lowtide_tracker import Floor


class AskNode(Holding):
    """One `call` at one worker.

    Args:
        vertex: The step.
        at_once: True if its records are certain as they come (`Segments.certain`).

    Attributes:
        ask: The step.
        given: The tick below which all is answered, and the answers are in the log or on their way there.
        reused: The number of answers of earlier lives that were used again.
        first_open: The lowest tick whose answers are not all durable; None if there is none.
    """

    def __init__(self, vertex: Vertex[Ask], *, at_once: bool = False) -> None:
        super().__init__(vertex)
        self.ask = vertex
        self._at_once = at_once
        self._step = vertex.step
        self._decode = decoder_of(vertex.gives)
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
        self._cleared: int | None = None
        self._log: Barrier | None = None
        self._log_vertex = -1
        self.given = FIRST_TICK
        self.reused = 0
        self.first_open: int | None = None

    # -- as it begins ----------------------------------------------------------------------------------------------

    def keep_in(self, vertex: int, log: Barrier) -> None:
        """Have answers kept by the barrier of a vertex, which nobody else advances."""
        self._log_vertex, self._log = vertex, log

    def know(self, answers: Mapping[bytes, Answer], since: bytes | None = None) -> None:
        """Take the answers that earlier lives have kept, by order key.

        Args:
            answers: The answers.
            since: The order key from which on none of the log's is missing; None if that is not known.
        """
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

    def rest_on(self, floors: Iterable[Floor], cleared: int | None = None) -> None:
        """Take what is known besides min time.

        Args:
            floors: Those that came with min times.
            cleared: The tick below which nothing before the step can end the life any more; None if nothing can at all.
        """
        self._cleared = cleared
        if self._log is not None:
            self._log.rest_on(floors)

    def advance(self, min_time: int, feed: Feed) -> None:
        """See `Holding`; what has no answer stays."""
        self.go_on(min_time, feed, Portion())

    def go_on(self, min_time: int, feed: Feed, portion: Portion) -> int:
        """Ask about what has become certain, as far as there is room; return the tick below which all is durable."""
        cleared = min_time if self._cleared is None else min(min_time, self._cleared)
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
        answered: list[tuple[bytes, int, Any, Answer]] = []
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
            self._give(answered, feed)

    # -- answers ---------------------------------------------------------------------------------------------------

    def answered(self, answers: Sequence[Answered], feed: Feed) -> None:
        """Take answers to open questions.

        Raises:
            CallGivenUp: one has failed for good, which is to end the life.
        """
        found = []
        for at, answer in answers:
            unit, row = self._open.pop(at)
            found.append((at, unit, row, answer if self._log is None else answer._replace(asked=asked_of(row))))
        found.sort(key=lambda each: each[0])
        self._give(found, feed)

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
                raise CallChanged(self.vertex, position_of(at), row, what)
        elif self._log is not None and self._since is not None and at >= self._since and self._log.passed(unit, at):
            what = "an earlier life has not asked about this record, and has kept answers of later ones"
            raise CallChanged(self.vertex, position_of(at), row, what)

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

    def _give(self, found: list[tuple[bytes, int, Any, Answer]], feed: Feed) -> None:
        """Pass answers on, and put them into the log."""
        ats, units, rows, failed = list[bytes](), list[int](), list[Any](), list[tuple[bytes, int, Fault]]()
        for at, unit, row, answer in found:
            made = self._made(at, row, answer)
            if isinstance(made, Failure):
                failed.append((at, unit, Fault(self.vertex, made, None)))
            else:
                ats.append(at)
                units.append(unit)
                rows.append(made)
        if self._log is not None:
            kept = [each[3] for each in found]
            self._log.add(Batch([each[0] for each in found], [each[1] for each in found], kept))
        if ats:
            self.pass_on(Batch(ats, units, rows), feed)
        if failed:
            feed.fail(Batch([each[0] for each in failed], [each[1] for each in failed], [each[2] for each in failed]))

    def _made(self, at: bytes, row: Any, answer: Answer) -> Any:
        """Return the record of an answer, or a `Failure`."""
        failure = answer.failure
        if failure is None:
            return self._decode(answer.value)[0]
        if self._step.failed == "raise":
            raise CallGivenUp(self.vertex, position_of(at), given_up(row, failure))
        return instead_of(self.ask, row, failure)


def given_up(row: Any, failure: CallFailed) -> Failure:
    """Return the failure of a record whose call has failed for good."""
    return Failure(0, row, f"{failure.what} (try {failure.tries})", failure.traceback_text)


def instead_of(ask: Vertex[Ask], row: Any, failure: CallFailed) -> Any:
    """Return what goes on in the place of an answer that has failed for good, or a `Failure`."""
    otherwise = ask.step.otherwise
    if otherwise is None:
        return given_up(row, failure)
    try:
        result = otherwise(row, failure)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
        return raised(0, row, error)
    if type(result) is ask.gives:
        return result
    return Failure(0, row, f"otherwise returned {said_type(result)}, expected {ask.gives.__qualname__}")
