"""Loops: what a record gets on its way in, which records go round once more, and which have gone round too often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowtide.core.operators.faults.failure import Failure
from lowtide.core.operators.faults.watch import record_watch
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.keys import key_of
from lowtide.core.operators.order.order import FIRST_TURN, path_of, turns_of, with_child, with_next_turn
from lowtide.core.operators.plain.per_record import call_each, not_bool
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.schema.fields import encode_rows, fits_of, keeps, kept
from lowtide.flow.schema.schema import schema_of
from lowtide.flow.steps.steps import Again
from lowtide_snapshots.errors import KeyRefused
from lowtide_snapshots.keys.hashing import hash_unit

BACK = 1
"""The port at which a head takes what its tail sends back through an exchange."""


class LoopNode(Node):
    """A loop's head: marks every record that enters in its child path (R4).

    Where records stay with their worker each turn appends a mark. Where they change it, one mark stands before the
    number of the turn.
    """

    def __init__(self, vertex: Vertex, *, crosses: bool = False) -> None:
        super().__init__(vertex)
        self._mark = vertex.loop_mark
        self._crosses = crosses

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Pass records on with the loop's mark."""
        mark = self._mark
        if port == BACK:
            ats = [with_next_turn(at, mark) for at in batch.ats]
        elif self._crosses:
            ats = [with_child(with_child(at, mark), FIRST_TURN) for at in batch.ats]
        else:
            ats = [with_child(at, mark) for at in batch.ats]
        self.pass_on(batch.with_ats(ats), feed)


class AgainNode(Node):
    """A loop's tail. Counts a record's turns by the marks in its path: state of its own would not survive a repair.

    Args:
        vertex: The tail.
        plan: The plan.
        head: The loop's head: the node, if what goes round stays with its worker, else the exchange on the way there.
        columns: The key's columns at a head that is the node; None on the way there.
    """

    def __init__(self, vertex: Vertex[Again], plan: Plan, head: Node, columns: Sequence[str] | None) -> None:
        super().__init__(vertex)
        self._function = vertex.step.function
        self._watch = record_watch(vertex)
        self._limit = vertex.step.limit_turns
        self._head = head
        assert vertex.back is not None, "a loop's tail knows its head"
        self._mark = plan.vertices[vertex.back].loop_mark
        self._columns = columns
        self._units = plan.units

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Ask the user's function about every record."""
        rows, watch = batch.rows, self._watch
        looked = None if watch is None else watch.look(rows)
        results, failures = call_each(lambda remaining: map(self._function, remaining), rows)
        if watch is not None:
            watch.check(rows, looked, batch.ats)
        failed = {failure.index for failure in failures}
        again = [False] * len(rows)
        for index, result in zip((i for i in range(len(rows)) if i not in failed), results, strict=True):
            fault = not_bool(result)
            if fault is None and result:
                fault = self._refuse(rows[index], batch.ats[index], batch.units[index])
            if fault is not None:
                failures.append(Failure(index, rows[index], fault))
            again[index] = result is True and fault is None
        failed.update(failure.index for failure in failures)
        if failures:
            failures.sort(key=lambda failure: failure.index)
            self.bury(batch, failures, feed)
        going = [index for index, goes in enumerate(again) if goes]
        if going and self._columns is None:
            self._head.take(batch.pick(going), 0, feed)
        elif going:
            feed.again.append((self._head, self._carried(batch.pick(going))))
        leaving = [index for index, goes in enumerate(again) if not goes and index not in failed]
        if leaving:
            self.pass_on(batch.pick(leaving), feed)

    def _carried(self, batch: Batch) -> Batch:
        """Records as they come out of an exchange: the loop's steps may keep them, and get them back after a crash."""
        record = self.vertex.gives
        return batch if keeps(record) else batch.with_rows(kept(record, batch.rows, encode_rows(batch.rows)))

    def _refuse(self, row: Any, at: bytes, unit: int) -> str | None:
        """Return why a record must not go round again; None if it may."""
        if self._columns is None:
            too_many = turns_of(at, self._mark) >= self._limit
            return too_many_turns(self._limit) if too_many else misfit(self.vertex, row)
        if path_of(at).count(self._mark) >= self._limit:
            return too_many_turns(self._limit)
        try:
            goes_to = hash_unit(key_of(self._columns, row), self._units)
        except KeyRefused as refused:
            return key_refused(refused)
        return key_changed(self._columns) if goes_to != unit else misfit(self.vertex, row)


def too_many_turns(limit: int) -> str:
    """Return the fault of a record that would have to go round once more."""
    return f"needs another turn after {limit} turns, the loop's limit_turns"


def key_changed(columns: Sequence[str]) -> str:
    """Return the fault of a record that would leave its hash unit."""
    return f"goes round the loop again with a different {', '.join(columns)}; a record keeps its key in a loop"


def key_refused(refused: KeyRefused) -> str:
    """Return the fault of a record whose key's value cannot be a key."""
    return f"goes round the loop again with a value that cannot be its key: {refused}"


def misfit(tail: Vertex, record: object) -> str | None:
    """Return the fault of the fields of a record that would go round again; None if they have none."""
    if fits_of(tail.gives)(record):
        return None
    fault = schema_of(tail.gives).fault(record)
    return None if fault is None else f"goes round the loop again with a field of a wrong type: {fault.what}"
