"""A branch: the steps of one level that wait for the same segments, clocks and calls, at one worker.

What min time lets go on in one branch depends on no other, except those of its level upstream of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from lowtide.core.ending_faults import Ending
from lowtide.core.fronts.end import end_tick
from lowtide.core.operators.barrier import Barrier
from lowtide.core.operators.call_node import CallNode
from lowtide.core.operators.held.ordered import Holding
from lowtide.core.operators.program import Program
from lowtide_tracker import LocalTracker


class Branch:
    """One branch.

    Args:
        waits: The segments whose min time says what may still come to it.
        holding: Its steps that hold records, in topological order.
        before: The branches of its level upstream of it.
        tracker: The local tracker of the worker's process.
        ending: Its faults that may end the life.
        slack_ms: How long a tick is.

    Attributes:
        sinks: Its barriers, each with its outlet, without one it goes by the branch alone; and with the call whose
            answers become durable no later than what it releases, if there is one.
        reached: The tick below which its steps have processed what they held and what was due.
        waits: The segments whose min time says what may still come to it.
    """

    __slots__ = ("_before", "_end", "_one", "_tracker", "ending", "holding", "reached", "sinks", "waits")

    def __init__(
        self,
        waits: Sequence[int],
        holding: Sequence[Holding],
        before: Sequence[Branch],
        tracker: LocalTracker,
        ending: Ending,
        slack_ms: int,
    ) -> None:
        self.waits = tuple(waits)
        self._one = self.waits[0] if len(self.waits) == 1 else None
        self._before = tuple(before)
        self._tracker = tracker
        self.holding = holding
        self.ending = ending
        self.sinks: list[tuple[int, Barrier, int | None, CallNode | None]] = []
        self.reached = self.min_time
        self._end = end_tick(slack_ms) if holding else None
        """The end of time; None where nobody needs it, or everybody has it."""

    @property
    def min_time(self) -> int:
        """The smallest min time of its segments, as received."""
        if self._one is not None:
            return self._tracker.min_time(self._one)
        return min([self._tracker.min_time(segment) for segment in self.waits])

    def look_at_end(self) -> None:
        """Tell its steps once that time has ended, if it has: none of its segments has a record any more."""
        if self._end is not None and self.min_time >= self._end:
            self._end = None
            for node in self.holding:
                node.time_ends()

    def limit(self, lead_end: int | None) -> int:
        """The tick below which its steps may go on, once those before them have.

        Args:
            lead_end: Where it ends at the latest; None for nowhere.
        """
        tick = self.min_time
        return tick if lead_end is None or tick < lead_end else lead_end

    def below(self, lead_end: int | None) -> int:
        """The tick below which its steps may go on now: no further than those of its level upstream of it."""
        tick = self._tracker.min_time(self._one) if self._one is not None else self.min_time
        if lead_end is not None and lead_end < tick:
            tick = lead_end
        for branch in self._before:
            tick = min(tick, branch.reached)
        return tick

    def cleared(self, outlet: int | None, reached: int | None = None) -> int:
        """The tick below which a sink may be given what there is: nothing before it can end the life any more.

        Args:
            outlet: The sink's.
            reached: How far the steps before it have come, if it need not wait for all of the branch.
        """
        reached = self.reached if reached is None else reached
        return reached if outlet is None else min(reached, self._tracker.min_time(outlet))

    def ready(self, lead_end: int | None) -> bool:
        """Return whether its steps, its faults or its barriers have something to do."""
        below = self._tracker.min_time(self._one) if self._one is not None else self.min_time
        if self._end is not None and below >= self._end:
            return True
        if lead_end is not None and lead_end < below:
            below = lead_end
        first = self.ending.first_tick
        if first is not None and first < below:
            return True
        for node in self.holding:
            first, due = node.first_tick(), node.due_tick
            if (first is not None and first < below) or (due is not None and due < below):
                return True
        for _, barrier, outlet, _ in self.sinks:
            first = barrier.first_tick
            free = below if outlet is None else min(below, self._tracker.min_time(outlet))
            if (first is not None and first < free) or barrier.mark_due(free):
                return True
        return False


def branches_of(program: Program, place: int, tracker: LocalTracker) -> tuple[list[Branch], dict[int, Branch]]:
    """Make a worker's branches, each after those upstream of it; return them, also by vertex.

    An exchange to the next level is of the branch that feeds it.

    Args:
        program: The worker's.
        place: The worker's.
        tracker: Of the worker's process.
    """
    plan, segments = program.plan, program.segments
    keys: dict[int, _Key] = {}
    for vertex in plan.vertices:
        if vertex.level == program.level:
            keys[vertex.id] = (frozenset(segments.waits[vertex.id]), segments.after[vertex.id])
        elif vertex.is_exchange and plan.sender_level(vertex) == program.level:
            keys[vertex.id] = keys[vertex.parents[0]]
    owner = f"worker {program.level}/{place}"
    made: dict[_Key, Branch] = {}
    for key in sorted(set(keys.values()), key=_depth):
        holding = [node for node in program.holding if keys[node.vertex.id] == key]
        ending = Ending(owner, tracker, segments.outlets)
        before = [branch for other, branch in made.items() if other[0] <= key[0] and other[1] <= key[1]]
        waits = [segments.at(each, place) if program.level else each for each in sorted(key[0])]
        made[key] = Branch(waits, holding, before, tracker, ending, plan.slack_ms)
    return list(made.values()), {vertex: made[key] for vertex, key in keys.items()}


_Key = tuple[frozenset[int], frozenset[int]]
"""The segments that a vertex waits for, and the clocks and calls of its level upstream of it."""


def _depth(key: _Key) -> tuple[int, int, list[int], list[int]]:
    return len(key[0]), len(key[1]), sorted(key[0]), sorted(key[1])
