"""The segments of a plan: what is tracked together, what feeds what, and which steps and sinks wait for which.

A segment consists of the exchanges of one level that lead to the same steps; so two that meet in a join, and nowhere
else, are one. A step waits for the segments of the exchanges before it at its level, and through their feeds for all
that is further up; it does not wait for any other.

A step that may end the life holds an *outlet*: a segment through which nothing flows, and that sinks listen to. No sink
after the step passes the tick; nor, if any record may end the life, does a sink with records of the same source, as the
record may be corrected further up (R6). Dead letters come from everywhere: their outlet is after all steps. Calls give
records to the outside too, so they listen as sinks do, but to nothing that waits for a call.

What was asked about is not corrected: what fails behind a call, and ends the life, does so once the answer is kept, and
a later life refuses another question in its place. So steps and sinks of one level all of whose records come through
one call need no outlet among them: what they give hangs on the answers alone, and a worker's sink sees its own faults.

With *early keys* a segment that feeds no other one is parted by the worker that its frames go to: each of the parts is
a segment that this one feeds, and a worker waits for its own. The segment itself, which has no frames any more, is what
they have in common: fronts feed it, and what levels further up hold or have due is held there, as it may go to any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.steps.steps import Ask, Sign, Through

FIRST = 1
"""The first segment: fronts feed it if all sources feed the same steps."""


@dataclass(frozen=True, slots=True)
class Segments:
    """The result of `segments_of` for a plan.

    Attributes:
        inbound: Every segment with what feeds it; those that nothing feeds are fed by fronts.
        of_exchange: By exchange the segment of its frames; see `tracked_in` for the one that they are tracked in.
        parts: By segment that is parted, its parts by the place of the worker.
        waits: By vertex the segments whose min time bounds what may still come to it; at level 0, those it feeds.
        sends: By vertex the segments that hold what it will give later (R6, R6b): none if only its own level's barriers
            wait for that, as they learn of it in the same call.
        outlets: By vertex the outlets that hold what fails there and may end the life.
        outlet_of: By sink or call its outlet; none for those without such a failure before them.
        letters: The outlet of dead letters; None if there are none, or nothing can end the life.
        cyclic: The segments that records can come back to.
        round_trips: The vertices whose output can come back to them through other workers.
        feeds: By topic the segments that its fronts feed.
        tellers: By segment the levels whose workers report what is due for it, the last first.
        dues: By segment the numbers of these workers; see `owner`.
        after: By vertex the steps with clocks, and the calls, before it at its level, itself included.
        behind: By vertex the call of its level through which all its records come, itself included, if its answers are
            kept and no step of the level behind it keeps state.
        certain: The calls before which all steps look at one record alone, so that no other record changes what they
            are asked about.
    """

    inbound: Mapping[int, list[int]]
    of_exchange: Mapping[int, int]
    parts: Mapping[int, tuple[int, ...]]
    waits: Mapping[int, tuple[int, ...]]
    sends: Mapping[int, tuple[int, ...]]
    outlets: Mapping[int, tuple[int, ...]]
    outlet_of: Mapping[int, int]
    letters: int | None
    cyclic: frozenset[int]
    round_trips: frozenset[int]
    feeds: Mapping[str, list[int]]
    tellers: Mapping[int, list[int]]
    dues: Mapping[int, list[int]]
    after: Mapping[int, frozenset[int]]
    behind: Mapping[int, int]
    certain: frozenset[int]
    _parallelism: int

    def tracked_in(self, exchange: int, target: int) -> int:
        """Return the segment that frames of an exchange to the worker at a place are tracked in."""
        return self.at(self.of_exchange[exchange], target)

    def at(self, segment: int, place: int) -> int:
        """Return the part of a segment that has the frames to the worker at a place; the segment if it has no parts."""
        parts = self.parts.get(segment)
        return segment if parts is None else parts[place]

    def owner(self, segment: int, level: int, place: int) -> int:
        """Return a worker's number among those that report what is due for a segment; its place, if one level does.

        This also tells apart the holds of two workers of one process.
        """
        levels = self.tellers.get(segment, [level])
        return place + self._parallelism * levels.index(level)


def segments_of(plan: Plan) -> Segments:
    """Find a plan's segments: a pure function with the same result in all processes. O(vertices squared)."""
    return _Layout(plan).segments()


def uncertain_before(plan: Plan, ask: Vertex[Ask]) -> list[int]:
    """Return the steps before a call, or in a loop with it, that do not look at one record alone, in plan's order."""
    before, left = set[int](), [ask.id]
    while left:
        reached = left.pop()
        for vertex in plan.vertices:
            leads = vertex.back == reached or vertex.id in plan.vertices[reached].parents
            if leads and vertex.id not in before:
                before.add(vertex.id)
                left.append(vertex.id)
    found = (plan.vertices[each] for each in sorted(before - {ask.id}))
    return [vertex.id for vertex in found if _keeps(vertex) or vertex.step.silent]


