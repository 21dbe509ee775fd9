"""`join_asof`: every record with the newest one before it, when log time has come to where no newer one can come.

Records and partners lie on the two sides of a join, with other ends: a record's is the tick at which it comes out, a
partner's the one at which the last record comes out that it may be for.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence

from typing_extensions import override

from lowtide.core.operators.faults.failure import Fault
from lowtide.core.operators.joins.cold_side import ColdSide
from lowtide.core.operators.joins.join_node import LEFT, RIGHT, JoinNode
from lowtide.core.operators.joins.join_side import Dues, Held, JoinSide
from lowtide.core.operators.joins.nearness import Nearness
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.keys import meets_nothing
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.packing import Packing
from lowtide.core.operators.state.shelf import Shelves
from lowtide.core.operators.windows.window_node import Made
from lowtide.flow.plan.plan import Plan, Vertex, side_of
from lowtide.flow.steps.steps import JoinAsof
from lowtide.flow.time.moments import instant_over, micros


class AsofNearness(Nearness):
    """The times of a `join_asof`; see `Nearness`."""

    def ends(self, port: int, moment: int, tick: int) -> tuple[int, int]:
        """The tick at which a record comes out, or the last one for a partner, and the moment.

        It may be a record's own tick, if a clock upstream has brought it: then it comes out after all that these did.
        """
        last, wait = moment + self._reach[port], self._waits[1 - port]
        return instant_over(last, wait, self.slack_us), last + wait


class ByTime:
    """Records by key and time."""

    def __init__(self) -> None:
        self._found: dict[Key, list[tuple[int, bytes, Held]]] = {}

    def newest(self, key: Key, moment: int, back: int) -> Held | None:
        """The newest record of a key that is not after a moment, and not more than `back` before it; O(log of them)."""
        found = [] if meets_nothing(key) else self._found.get(key, [])
        index = bisect_right(found, moment, key=_moment)
        return found[index - 1][2] if index and found[index - 1][0] >= moment - back else None

    def put(self, held: Held) -> None:
        """Take a record."""
        insort(self._found.setdefault(held.key, []), (held.moment, held.at, held))

    def forget(self, held: Held) -> None:
        """Let a record go."""
        found = self._found[held.key]
        del found[bisect_right(found, (held.moment, held.at), key=_place) - 1]
        if not found:
            del self._found[held.key]

    def forget_key(self, key: Key) -> None:
        """Let all records of a key go."""
        del self._found[key]

    def check(self, kept: Mapping[Key, Mapping[bytes, Held]]) -> None:
        """Invariants, for tests: it has the records of a side by key and order key."""
        assert self._found.keys() == kept.keys()
        for key, found in self._found.items():
            assert sorted(at for _, at, _ in found) == sorted(kept[key])
            assert found == sorted(found, key=_place)


class Partners(JoinSide):
    """The right stream's records, by key and time."""

    def __init__(self, name: str, port: int, nearness: Nearness) -> None:
        super().__init__(name, port, nearness, None)
        self.by_time = ByTime()

    def put(self, held: Held) -> None:
        """Take a record."""
        super().put(held)
        self.by_time.put(held)

    def forget(self, held: Held) -> None:
        """Let a record go that no one will ask for."""
        super().forget(held)
        self.by_time.forget(held)


class ColdPartners(ColdSide):
    """The same, of which not all are in memory."""

    def __init__(self, name: str, port: int, nearness: Nearness, shelves: Shelves, packing: Packing) -> None:
        super().__init__(name, port, nearness, None, shelves, packing)
        self.by_time = ByTime()

    @override
    def _place(self, held: Held) -> None:
        super()._place(held)
        self.by_time.put(held)

    @override
    def forget(self, held: Held) -> None:
        super().forget(held)
        self.by_time.forget(held)

    @override
    def _leaves(self, key: Key) -> list[Held]:
        self.by_time.forget_key(key)
        return super()._leaves(key)


class AsofNode(JoinNode):
    """One `join_asof`, of one worker's hash units; see `JoinNode`."""

    def __init__(self, vertex: Vertex[JoinAsof], plan: Plan, max_bytes: int | None = None) -> None:
        super().__init__(vertex, plan, max_bytes)
        step = vertex.step
        self._nearness = AsofNearness(step, plan.slack_ms)
        self._back = micros(step.before)
        self._inner = step.how == "inner"
        self._dues = Dues()
        partners = Partners(side_of(vertex, RIGHT), RIGHT, self._nearness)
        self._partners = partners.by_time
        self._cold_partners: ColdPartners | None = None
        """Where not all partners are in memory: those of what comes out at a tick come back together."""
        self.sides = [JoinSide(side_of(vertex, LEFT), LEFT, self._nearness, self._dues), partners]
        self.states = {side.name: side for side in self.sides}

    @override
    def _cold_side(self, port: int, shelves: Shelves, packing: Packing) -> ColdSide:
        if port == LEFT:
            return super()._cold_side(port, shelves, packing)
        side = self._cold_partners = ColdPartners(self.sides[port].name, port, self._nearness, shelves, packing)
        self._partners = side.by_time
        return side

    @override
    def _asked_of(self, port: int) -> Sequence[int]:
        """Nothing comes with a record: it lies beside those of its own port."""
        return (port,)

    def _pair(self, held: Held, made: Made) -> None:
        """Nothing comes with a record."""

    def _close(self, tick: int, feed: Feed) -> None:
        """Give the records of a tick with their partners; each result has its number in its hash unit."""
        made = Made()
        unit, number = -1, 0
        dues = self._dues.of(tick)
        if self._cold_partners is not None:
            asked = {held.key: held.unit for held in dues if not meets_nothing(held.key)}
            self._cold_partners.admit(list(asked), list(asked.values()))
        for held in dues:
            partner = self._partners.newest(held.key, held.moment, self._back)
            if partner is None and self._inner:
                continue
            if held.unit != unit:
                unit, number = held.unit, 0
                at_of = self._clock.of(tick, unit)
            number += 1
            row = None if partner is None else partner.row
            out, failure = self._pairing(held.row, held.row, row, self._clock.position(unit))
            if failure is None:
                made.give(at_of(number), unit, out)
            else:
                made.fail(at_of(number), unit, Fault(self.vertex, failure, None))
        made.pass_on(self, feed, [tick])


def _moment(entry: tuple[int, bytes, Held]) -> int:
    return entry[0]


def _place(entry: tuple[int, bytes, Held]) -> tuple[int, bytes]:
    return entry[:2]
