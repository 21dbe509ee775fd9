"""Simulated sinks: a lane takes a bundle, its `last` and its floors in one atomic step, and tells them on request.

So does a strand, the lanes of one worker: its records go to their lanes, and its `last` is one of each of them.

The store compares, as a database does: a delivery says which life has claimed it and what the lane's `last` was before
(R19). A delivery may come late, when its life has long sent it again, or is over.

Each lane has a partition, as in topics of the job's own. A later life may have more lanes, and some partitions of new
numbers: what a lane has is then in those that it had, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from lowtide.core.effects import letters_of
from lowtide.core.fronts.floors import NO_TICK, Floors
from lowtide.core.operators.faults.failure import Dead
from lowtide.core.operators.order.bundle import NO_KEY, Bundle, Piece
from lowtide.core.operators.order.order import OrderKey, tick_of
from lowtide.core.operators.plain.sink import SinkEncoder
from lowtide.core.operators.questions import Answer, place_of
from lowtide.driver import homes
from lowtide.flow.plan import lane_partitions
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.sinks.contract import LaneName
from lowtide.sinks.kafka.lasts_records import last_of
from lowtide_tracker import Floor

from .verdict import Violation

LOST, LATE = 0.05, 0.3
"""How likely a delivery is sent twice, and how likely one that is late comes before the next."""
Sent = tuple[bytes | None, bytes | None, int]
"""Key, value, timestamp."""


@dataclass(slots=True)
class Lane:
    """What one partition holds, durable."""

    messages: list[Sent] = field(default_factory=list)
    letters: list[Dead] = field(default_factory=list)
    answers: dict[bytes, Answer] = field(default_factory=dict)
    """Of a call's log, by order key."""
    places: set[bytes] = field(default_factory=set)
    """Those of the records that were answered: each once, whatever its tick."""
    ticks: list[int] = field(default_factory=list)
    units: list[int] = field(default_factory=list)
    """The hash units of all that it was given, in order."""
    last: bytes = NO_KEY
    mark: int = NO_TICK
    """Below this tick the lane has said that it is complete, whatever life has said so (R20)."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A bundle on its way, with what the store compares: the claim, and the lane's `last` before."""

    claim: int
    sink: int
    bundle: Bundle
    before: bytes


