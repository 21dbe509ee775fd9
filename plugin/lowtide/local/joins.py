"""Joins in a local run: records come in order, so each is handled once, as it comes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

from lowtide.core.operators.joins.join_asof import AsofNearness
from lowtide.core.operators.joins.nearness import Nearness
from lowtide.core.operators.joins.pairing import Pairing
from lowtide.core.operators.order.keys import key_of, meets_nothing
from lowtide.core.operators.order.order import CLOCK, Position
from lowtide.flow.plan.plan import Plan, Vertex, side_of
from lowtide.flow.steps.steps import Join, JoinAsof, JoinTable
from lowtide.flow.time.durations import ticks_of
from lowtide.flow.time.moments import micros
from lowtide.local.items import Item, Message, Order
from lowtide.local.windows import OnTime

ROWS = 1
"""The port of a table."""


class Rows:
    """The newest record of each key, for one `join_table`.

    Attributes:
        inner: True if records without a row are left out.
        pairing: The step's function.
    """

    def __init__(self, plan: Plan, vertex: Vertex[JoinTable]) -> None:
        table = vertex.step.table
        self._table = table
        self._ttl = None if table.ttl is None else ticks_of(table.ttl, plan.slack_ms)
        self._columns = [plan.key_of(vertex, port) for port in (0, ROWS)]
        self._rows: dict[Hashable, tuple[int, Any]] = {}
        self.inner = vertex.step.how == "inner"
        self.pairing = Pairing(vertex, [plan.vertices[parent].gives for parent in vertex.parents])

    def put(self, item: Item) -> None:
        """Take a record of the table."""
        key = key_of(self._columns[ROWS], item.record)
        if meets_nothing(key):
            return
        if self._table.deleted is not None and getattr(item.record, self._table.deleted):
            self._rows.pop(key, None)
        else:
            self._rows[key] = item.order.tick, item.record

    def of(self, item: Item) -> Any:
        """Return the row for a record; None if there is none."""
        tick, row = self._rows.get(key_of(self._columns[0], item.record), (item.order.tick, None))
        return None if self._ttl is not None and item.order.tick - tick >= self._ttl else row


@dataclass(slots=True)
class _Waiting:
    """A record that waits for partners, until a tick."""

    item: Item
    moment: int
    ends: int
    paired: bool = False


Pair = tuple[Item, Any, Any]
"""The item whose place it takes and whose record the function is called for; the left record; the right one."""


class Pairs:
    """The records of both streams that wait for partners, for one `join`.

    Args:
        plan: The plan.
        vertex: The join.
        looks_ahead: True if a record can be ahead of its log time.
        on_time: Called with each record, by the name of its side, if the join uses event time.

    Attributes:
        pairing: The step's function.
    """

    def __init__(self, plan: Plan, vertex: Vertex[Join], *, looks_ahead: bool, on_time: OnTime | None = None) -> None:
        self._vertex = vertex
        self._slack_us = plan.slack_ms * 1_000
        self._on_time = None if vertex.step.time is None else on_time
        self._first = vertex.id * plan.units
        self._comes_out = (True, False) if isinstance(vertex.step, JoinAsof) else vertex.step.outer
        """By port: True if the clock brings its records."""
        self._columns = [plan.key_of(vertex, port) for port in (0, 1)]
        self._nearness = Nearness(vertex.step, plan.slack_ms, looks_ahead=looks_ahead)
        self._kept: dict[tuple[int, Hashable], list[_Waiting]] = {}
        self._dues: list[tuple[int, int, int, int, Order, _Waiting]] = []
        self.pairing = Pairing(vertex, [plan.vertices[parent].gives for parent in vertex.parents])

    @property
    def next(self) -> Order | None:
        """Return the place of the next record that the clock brings; None if there is none."""
        while self._dues and self._dues[0][-1].paired:
            heappop(self._dues)
        return Order(self._dues[0][0], CLOCK, self._first + self._dues[0][1]) if self._dues else None

    def take(self, port: int, item: Item) -> list[Pair] | None:
        """Return the pairs that a record makes; None if it is late."""
        tick, front, sequence, _ = item.order
        moment = self._nearness.moment(port, tick, item.record)
        is_before_clock = (front, sequence) < (CLOCK, self._first + item.unit)
        if self._on_time is not None:
            self._on_time(side_of(self._vertex, port), tick * self._slack_us - moment)
        if self._nearness.lateness(port, moment, tick, tick if is_before_clock else tick + 1) is not None:
            return None
        ends, last = self._nearness.ends(port, moment, tick)
        mine = _Waiting(item, moment, ends)
        if self._comes_out[port]:
            heappush(self._dues, (ends, item.unit, last, port, item.order, mine))
        key = key_of(self._columns[port], item.record)
        if meets_nothing(key):
            return []
        others = [each for each in self._kept.pop((1 - port, key), ()) if each.ends >= tick]
        if others:
            self._kept[1 - port, key] = others
        self._kept.setdefault((port, key), []).append(mine)
        return self._meet(port, mine, others)

    def _meet(self, port: int, mine: _Waiting, others: Sequence[_Waiting]) -> list[Pair]:
        """Return the pairs of a record with those of the other side."""
        item, pairs = mine.item, list[Pair]()
        for other in others:
            left, right = (mine, other) if port == 0 else (other, mine)
            if self._nearness.meet(left.moment, right.moment):
                mine.paired = other.paired = True
                pairs.append((item.child(len(pairs) + 1), left.item.record, right.item.record))
        return pairs

    def fire(self) -> Iterator[Pair]:
        """Yield what the clock brings at the next place: records without a partner, or the pairs of a `join_asof`."""
        place = self.next
        assert place is not None, "something is due"
        message = Message(Position(CLOCK, place.sequence), 0, None, None)
        number = 0
        while self.next == place:
            _, unit, _, port, _, waiting = heappop(self._dues)
            number += 1
            record = waiting.item.record
            left, right = (record, None) if port == 0 else (None, record)
            yield Item(record, place._replace(child=(number,)), message, unit), left, right


class AsofPairs(Pairs):
    """The records that wait for their newest partner, and the partners, for one `join_asof`."""

    def __init__(
        self, plan: Plan, vertex: Vertex[JoinAsof], *, looks_ahead: bool, on_time: OnTime | None = None
    ) -> None:
        super().__init__(plan, vertex, looks_ahead=looks_ahead, on_time=on_time)
        self._nearness = AsofNearness(vertex.step, plan.slack_ms, looks_ahead=looks_ahead)
        self._back = micros(vertex.step.before)
        self._inner = vertex.step.how == "inner"

    def _meet(self, port: int, mine: _Waiting, others: Sequence[_Waiting]) -> list[Pair]:
        """Return no pairs: a record gives nothing at once."""
        return []

    def fire(self) -> Iterator[Pair]:
        """Yield what the clock brings at the next place: records with their newest partners."""
        place = self.next
        assert place is not None, "something is due"
        message = Message(Position(CLOCK, place.sequence), 0, None, None)
        number = 0
        while self.next == place:
            _, unit, _, _, _, waiting = heappop(self._dues)
            key = key_of(self._columns[0], waiting.item.record)
            near = [
                (each.moment, each.item.order, each.item.record)
                for each in self._kept.get((1, key), ())
                if waiting.moment - self._back <= each.moment <= waiting.moment
            ]
            if not near and self._inner:
                continue
            number += 1
            record, partner = waiting.item.record, max(near, key=itemgetter(0, 1))[2] if near else None
            yield Item(record, place._replace(child=(number,)), message, unit), record, partner
