"""A join of two streams: pairs come out with the record that comes later, unpaired records when log time has come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lowtide.core.operators.faults.failure import Fault
from lowtide.core.operators.held.ports import PortsNode, in_turn
from lowtide.core.operators.joins.cold_side import ColdSide
from lowtide.core.operators.joins.join_side import Dues, Held, JoinSide
from lowtide.core.operators.joins.nearness import Nearness
from lowtide.core.operators.joins.pairing import Pairing
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.clock import ClockKeys, parted_at_the_clock
from lowtide.core.operators.order.keys import meets_nothing
from lowtide.core.operators.order.late_seen import LateSeen
from lowtide.core.operators.order.order import position_of, with_child
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.packing import Packing
from lowtide.core.operators.state.shelf import Shelves
from lowtide.core.operators.windows.window_node import Made
from lowtide.errors import StateTooLarge
from lowtide.flow.plan.plan import Plan, Vertex, side_of
from lowtide.flow.schema.fields import key_of
from lowtide.flow.steps.steps import Join

LEFT, RIGHT = 0, 1
"""The ports."""

Ports = Sequence[Batch | None]
"""Records of each port, in order; None for nothing."""


class JoinNode(PortsNode):
    """One join, of one worker's hash units.

    Args:
        vertex: The step.
        plan: The plan.
        max_bytes: How much memory its records may take; None for any.

    Attributes:
        sides: What is kept of the two streams.
    """

    def __init__(self, vertex: Vertex[Join], plan: Plan, max_bytes: int | None = None) -> None:
        super().__init__(vertex, 2)
        step = vertex.step
        ports = (LEFT, RIGHT)
        self._keys = [key_of(plan.key_of(vertex, port)) for port in ports]
        self._nearness = Nearness(step, plan.slack_ms)
        self._pairing = Pairing(vertex, [plan.vertices[parent].gives for parent in vertex.parents])
        self._dues = Dues()
        self._clock = ClockKeys(plan, vertex)
        self._slack_us = plan.slack_ms * 1_000
        self._max_bytes = max_bytes
        self._late_seen = [LateSeen() for _ in ports]
        self.late_seen = {side_of(vertex, port): self._late_seen[port] for port in ports}
        self.sides = [
            JoinSide(side_of(vertex, port), port, self._nearness, self._dues if step.outer[port] else None)
            for port in ports
        ]
        self.states = {side.name: side for side in self.sides}
        self._cold: list[ColdSide] = []
        """Those of `sides` of which not all records are in memory."""

    def shelve(self, name: str, shelves: Shelves, packing: Packing) -> None:
        """Have the keys at rest of a side leave memory; before it has any."""
        port = [side.name for side in self.sides].index(name)
        self._cold.append(self._cold_side(port, shelves, packing))
        self.sides[port] = self._cold[-1]
        self.states = {side.name: side for side in self.sides}

    def _cold_side(self, port: int, shelves: Shelves, packing: Packing) -> ColdSide:
        dues = self._dues if self.sides[port].comes_alone else None
        return ColdSide(self.sides[port].name, port, self._nearness, dues, shelves, packing)

    @property
    def due_tick(self) -> int | None:
        """The smallest tick at which a record comes out alone, as far as is known; None if none will."""
        first = self._dues.first
        for side in self._cold:
            away = side.first_away
            if away is not None and (first is None or away < first):
                first = away
        return first

    def advance(self, min_time: int, feed: Feed) -> None:
        """Let records and the clock have their turns, in order, below the level's min time."""
        ticks: dict[int, list[Batch | None]] = {}
        for port, pending in enumerate(self._pending):
            for batch in pending.release(min_time):
                ticks.setdefault(batch.ticks[0], [None, None])[port] = batch
        if self._cold:
            self._admit(ticks.values(), min_time)
        for tick in sorted(ticks):
            self._close_before(tick, feed)
            self._tick(tick, ticks[tick], feed)
        self._close_before(min_time, feed)
        for side in self.sides:
            side.close(min_time)
        self._check_size()

    def _admit(self, ticks: Iterable[Ports], min_time: int) -> None:
        """Bring the keys into memory that records ask for, or that have a record which comes out alone by then."""
        found: list[dict[Key, int]] = [{}, {}]
        for batches in ticks:
            for port, batch in enumerate(batches):
                if batch is not None:
                    found[port].update(zip(map(self._keys[port], batch.rows), batch.units, strict=True))
        due = {key: unit for side in self._cold for key, unit in side.away_before(min_time)}
        for side in self._cold:
            asked = due.copy()
            for port in self._asked_of(side.port):
                asked.update(found[port])
            keys = [key for key in asked if not meets_nothing(key)]
            side.admit(keys, [asked[key] for key in keys])

    def _asked_of(self, _port: int) -> Sequence[int]:
        """The ports whose records ask for what is kept of a port: they lie beside it, or pair with it."""
        return (LEFT, RIGHT)

    def _check_size(self) -> None:
        """See that what is kept has not outgrown its limit (errors: StateTooLarge)."""
        kept = [side.kept for side in self.sides]
        size = sum(each.bytes for each in kept)
        if self._max_bytes is None or size <= self._max_bytes:
            return
        left, right = (f"{each.number:,} records ({each.bytes:,} bytes)" for each in kept)
        raise StateTooLarge(
            f'join "{self.vertex.name}" keeps about {size:,} bytes in one worker, and may keep {self._max_bytes:,}: '
            f"{left} of the left stream and {right} of the right one wait for partners",
            where=str(self.vertex.site),
            way_out="make it keep less: a shorter before=, after= or wait=, or records with fewer fields before the "
            "join; or spread it over more workers (job.parallelism); or raise worker.max_join_bytes, if the machines "
            "have the memory",
        )

    def _close_before(self, tick: int, feed: Feed) -> None:
        while (due := self._dues.first) is not None and due < tick:
            self._close(due, feed)

    def _tick(self, tick: int, batches: Ports, feed: Feed) -> None:
        """One tick: what upstream clocks gave, then the records that stay alone, then all other records."""
        parts = [(None, None) if batch is None else parted_at_the_clock(batch, tick) for batch in batches]
        self._records([early for early, _ in parts], tick, tick, feed)
        if self._dues.first == tick:
            self._close(tick, feed)
        self._records([others for _, others in parts], tick, tick + 1, feed)

    def _records(self, batches: Ports, tick: int, first: int, feed: Feed) -> None:
        """Pair records of one tick, what is due before tick `first` being over."""
        made, lates = Made(), ([], [])  # type: tuple[Made, tuple[list[int], list[int]]]
        for at, port, index in in_turn(batches):
            batch = batches[port]
            assert batch is not None
            row = batch.rows[index]
            held = Held(at, self._keys[port](row), batch.units[index], row, port, self._nearness)
            why = self._nearness.lateness(port, held.moment, tick, first)
            self._late_seen[port].records += 1
            if why is not None:
                self._late_seen[port].add(why, at, tick * self._slack_us, held.moment)
                lates[port].append(index)
            elif not meets_nothing(held.key):
                self._pair(held, made)
                self.sides[port].put(held)
            elif self.sides[port].comes_alone:
                self.sides[port].put(held)
        made.pass_on(self, feed, [tick])
        for port, late in enumerate(lates):
            batch = batches[port]
            if late and batch is not None and port in self._lates:
                self._lates[port].take(batch.pick(late), 0, feed)

    def _pair(self, held: Held, made: Made) -> None:
        """Pair a record with those of the other side, in their order; each pair has its number, also one that fails."""
        port, number, position = held.port, 0, position_of(held.at)
        others = self.sides[1 - port]
        for other in others.of(held.key):
            left, right = (held, other) if port == LEFT else (other, held)
            if not self._nearness.meet(left.moment, right.moment):
                continue
            number += 1
            held.paired = held.tick
            others.paired(other, held.tick)
            out, failure = self._pairing(held.row, left.row, right.row, position)
            at = with_child(held.at, number)
            if failure is None:
                made.give(at, held.unit, out)
            else:
                made.fail(at, held.unit, Fault(self.vertex, failure, None))

    def _close(self, tick: int, feed: Feed) -> None:
        """Give what stays alone at a tick; each result has its number in its hash unit, and so has what fails."""
        made = Made()
        unit, number = -1, 0
        for held in self._dues.of(tick):
            if held.unit != unit:
                unit, number = held.unit, 0
                at_of = self._clock.of(tick, unit)
            number += 1
            left, right = (held.row, None) if held.port == LEFT else (None, held.row)
            out, failure = self._pairing(held.row, left, right, self._clock.position(unit))
            if failure is None:
                made.give(at_of(number), unit, out)
            else:
                made.fail(at_of(number), unit, Fault(self.vertex, failure, None))
        made.pass_on(self, feed, [tick])