class Sinks:
    """All sinks of a job, over all its lives.

    Attributes:
        claim: The life that may write.
        late: Requests that are still under way, and may come whenever something else does.
        lanes: By sink (its vertex) and partition; of dead letters of fronts, which are no lanes, by front.
        kept: The floors that are durable, each once, whichever lanes have written it.
    """

    def __init__(self, plan: Plan) -> None:
        self.claim = 0
        self.mark_every = 0
        """The distance of the lanes' marks; 0 for none, as most jobs have: `FlowWorld` sets it."""
        self.in_strands = True
        """Whether a worker's lanes go as one strand, as they do to all sinks: `FlowWorld` sets it."""
        self.late: list[Delivery] = []
        # Of its own, so that what is drawn elsewhere stays as it is.
        self._rng = Random(19)
        self.lanes: dict[tuple[int, int], Lane] = {}
        self.kept: set[Floor] = set()
        self._lane_of_unit: list[int] = plan.lane_of_unit().tolist()
        self._plan = plan
        self._partitions = lane_partitions.partition_of_lane(plan.lane_counts)
        self.names: dict[LaneName, OrderKey] = {}
        """The `last` of all lanes and strands, as a store keeps them; see `lasts_records`."""
        # A partition for each lane, which the encoder finds by the record's hash unit.
        self._encoders = {v.id: SinkEncoder(v, plan.slack_ms, self._lane_of_unit) for v in plan.sinks()}

    def grow(self, plan: Plan) -> None:
        """Have more lanes: what is said of lanes is said of their hash units from now on, as by `lowtide lanes`."""
        self.claimed()
        fronts = {name: key for name, key in self.names.items() if name.sink == str(letters_of(0))}
        lanes = {name: key for name, key in self.names.items() if name not in fronts}
        self.names = {**homes.by_units(lanes, self._plan, 0), **fronts}
        self._plan = plan
        self._lane_of_unit = plan.lane_of_unit().tolist()
        self._partitions = lane_partitions.partition_of_lane(plan.lane_counts)
        for sink in {sink for sink, _ in self.lanes if sink != letters_of(0)}:
            for lane, partition in enumerate(self._partitions):
                mark = max([held.mark for held in self._had(sink, lane)], default=NO_TICK)
                self.lanes.setdefault((sink, partition), Lane(mark=mark))

    def at(self, sink: int, lane: int) -> tuple[int, int]:
        """The place in `lanes` of what a lane is given."""
        return sink, lane if sink == letters_of(0) else self._partitions[lane]

    def of_lane(self, sink: int, lane: int) -> list[tuple[Lane, list[int]]]:
        """What a lane has: the partitions that it had, the oldest first, each with the places of what is the lane's."""
        owners = self._lane_of_unit
        return [
            (held, [n for n, unit in enumerate(held.units) if owners[unit] == lane]) for held in self._had(sink, lane)
        ]

    def _had(self, sink: int, lane: int) -> list[Lane]:
        """The partitions that a lane had, the oldest first."""
        places = [lane] if sink == letters_of(0) else lane_partitions.partitions_before(self._plan.lane_counts, lane)
        return [self.lanes[sink, place] for place in reversed(places) if (sink, place) in self.lanes]

    def claimed(self) -> int:
        """A life claims the store; its number there."""
        self.claim += 1
        return self.claim

    def send(self, delivery: Delivery) -> None:
        """A life sends a bundle until it is durable; when an answer is lost, it sends it again, and one comes late."""
        if self.late and self._rng.random() < LATE:
            self.take(self.late.pop(self._rng.randrange(len(self.late))))
        if self._rng.random() < LOST:
            self.late.append(delivery)
        if not self.take(delivery):
            raise Violation("output", f"lane {delivery.bundle.lane} refuses the life that has claimed it")

    def take(self, delivery: Delivery) -> bool:
        """Write a bundle if its claim and its lane's `last` are those that the delivery names; whether they were."""
        if delivery.claim != self.claim or delivery.before != self.last_of(delivery.sink, delivery.bundle):
            return False
        self.store(delivery.sink, delivery.bundle)
        return True

    def last_of(self, sink: int, bundle: Bundle) -> bytes:
        """The `last` of a bundle's lane, or strand."""
        if bundle.width:
            known = self.names.get(self._strand(sink, bundle))
            return NO_KEY if known is None else known.packed()
        return self._last_at(sink, bundle.lane)

    def _last_at(self, sink: int, lane: int) -> bytes:
        held = self.lanes.get(self.at(sink, lane))
        return NO_KEY if held is None else held.last

    def store(self, sink: int, bundle: Bundle) -> None:
        """Take a bundle whole."""
        if not bundle.width:
            self._store(sink, bundle)
            self._note(LaneName(0, str(sink), bundle.lane), bundle)
            return
        if (before := self.last_of(sink, bundle)) > bundle.last:
            raise Violation("output", f"a strand of {bundle.width} goes back from {before.hex()}")
        self._note(self._strand(sink, bundle), bundle)
        for lane in range(bundle.lane, bundle.lane + bundle.width):
            self._store(sink, self._part_of(sink, lane, bundle))

    def _strand(self, sink: int, bundle: Bundle) -> LaneName:
        """The name of a bundle's strand: one that another life had, with the same lanes, has the same."""
        units = self._plan.units_of_lanes(bundle.lane, bundle.lane + bundle.width)
        return LaneName(0, str(sink), units.start, units.stop)

    def _note(self, name: LaneName, bundle: Bundle) -> None:
        if bundle.last:
            self.names[name] = OrderKey.of(bundle.last)

    def _part_of(self, sink: int, lane: int, bundle: Bundle) -> Bundle:
        """What a strand's bundle has of a lane, and says of it."""
        pieces = []
        before = self._last_at(sink, lane)
        for piece in bundle.pieces:
            chosen = [n for n, unit in enumerate(piece.units) if self._lane_of_unit[unit] == lane]
            if chosen:
                ats, rows = [piece.ats[n] for n in chosen], [piece.rows[n] for n in chosen]
                pieces.append(Piece(piece.tick, ats, rows, [piece.units[n] for n in chosen]))
        if pieces and not before < pieces[0].ats[0]:
            raise Violation("output", f"lane {lane} is given {pieces[0].ats[0].hex()} after {before.hex()}")
        last = max(before, bundle.last)
        return Bundle(lane, bundle.number, pieces, last, bundle.floors, bundle.covered, bundle.mark)

    def _store(self, sink: int, bundle: Bundle) -> None:
        lane = self.lanes.setdefault(self.at(sink, bundle.lane), Lane())
        if not (lane.last < bundle.last or (len(bundle) == 0 and lane.last == bundle.last)):
            raise Violation("output", f"lane {bundle.lane} is given {bundle.last.hex()} after {lane.last.hex()}")
        if bundle.pieces and bundle.pieces[0].tick < lane.mark:
            raise Violation("output", f"lane {bundle.lane} is given {bundle.pieces[0].tick} below its mark {lane.mark}")
        if bundle.mark is not None:
            lane.mark = max(lane.mark, bundle.mark)
        if sink < 0:
            lane.letters += bundle.rows
        elif sink not in self._encoders:
            given = {at: answer for each in bundle.pieces for at, answer in zip(each.ats, each.rows, strict=True)}
            places = {place for held in self._had(sink, bundle.lane) for place in held.places}
            twice = places & {place_of(at) for at in given}
            if twice:
                raise Violation("output", f"lane {bundle.lane} keeps two answers for {min(twice).hex()}")
            lane.places |= {place_of(at) for at in given}
            lane.answers |= given
        elif len(bundle):
            messages = self._encoders[sink].encode(bundle.lane, bundle.pieces)
            lane.messages += [(key, value, timestamp) for _, _, key, value, timestamp, _ in messages]
        lane.ticks += [piece.tick for piece in bundle.pieces for _ in piece.ats]
        lane.units += [unit for piece in bundle.pieces for unit in piece.units]
        lane.last = bundle.last
        self.kept |= set(bundle.floors)
        self.kept -= set(bundle.covered)

    def last(self) -> dict[tuple[int, int], OrderKey]:
        """What recovery asks for: per sink and lane."""
        found = {}
        fronts = {lane for sink, lane in self.lanes if sink == letters_of(0)}
        for sink in {sink for sink, _ in self.lanes}:
            for lane in fronts if sink == letters_of(0) else range(self._plan.lanes):
                units = range(0) if sink == letters_of(0) else self._plan.units_of_lanes(lane, lane + 1)
                if (key := last_of(self.names, LaneName(0, str(sink), lane), units)) is not None:
                    found[sink, lane] = key
        return found

    def letters(self) -> list[Dead]:
        """All dead letters."""
        return [letter for lane in self.lanes.values() for letter in lane.letters]

    def answers(self, log: Vertex | None, lanes: Iterable[int], start: int = NO_TICK) -> dict[bytes, Answer]:
        """The answers of a call's log from a tick on, in all partitions that lanes had; none if none are kept."""
        if log is None:
            return {}
        counts = self._plan.lane_counts
        places = {each for lane in lanes for each in lane_partitions.partitions_before(counts, lane)}
        found = [self.lanes[log.id, place] for place in sorted(places) if (log.id, place) in self.lanes]
        return {at: answer for lane in found for at, answer in lane.answers.items() if tick_of(at) >= start}

    def floors(self) -> Floors:
        """What recovery asks for besides."""
        return Floors(self.kept)

    def cut(self, front: int, offset: int) -> Floors:
        """Drop the floors that say nothing about a front's offsets from here on; return all that there were."""
        before, kept = self.floors(), self.floors()
        kept.cut(front, offset)
        self.kept = set(kept)
        return before