def _keeps(vertex: Vertex) -> bool:
    return vertex.step.stateful or vertex.step.clocked


class _Layout:
    """Numbers segments level by level, then outlets."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._vertices = plan.vertices
        self._below = self._reached()
        """By vertex all vertices that its records can reach, itself included."""
        self._made = self._reached(signs=False)
        """The same without what clocks give, which is not made from a source's records."""
        self._of_exchange = self._numbered()
        self._first_exchanges = {each for each in self._of_exchange if plan.sender_level(self._vertices[each]) == 0}
        """The exchanges that level 0 sends through, without a loop's way back to level 1."""
        self._waits = {vertex.id: self._waits_of(vertex) for vertex in self._vertices}
        self._behind = self._behind_calls()
        self._inbound = self._fed()
        self._tracked = list(self._inbound)
        """The segments that have frames, or whose parts have."""
        self._ending = [vertex for vertex in self._vertices if plan.may_end(vertex)]
        self._parted: Collection[int] = self._to_part()
        while (paying := [segment for segment in self._parted if self._pays(segment)]) != self._parted:
            self._parted = paying
        self._numbers: dict[tuple[frozenset[int], frozenset[int]], int] = {}
        """Outlets by the segments that feed them and the steps that hold them."""
        self._held_by: dict[int, frozenset[int]] = {}
        self._outlet_of: dict[int, int] = {}
        self._letters: int | None = None

    def segments(self) -> Segments:
        plan = self._plan
        self._outlets()
        parts = self._part()
        outlets = {
            vertex.id: tuple(outlet for outlet, before in self._held_by.items() if vertex.id in before)
            for vertex in self._vertices
        }
        sends = {vertex.id: self._sends_of(vertex) for vertex in self._vertices}
        tellers: dict[int, list[int]] = {}
        for vertex in sorted(self._vertices, key=lambda each: -each.level):
            for segment in sends[vertex.id]:
                levels = tellers.setdefault(segment, [])
                if vertex.level not in levels:
                    levels.append(vertex.level)
        dues: dict[int, set[int]] = {}
        for clock in plan.clocked:
            for segment in sends[clock]:
                first = plan.parallelism * tellers[segment].index(self._vertices[clock].level)
                dues.setdefault(segment, set()).update(range(first, first + plan.parallelism))
        return Segments(
            self._inbound,
            self._of_exchange,
            parts,
            self._waits,
            sends,
            outlets,
            self._outlet_of,
            self._letters,
            self._cyclic(),
            self._round_trips(),
            self._feeds(),
            tellers,
            {segment: sorted(owners) for segment, owners in sorted(dues.items())},
            {vertex.id: self._after(vertex) for vertex in self._vertices},
            self._behind,
            frozenset(ask.id for ask in plan.those(Ask) if self._is_certain(ask)),
            plan.parallelism,
        )

    # -- which vertices come after which ---------------------------------------------------------------------------

    def _reached(self, *, signs: bool = True) -> dict[int, set[int]]:
        """Return by vertex what comes after it, itself included; a loop's head comes after its tail.

        Args:
            signs: Count a clock as after the sources whose records it has signs of.
        """
        takers: dict[int, list[int]] = {vertex.id: [] for vertex in self._vertices}
        for vertex in self._vertices:
            for parent in vertex.parents if signs or not isinstance(vertex.step, Sign) else ():
                takers[parent].append(vertex.id)
            if vertex.back is not None:
                takers[vertex.id].append(vertex.back)
        below: dict[int, set[int]] = {}
        for vertex in self._vertices:
            seen, left = {vertex.id}, [vertex.id]
            while left:
                for taker in takers[left.pop()]:
                    if taker not in seen:
                        seen.add(taker)
                        left.append(taker)
            below[vertex.id] = seen
        return below

    def _here(self, vertex: Vertex) -> set[int]:
        """Return what comes after a vertex at its own level, itself included."""
        return {each for each in self._below[vertex.id] if self._vertices[each].level == vertex.level}

    def _numbered(self) -> dict[int, int]:
        """Number the segments: exchanges of a level that lead to the same steps share one."""
        numbers: dict[tuple[int, frozenset[int]], int] = {}
        of_exchange: dict[int, int] = {}
        for vertex in sorted(self._plan.exchanges(), key=lambda each: (each.level, each.id)):
            steps = (each for each in self._here(vertex) if not self._vertices[each].is_exchange)
            at_level = vertex.level, frozenset(steps)
            of_exchange[vertex.id] = numbers.setdefault(at_level, FIRST + len(numbers))
        return of_exchange

    def _exchanges(self, vertices: Iterable[int], level: int) -> tuple[int, ...]:
        """Return the segments of the exchanges to a level among these vertices."""
        return tuple(
            sorted({
                self._of_exchange[each]
                for each in vertices
                if each in self._of_exchange and self._vertices[each].level == level
            })
        )  # fmt: skip

    def _waits_of(self, vertex: Vertex) -> tuple[int, ...]:
        if vertex.level == 0:
            return self._exchanges(self._below[vertex.id] & self._first_exchanges, 1) or self._firsts()
        entries = [each for each in self._of_exchange if vertex.id in self._here(self._vertices[each])]
        return self._exchanges(entries, vertex.level)

    def _firsts(self) -> tuple[int, ...]:
        """Return the segments that fronts feed."""
        return self._exchanges(self._first_exchanges, 1) or (FIRST,)

    def _fed(self) -> dict[int, list[int]]:
        inbound: dict[int, set[int]] = {segment: set() for segment in self._firsts()}
        for vertex in self._plan.exchanges():
            fed = inbound.setdefault(self._of_exchange[vertex.id], set())
            if vertex.level > 1 or vertex.back is not None:
                fed.update(each for parent in vertex.parents for each in self._waits[parent])
        return {segment: sorted(fed) for segment, fed in sorted(inbound.items())}

    def _cyclic(self) -> frozenset[int]:
        return frozenset(
            segment for segment in self._tracked if any(self._round(each, segment) for each in self._inbound[segment])
        )

    def _round_trips(self) -> frozenset[int]:
        ways = self._plan.feedbacks()
        return frozenset(
            vertex.id
            for vertex in self._vertices
            if any(way.id in self._below[vertex.id] and vertex.id in self._below[way.id] for way in ways)
        )

    def _feeds(self) -> dict[str, list[int]]:
        feeds: dict[str, set[int]] = {}
        for vertex in self._plan.sources():
            feeds.setdefault(vertex.step.source.topic, set()).update(self._waits[vertex.id])
        return {topic: sorted(fed) for topic, fed in feeds.items()}

    def _after(self, vertex: Vertex) -> frozenset[int]:
        alone = {*self._plan.clocked, *(ask.id for ask in self._plan.those(Ask))}
        return frozenset(each for each in alone if vertex.id in self._here(self._vertices[each]))

    # -- early keys ------------------------------------------------------------------------------------------------

    def _to_part(self) -> list[int]:
        """Return the segments to part: those that feed no other one, and whose end nobody tells of for all workers."""
        if not self._plan.early_keys or self._plan.parallelism == 1:
            return []
        feeding = {each for fed in self._inbound.values() for each in fed}
        told = {each for through in self._plan.those(Through) for each in self._waits[through.id]}
        return [segment for segment in self._tracked if segment not in feeding | told]

    def _pays(self, segment: int) -> bool:
        """Return whether a sink or a call waits for one part: not if what may fail behind any of them holds it back."""
        behind = [vertex for vertex in self._ending if segment in self._waits[vertex.id] and vertex.level]
        waiting = [*self._plan.sinks(), *self._plan.those(Ask)]
        return any(
            segment in self._waits[each.id] and not any(self._holds_back(vertex, each) for vertex in behind)
            for each in waiting
        )

    def _part(self) -> dict[int, tuple[int, ...]]:
        """Number the parts, behind all other segments, and feed them and the outlets.

        Outlets of what may fail behind a parted segment wait for all its parts: any worker's record may be the one.
        """
        parts: dict[int, tuple[int, ...]] = {}
        for segment in self._parted:
            first = FIRST + len(self._inbound)
            parts[segment] = tuple(range(first, first + self._plan.parallelism))
            self._inbound.update((part, [segment]) for part in parts[segment])
        for outlet, before in self._held_by.items():
            behind = {each for vertex in before if self._vertices[vertex].level for each in self._waits[vertex]}
            feeding = self._inbound[outlet]
            self._inbound[outlet] = sorted(
                part for each in feeding for part in (parts.get(each, (each,)) if each in behind else (each,))
            )
        return parts

    def _sees(self, vertex: Vertex, sink: Vertex) -> bool:
        """Return whether what fails at a vertex before a sink is the concern of no other worker's lanes.

        It is corrected at the vertex, not further up, and the level's records stay with their worker. So that worker's
        barrier is the only one that has to wait, and does: it releases no more than the steps before it have passed.
        """
        parted = {*self._waits[vertex.id], *self._waits[sink.id]} <= set(self._parted)
        single = self._plan.dead_letters is not None and not vertex.step.batched
        return parted and single and vertex.level == sink.level > 0 and not isinstance(sink.step, Ask)

    # -- calls -----------------------------------------------------------------------------------------------------

    def _behind_calls(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for ask in self._plan.those(Ask):
            others = self._here(ask) - {ask.id}
            if self._plan.answers_of(ask) is not None and not any(self._keeps(each) for each in others):
                found[ask.id] = ask.id
        for vertex in self._vertices:
            calls = {found.get(parent) for parent in vertex.parents}
            (call,) = calls if len(calls) == 1 else (None,)
            if call is not None and vertex.id not in found and vertex.level == self._vertices[call].level:
                found[vertex.id] = call
        return found

    def _keeps(self, vertex: int) -> bool:
        """Return whether what a step gives hangs on more than one record."""
        return _keeps(self._vertices[vertex])

    def _is_certain(self, ask: Vertex[Ask]) -> bool:
        return not uncertain_before(self._plan, ask)

    # -- what may end the life -------------------------------------------------------------------------------------

    def _outlets(self) -> None:
        """Find the outlet of each sink, that of dead letters, and by outlet the steps that hold it.

        Sinks after the same segments and the same steps that may end the life share one.
        """
        plan, ending = self._plan, self._ending
        for sink in plan.sinks():
            before = [vertex for vertex in ending if self._holds_back(vertex, sink)]
            outlet = self._outlet([*self._waits[sink.id], *self._awaited(before)], before)
            if outlet is not None:
                self._outlet_of[sink.id] = outlet
        if plan.dead_letters is not None:
            self._letters = self._outlet(self._tracked, ending)
        asks = list(plan.those(Ask))
        behind = {each for ask in asks for each in self._below[ask.id]}
        for ask in asks:
            # What stands behind a call waits for it, so none may wait for that.
            before = [each for each in ending if each.id not in behind or ask.id in self._below[each.id]]
            before = [each for each in before if each is not ask and self._holds_back(each, ask)]
            outlet = self._outlet([*self._waits[ask.id], *self._awaited(before)], before)
            if outlet is not None:
                self._outlet_of[ask.id] = outlet
        for ask in asks:
            # Nobody listens to it but what global min time bounds: fronts, and snapshots.
            if not self._sends_of(ask):
                self._outlet(self._waits[ask.id], [ask])

    def _holds_back(self, vertex: Vertex, sink: Vertex) -> bool:
        """Return whether a sink, or a call, may not pass what fails at a vertex.

        So it is if the sink comes after the vertex; or if any record may end the life there and so be corrected further
        up, where the sink's records come from too: what the correction gives must not lie below what the sink has.
        Behind one call at one level no other worker's record is corrected, and a worker sees to its own.
        """
        if vertex.id in self._behind and self._behind[vertex.id] == self._behind.get(sink.id):
            return False
        if sink.id in self._below[vertex.id]:
            return not self._sees(vertex, sink)
        if self._plan.dead_letters is not None and not vertex.step.batched:
            return False
        begins = [*self._plan.sources(), *self._plan.those(Sign)]
        return any({vertex.id, sink.id} <= self._made[each.id] for each in begins)

    def _awaited(self, vertices: Iterable[Vertex]) -> set[int]:
        """Return what comes after these vertices; after a source not a clock that all other sources sign for too."""
        found: set[int] = set()
        for vertex in vertices:
            own = self._exchanges(self._made[vertex.id] & self._first_exchanges, 1) if vertex.level == 0 else ()
            found.update(own or self._waits[vertex.id])
        return found

    def _outlet(self, segments: Iterable[int], before: Iterable[Vertex]) -> int | None:
        held_by = frozenset(vertex.id for vertex in before)
        if not held_by:
            return None
        above = frozenset(self._above(segments))
        if (above, held_by) not in self._numbers:
            feeding = {each for segment in above for each in self._inbound[segment] if not self._round(each, segment)}
            number = self._numbers[above, held_by] = len(self._inbound) + FIRST
            self._inbound[number] = sorted(above - feeding)
            self._held_by[number] = held_by
        return self._numbers[above, held_by]

    def _round(self, segment: int, other: int) -> bool:
        """Return whether records that reach a segment from another one may have come from the segment itself."""
        return other in self._above([segment])

    def _above(self, segments: Iterable[int]) -> set[int]:
        """Return these segments and all that feed them."""
        seen = set(segments)
        left = list(seen)
        while left:
            for source in self._inbound[left.pop()]:
                if source not in seen:
                    seen.add(source)
                    left.append(source)
        return seen

    def _sends_of(self, vertex: Vertex) -> tuple[int, ...]:
        if vertex.level == 0:
            return self._waits[vertex.id]
        here = self._here(vertex)
        sent = {each.id for each in self._plan.exchanges() if here.intersection(each.parents)}
        segments = self._exchanges(sent, vertex.level + 1)
        failing = [outlet for outlet, before in self._held_by.items() if before & here]
        outlets = [outlet for outlet in failing if not self._above([outlet]).intersection(segments)]
        return (*segments, *outlets)
