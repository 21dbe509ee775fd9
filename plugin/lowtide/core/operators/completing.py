"""`call` with `order="answer"`: records go on in the order in which their answers come, which the log decides.

An answer has its record's order key with a later tick: the largest of the record's own, of min time here, of the last
answer's, and of what was relied on before the life. The rest of the key is the record's place in its source, which is
unique and the same in every life; so the key is unique, and a later life finds an answer by its place, and gives it at
the key that was kept.

The step holds nothing at its records' ticks, so a slow call holds back nobody else. Instead it is *due* (R6b), in the
flush with the ack of the record: for a question at the larger of min time and the record's own tick, for an answer at
its tick until it is durable. What waits for room is due at its own tick, so that min time stands, and fronts stop (R8).

Open questions are the step's state. A snapshot at T has the records below T that have no answer yet, or one at T or
above: neither the record nor its answer is read again otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from lowtide.core.operators.call_node import CallNode, Found
from lowtide.core.operators.faults.failure import CallChanged
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.memory import Kept, Scale
from lowtide.core.operators.order.order import FIRST_TICK, tick_bytes, tick_of
from lowtide.core.operators.order.portion import Portion
from lowtide.core.operators.questions import TICK_BYTES, Answer, Answered, Question, asked_of
from lowtide.core.operators.state.group import Key, Touched
from lowtide.core.operators.state.keyed_state import NOTHING
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.steps.steps import Ask

Asked = tuple[bytes, Any]
"""Order key and record."""
RECORD_BYTES = 400
"""About what a record takes beside itself: its order key, its places in a dict and two heaps."""


class CompletingNode(CallNode):
    """One `call` at one worker, whose answers go on in the order in which they come.

    Args:
        vertex: The step; all steps before it look at one record alone (`Segments.certain`).
    """

    def __init__(self, vertex: Vertex[Ask]) -> None:
        super().__init__(vertex)
        self.states = {vertex.name: self}
        self._restored: list[tuple[bytes, int, Any]] = []
        """Those of a snapshot that have not been looked at: order key, hash unit, record."""
        self._ready: list[tuple[bytes, int, Any]] = []
        """A heap of those that wait for room."""
        self._open: dict[bytes, tuple[int, Any]] = {}
        """By order key the hash units and records of open questions."""
        self._open_ats: list[bytes] = []
        """A heap of the keys in `_open`, and of some that have left it."""
        self._leaving: list[Found] = []
        """A heap of answers further ahead than anything that has come: output of an earlier life lies before them."""
        self._answered: list[tuple[bytes, bytes, int, Any]] = []
        """A heap of the answered ones until a snapshot needs them no more: key of the answer, then as `_restored`."""
        self._known: dict[bytes, tuple[bytes, Answer]] = {}
        """By place the answers of earlier lives, with their keys."""
        self._relied_on = self._began = self._now = self._last = self._furthest = FIRST_TICK
        # Min time where it begins; min time until time has ended; the tick of the last answer; the furthest it has met.
        self._ended = False
        self._touched = Touched()
        self._pruned = FIRST_TICK
        self._scale = Scale(thrifty=True)

    # -- as it begins ----------------------------------------------------------------------------------------------

    def rely_on(self, tick: int) -> None:
        """See `CallNode`."""
        self._relied_on = tick

    def know(self, answers: Mapping[bytes, Answer], since: bytes | None = None) -> None:
        """See `CallNode`."""
        self._known.update((at[TICK_BYTES:], (at, answer)) for at, answer in answers.items())

    # -- figures ---------------------------------------------------------------------------------------------------

    @property
    def open_calls(self) -> int:
        """See `CallNode`."""
        return len(self._open)

    @property
    def waiting(self) -> int:
        """See `CallNode`."""
        return len(self._ready) + len(self._restored)

    @property
    def kept(self) -> Kept:
        """The number of records that a snapshot may have, and about how many bytes they take."""
        number = len(self._open) + len(self._answered) + self.waiting
        return Kept("records", number, round((RECORD_BYTES + self._scale.mean) * number))

    # -- records in ------------------------------------------------------------------------------------------------

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Ask about records, as far as there is room."""
        assert batch.flags is None or not any(batch.flags), "what looks at one record alone takes nothing back"
        self._furthest = max(self._furthest, batch.ticks[-1])
        self._touched.add(batch.units, batch.ticks[-1])
        self._begin()
        for record in zip(batch.ats, batch.units, batch.rows, strict=True):
            self._scale.weigh(record[2])
            self._meet(*record)
        self._ask(feed)
        self._leave_now(feed)

    def advance(self, min_time: int, feed: Feed) -> None:
        """See `Holding`; what has no answer stays."""
        self.go_on(min_time, feed, Portion())

    def go_on(self, min_time: int, feed: Feed, portion: Portion) -> int:
        """Go on with what has waited for min time; return the tick below which all is durable."""
        if not self._ended:
            self._now = max(self._now, min_time)
        self._furthest = max(self._furthest, min_time - 1)  # What lies at min time itself is not due yet.
        if self._known and self._outlived:
            self._known.clear()
        if self._log is not None:
            self._log.rest(min_time)
        self._begin()
        self._ask(feed)
        self._leave(feed)
        return self._settled(min_time, feed)

    def first_tick(self) -> int | None:
        """It holds nothing: what it will send is due."""
        return None

    def time_ends(self) -> None:
        """See `Holding`; from now on min time gives no ticks, so each answer is a tick after the last one."""
        self._ended = True

    @property
    def due_tick(self) -> int | None:
        """The smallest tick at which it may send, or have sent what is not durable; None if there is none."""
        dues = [max(self._began, tick_of(at)) for at, *_ in self._ready[:1]]
        dues += [max(self._began, tick_of(min(self._restored)[0]))] if self._restored else []
        first = self._first_open()
        dues += [] if first is None else [self._due_of(first)]
        dues += [tick_of(self._leaving[0][0])] if self._leaving else []
        if self._log is not None:
            waiting, durable = self._log.first_tick, self._log.durable_time
            dues += [] if waiting is None else [waiting]
            dues += [durable] if durable < self._log.released else []
        return min(dues, default=None)

    def _begin(self) -> None:
        """Look at what a snapshot had, once the answers are known."""
        if self._restored:
            restored, self._restored = self._restored, []
            for record in restored:
                self._meet(*record)

    def _meet(self, at: bytes, unit: int, row: Any) -> None:
        """Take one record: it may have an answer."""
        kept, answer = self._known.pop(at[TICK_BYTES:], (b"", None))
        if answer is None:
            heappush(self._ready, (at, unit, row))
            return
        if answer.asked and answer.asked != asked_of(row):
            what = "an earlier life has asked about another record in the place of this one, and kept its answer"
            raise CallChanged(self.vertex, at, row, what)
        self._reuse(kept, at, unit, row, answer)

    def _reuse(self, kept: bytes, at: bytes, unit: int, row: Any, answer: Answer) -> None:
        """Take the answer of an earlier life, at its key; the log has it."""
        self.reused += 1
        self._note(kept, at, unit, row, answer)

    def _ask(self, feed: Feed) -> None:
        """Ask about what waits, in the order of records, as far as there is room."""
        while self._ready and len(self._open) < self._step.concurrency:
            at, unit, row = heappop(self._ready)
            self._open[at] = unit, row
            heappush(self._open_ats, at)
            feed.questions.append(Question(self.vertex.id, at, row))

    # -- answers ---------------------------------------------------------------------------------------------------

    def answered(self, answers: Sequence[Answered], feed: Feed) -> None:
        """See `CallNode`; those that have come together have one tick, unless time has ended."""
        kept: list[bytes] = []
        units: list[int] = []
        rows: list[Any] = []
        for at, answer in answers:
            unit, row = self._open.pop(at)
            if answer.failure is not None and self._step.failed == "raise":
                self._made(at, row, answer)
                raise AssertionError("a failure that is to end the life does")
            self._last = self._tick_of(at)
            kept.append(tick_bytes(self._last) + at[TICK_BYTES:])
            units.append(unit)
            rows.append(answer._replace(asked=asked_of(row)))
            self._note(kept[-1], at, unit, row, rows[-1])
        if self._log is not None:
            self._log.add(Batch(kept, units, rows))
        self._leave_now(feed)

    def _tick_of(self, at: bytes) -> int:
        """The tick of an answer that has come: never below what has been due."""
        return max(tick_of(at), self._relied_on, self._earliest())

    def _due_of(self, at: bytes) -> int:
        """The tick at which a question is due (R6b): of a record ahead of min time, its own."""
        return max(tick_of(at), self._earliest())

    def _earliest(self) -> int:
        """The smallest tick that a further answer may get."""
        if self._last == FIRST_TICK:
            return self._now
        return max(self._now, self._last + self._ended)

    def _first_open(self) -> bytes | None:
        """The lowest key of an open question; None if there is none."""
        while self._open_ats and self._open_ats[0] not in self._open:
            heappop(self._open_ats)
        return self._open_ats[0] if self._open_ats else None

    def _note(self, kept: bytes, at: bytes, unit: int, row: Any, answer: Answer) -> None:
        """Note an answer, with its key."""
        heappush(self._answered, (kept, at, unit, row))
        heappush(self._leaving, (kept, unit, row, answer))
        self._touched.add([unit], tick_of(kept))

    def _leave_now(self, feed: Feed) -> None:
        """Pass answers on, also those at min time itself."""
        self._furthest = max(self._furthest, self._now if self.lead_end is None else min(self._now, self.lead_end - 1))
        self._leave(feed)

    def _leave(self, feed: Feed) -> None:
        """Pass answers on, in order, unless they lie further ahead than anything here: others are to come before."""
        leaving, found = self._leaving, list[Found]()
        while leaving and self._may_leave(tick_of(leaving[0][0])):
            found.append(heappop(leaving))
        if found:
            self._give(found, feed)

    def _may_leave(self, tick: int) -> bool:
        """Return whether an answer lies no further ahead than a front may label (R8)."""
        return tick <= self._furthest

    def _settled(self, min_time: int, feed: Feed) -> int:
        """Hand the log what no further answer comes before; return the tick below which all is durable."""
        reached = min_time if self._cleared is None else min(min_time, self._cleared)
        if self._ended and (self._open or self._ready):
            reached = min(reached, self._earliest())
        self.given = reached
        if self._log is not None:
            feed.kept += [(self._log_vertex, bundle) for bundle in self._log.advance(reached)]
            self.given = min(reached, self._log.sent_time)
            reached = min(reached, self._log.durable_time)
        if self._leaving:
            first = tick_of(self._leaving[0][0])
            self.given, reached = min(self.given, first), min(reached, first)
        due = self.due_tick
        self.first_open = due if due is not None and due < min_time else None
        return reached

    # -- state -----------------------------------------------------------------------------------------------------

    def prune(self, tick: int) -> None:
        """Forget the records whose answers lie below a tick: no snapshot will have them any more."""
        self._pruned = max(self._pruned, tick)
        while self._answered and tick_of(self._answered[0][0]) < tick:
            heappop(self._answered)

    def changed(self, since: int) -> list[int]:
        """The hash units that may have changed at a tick or later."""
        return self._touched.since(since)

    def capture(self, tick: int, since: int = FIRST_TICK) -> dict[int, list[tuple[Key, list[Asked]]]]:
        """Return by hash unit the records below a tick without an answer below it, in order."""
        assert tick >= self._pruned, "the state below a pruned tick is gone"
        end, found = tick_bytes(tick), dict[int, list[Asked]]()
        open_ = ((at, unit, row) for at, (unit, row) in self._open.items())
        for some in (self._restored, self._ready, open_, self._answered_from(end)):
            for at, unit, row in some:
                if at < end:
                    found.setdefault(unit, []).append((at, row))
        units = self.changed(since)
        return {unit: [(unit, sorted(found[unit], key=_key))] if unit in found else [] for unit in units}

    def _answered_from(self, end: bytes) -> Iterator[tuple[bytes, int, Any]]:
        """Yield the records that have an answer at a key or after it."""
        return ((at, unit, row) for kept, at, unit, row in self._answered if kept >= end)

    def look(self, key: Key, tick: int) -> Any:
        """Return the records of one hash unit below a tick without an answer below it; `NOTHING` if there are none."""
        for _, asked in self.capture(tick).get(key, ()):
            return asked
        return NOTHING

    def restore(self, parts: Mapping[int, Iterable[tuple[Key, list[Asked]]]], tick: int) -> None:
        """Take over what `capture(tick)` gave for these hash units."""
        self._pruned = max(self._pruned, tick)
        self._began = self._now = max(self._now, tick)
        for unit, keys in parts.items():
            self._touched.add([unit], tick - 1)
            self._restored += [(at, unit, row) for _, asked in keys for at, row in asked]


def _key(asked: Asked) -> bytes:
    return asked[0]
