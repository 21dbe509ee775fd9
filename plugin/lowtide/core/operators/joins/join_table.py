"""`join_table`: every record with its key's row of a table at the record's position in the order.

A late row would change every later record of its key, so the step always runs in order: it holds the input of both
ports until nothing before it can come any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from lowtide.core.operators.faults.failure import Failure, Fault
from lowtide.core.operators.held.ports import PortsNode, in_turn
from lowtide.core.operators.joins.pairing import Pairing
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.keys import meets_nothing
from lowtide.core.operators.order.memory import Kept, Scale
from lowtide.core.operators.order.order import position_of, tick_of
from lowtide.core.operators.state.group import Group, Key
from lowtide.core.operators.state.keyed_state import ValueState
from lowtide.core.operators.state.shelf import Shelf
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.schema.fields import key_of
from lowtide.flow.steps.steps import JoinTable

RECORDS, ROWS = 0, 1
"""The ports."""
ROW_BYTES = 350
"""About what a row takes beside itself, its key among it."""


class TableNode(Node):
    """Hands the records of a table to the joins that look at it: each keeps the rows of its own place in the order."""

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Pass records on."""
        self.pass_on(batch, feed)


class TableJoinNode(PortsNode, ValueState):
    """One `join_table`, of one worker's hash units.

    Elements of a key are (order key, row from there on, None for none) since the prune time.

    Args:
        vertex: The step.
        plan: The plan.
        ttl: After how many ticks without a record a key has no row any more; None for never.
    """

    def __init__(self, vertex: Vertex[JoinTable], plan: Plan, ttl: int | None) -> None:
        PortsNode.__init__(self, vertex, 2)
        ValueState.__init__(self, ttl)
        self._keys = [key_of(plan.key_of(vertex, port)) for port in (RECORDS, ROWS)]
        deleted = vertex.step.table.deleted
        self._deleted = None if deleted is None else attrgetter(deleted)
        self._inner = vertex.step.how == "inner"
        self._pairing = Pairing(vertex, [plan.vertices[parent].gives for parent in vertex.parents])
        self._scale = Scale()
        self.states = {vertex.name: self}

    @property
    def kept(self) -> Kept:
        """Return the number of rows and their approximate memory, with those that have gone but still wait."""
        return Kept("rows", len(self._groups), round((ROW_BYTES + self._scale.mean) * len(self._kept)))

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Hold records of one port."""
        super().take(batch, port, feed)
        if port == ROWS:
            self._touched.add(batch.units, batch.ticks[-1])

    def advance(self, min_time: int, feed: Feed) -> None:
        """Process everything below the level's min time, in order: outputs, then faults."""
        batches = self.released(min_time)
        records, rows = batches
        if self._shelf is not None:
            self._admit(self._shelf, batches)
        outs, failures, changed = dict[int, Any](), dict[int, Failure](), list[Group]()
        for at, port, index in in_turn(batches):
            if port == ROWS and rows is not None:
                changed += self._put(at, rows.units[index], rows.rows[index])
            elif records is not None:
                record = records.rows[index]
                row = self._row(self._keys[RECORDS](record), tick_of(at))
                if row is not None or not self._inner:
                    out, failure = self._pairing(record, record, row, position_of(at))
                    if failure is None:
                        outs[index] = out
                    else:
                        failures[index] = failure
        if rows is not None:
            self._kept.touch(rows.ticks[-1], changed)
        if records is not None and outs:
            self.pass_on(records.pick(list(outs)).with_rows(list(outs.values())), feed)
        if records is not None and failures:
            faults = [Fault(self.vertex, failure, None) for failure in failures.values()]
            feed.fail(records.pick(list(failures)).with_rows(list[Any](faults)))

    def _admit(self, shelf: Shelf, batches: Sequence[Batch | None]) -> None:
        """Bring the rows into memory that the records of either port ask for, or take the place of."""
        keys, units = list[Key](), list[int]()
        for port, batch in enumerate(batches):
            if batch is not None:
                keys += map(self._keys[port], batch.rows)
                units += batch.units
        if any(map(meets_nothing, keys)):
            some = [(key, unit) for key, unit in zip(keys, units, strict=True) if not meets_nothing(key)]
            keys, units = [key for key, _ in some], [unit for _, unit in some]
        shelf.at_rest.use(keys)
        shelf.admit(keys, units)

    def _put(self, at: bytes, unit: int, row: Any) -> list[Group]:
        """Take a row; return its group, or none where no record can have its key."""
        key = self._keys[ROWS](row)
        if meets_nothing(key):
            return []
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key, unit, None)
        self._scale.weigh(row)
        gone = self._deleted is not None and self._deleted(row)
        group.put(at, None if gone else row)
        return [group]

    def _row(self, key: Key, tick: int) -> Any:
        """The row of a key for a record of a tick, after all rows before it; None if it has none."""
        group = None if meets_nothing(key) else self._groups.get(key)
        if group is None or (self._ttl is not None and tick - group.newest_tick() >= self._ttl):
            return None
        return group.elements[-1][1] if group.elements else group.base

    def _is_initial(self, value: Any) -> bool:
        return value is None

    def _restore(self, group: Group, state: Any, tick: int) -> None:
        super()._restore(group, state, tick)
        self._scale.weigh(group.base)
