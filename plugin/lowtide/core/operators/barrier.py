"""The place before a sink that releases records in order, each once, taken-back ones never (R12, R13, R18)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from lowtide.core.fronts.floors import NO_TICK, Floors
from lowtide.core.operators.held.pending import Pending
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.bundle import NO_KEY, Bundle, Piece
from lowtide.core.operators.order.order import OrderKey, mark_key
from lowtide_tracker import Floor


class _Lane:
    """The records that one lane, or strand, has released and not yet made durable.

    Attributes:
        last: Of the last record or mark that was given to the sink, or was there when the life began.
        durable: `last` as far as it is durable.
        given: The version of the floors that the sink was given.
        released: Pieces that wait for a bundle, in order.
        in_flight: The bundle that the sink has.
        bundles: How many there have been.
        marked: The mark that the sink was given last.
        owed: The lowest mark that is due and not durable; None if there is none.
    """

    __slots__ = ("bundles", "durable", "given", "in_flight", "last", "marked", "owed", "released")

    def __init__(self, last: bytes) -> None:
        self.last = self.durable = last
        self.marked = NO_TICK
        self.given = 0
        self.released: deque[Piece] = deque()
        self.in_flight: Bundle | None = None
        self.bundles = 0
        self.owed: int | None = None

    def first_tick(self) -> int | None:
        """The tick below which all that was released is durable, marks included; None if all of it is."""
        first = self._first_piece()
        if self.owed is not None:
            return self.owed - 1 if first is None else min(first, self.owed - 1)
        return first

    def _first_piece(self) -> int | None:
        flying = self.in_flight
        if flying is not None and flying.pieces:
            return flying.pieces[0].tick
        return self.released[0].tick if self.released else None


class Barrier:
    """The barrier of one sink at one worker; what it costs per record are a few list operations.

    Each lane has an order, bundles and a `last` of its own; or all lanes of the worker are one *strand* that has them,
    and each lane is what the strand has of it. A strand costs the same however many lanes it has, and lanes that share
    a partition need nothing more. Its `last` says for each of its lanes that all up to there is delivered.

    Args:
        name: The sink's name, for errors.
        lanes: The lanes that this worker owns.
        lane_of_unit: By hash unit its lane, as `Plan.lane_of_unit` gives it.
        last: Per lane what the sink said at recovery; a lane that is missing was never delivered to.
        max_bundle_records: No bundle has more records.
        keeps_floors: True if `delivered_time` is used; a barrier of dead letters, whose floors others keep, has only
            `durable_time`. False too where others call `rest`.
        strand: Whether the lanes are one strand, which has the number of the first one.

    Attributes:
        backlog: The number of records released and not durable.
    """

    def __init__(
        self,
        name: str,
        *,
        lanes: Iterable[int],
        lane_of_unit: Sequence[int],
        last: Mapping[int, OrderKey] | None = None,
        max_bundle_records: int = 10_000,
        keeps_floors: bool = True,
        strand: bool = False,
    ) -> None:
        assert max_bundle_records >= 1, "a bundle holds one record at least"
        self.backlog = 0
        self._name = name
        self._lane_of_unit = lane_of_unit
        self._pending = Pending(f'the barrier before "{name}"')
        # What min time rests on and is not durable here yet; what was found at recovery is durable already.
        self._floors = Floors()
        self._kept_version = 0
        # By front the last floor that was given to a sink.
        self._given: dict[int, Floor] = {}
        self._max_bundle_records = max_bundle_records
        self._mark_every, self._mark = 0, NO_TICK
        self._unmarked = False
        self._own = own = tuple(sorted(lanes))
        assert own, "a barrier owns one lane at least"
        self._begun = {lane: key.packed() for lane, key in (last or {}).items() if lane in own}
        # Only where a lane has a last record, and only until min time has passed it, is there anything to drop.
        self._found = dict(self._begun)
        self._found_tick = max((key.tick for lane, key in (last or {}).items() if lane in own), default=NO_TICK)
        # Other strands may have had some of its lanes: it begins where all of them have been. So its `last` never goes
        # back, even if there are only floors to keep.
        self._strand = _Lane(min(self._begun.get(lane, NO_KEY) for lane in own)) if strand else None
        if self._strand is None:
            self._lanes = {lane: _Lane(self._found.get(lane, NO_KEY)) for lane in own}
        else:
            self._lanes = {own[0]: self._strand}
        self._width = len(own) if strand else 0
        self._keeps_floors = keeps_floors
        # (version of the floors, min time released with them), until some lane has made that version durable.
        self._resting: deque[tuple[int, int]] = deque()
        self._kept_time = NO_TICK

    def mark_lanes(self, every: int, start: int = NO_TICK, *, again: bool = False) -> None:
        """Give each lane a mark when min time has passed it, by which the sink knows that the lane is complete below.

        A strand's mark is that of each of its lanes. One that had a later mark in an earlier life keeps it: of a lane
        the furthest `last` counts, and a strand's own never goes back, as it begins where all of its lanes have been.

        Args:
            every: The distance of marks in ticks.
            start: The min time at which the life begins: marks up to it are durable, or say nothing.
            again: Whether to give the last of these once more, as partitions that a growth made have not had it.
        """
        self._mark_every, self._mark = every, start // every * every
        self._unmarked = again and self._mark > 0
        for lane in self._lanes.values():
            lane.marked = NO_TICK if self._unmarked else self._mark

    def __len__(self) -> int:
        """Return the number of records and tombstones that wait for min time."""
        return len(self._pending)

    @property
    def lanes(self) -> tuple[int, ...]:
        """The lanes that this worker owns, ascending."""
        return self._own

    @property
    def first_tick(self) -> int | None:
        """The lowest tick that waits for min time; None if nothing does."""
        return self._pending.first_tick

    @property
    def waits(self) -> bool:
        """True if min time would bring something to a sink: records wait for it, and some lane is free."""
        return len(self._pending) > 0 and any([state.in_flight is None for state in self._lanes.values()])

    @property
    def released(self) -> int:
        """The last min time it got: everything below it has been released."""
        return self._pending.released

    def mark_due(self, min_time: int) -> bool:
        """Return whether lanes are to be marked once everything below min time is released."""
        return self._unmarked or self._passes_mark(min_time)

    @property
    def kept_time(self) -> int:
        """The min time that rests on floors alone which are durable here, as far as it is known by `rest`."""
        return self._kept_time

    def rest_on(self, floors: Iterable[Floor]) -> None:
        """Take the floors that came with min times; `advance` does as much."""
        self._floors.merge(floors)

    def rest(self, min_time: int) -> None:
        """Note that a min time rests on all floors so far; of a barrier that lags behind it others call this."""
        version = self._floors.version
        if version <= self._kept_version:
            self._resting.clear()
            self._kept_time = min_time  # All of them are durable.
            return
        if self._resting and self._resting[-1][0] == version:
            self._resting.pop()
        self._resting.append((version, min_time))
        self._keep()

    def add(self, batch: Batch) -> None:
        """Take items and tombstones, an item before its tombstone; see `Pending.add`.

        Raises:
            TimeWentBack: a record is below what has been released: it is never delivered.
        """
        self._pending.add(batch)

    def advance(self, min_time: int, floors: Iterable[Floor] = ()) -> list[Bundle]:
        """Release everything below min time.

        Args:
            min_time: Of the barrier's segment.
            floors: The floors and caps that came with it.

        Returns:
            A bundle for every lane that has something released, or is to be marked, and nothing in flight.

        Raises:
            UnmatchedTombstone: a tombstone came without its item, or a second item with the same order key.
        """
        self._floors.merge(floors)
        released = self._pending.release(min_time)
        for batch in released:
            self._part(batch)
        if self._found and self.released > self._found_tick:
            self._found.clear()
        if self._keeps_floors:
            self.rest(self.released)
        unmarked, self._unmarked = self._unmarked, False
        if not (self._due_mark() or released or unmarked):
            return []
        return [bundle for lane in self._lanes if (bundle := self._next(lane)) is not None]

    def durable(self, lane: int) -> Bundle | None:
        """Note that a lane's bundle, or the strand's, is durable in the sink; return the next one, if there is any."""
        state = self._lanes[lane]
        flying = state.in_flight
        assert flying is not None, f'lane {lane} of "{self._name}" has nothing in flight'
        self.backlog -= len(flying)
        state.durable = flying.last
        state.in_flight = None
        if flying.mark is not None:
            state.owed = self._mark if self._mark > flying.mark else None
        if state.given > self._kept_version:
            self._kept_version = state.given
            self._floors.settle(state.given)
            self._keep()
        return self._next(lane)

    def passed(self, unit: int, at: bytes) -> bool:
        """Return whether a record of a hash unit lies at or below what its lane had when the life began."""
        return bool(self._found) and at <= self._found.get(self._lane_of_unit[unit], NO_KEY)

    @property
    def resumes(self) -> bool:
        """True while records may come that an earlier life has delivered."""
        return bool(self._found)

    def kept(self) -> dict[int, OrderKey]:
        """By lane the order key up to which records are durable, of lanes that have any."""
        if self._strand is None:
            kept = {lane: state.durable for lane, state in self._lanes.items()}
        else:
            kept = {lane: max(self._begun.get(lane, NO_KEY), self._strand.durable) for lane in self._own}
        return {lane: OrderKey.of(at) for lane, at in kept.items() if at}

    @property
    def delivered_time(self) -> int:
        """The tick below which everything is durable in the sink, of all lanes here (R18); O(lanes).

        A lane with nothing to deliver moves with min time, as far as the floors that min time rests on are durable in
        some lane: else a later life could label what comes below it (`keep_floors` sees to them where nothing is
        delivered for long).
        """
        return min(self._kept_time, self.durable_time)

    @property
    def durable_time(self) -> int:
        """The tick below which every record is durable in the sink, of all lanes here; O(lanes)."""
        ticks = [tick for state in self._lanes.values() if (tick := state.first_tick()) is not None]
        return min([self.released, *ticks])

    @property
    def sent_time(self) -> int:
        """The tick below which every record has been given to the sink, durable or not, of all lanes here; O(lanes)."""
        return min([self.released, *[state.released[0].tick for state in self._lanes.values() if state.released]])

    @property
    def floors_to_keep(self) -> bool:
        """True if there are floors that are durable in no lane."""
        return len(self._floors) > 0

    def keep_floors(self) -> Bundle | None:
        """A bundle of floors alone, if there are any to keep that no bundle in flight carries, and a lane is free."""
        given = max(state.given for state in self._lanes.values())
        if not self._floors.since(given):
            return None
        free = next((lane for lane, state in self._lanes.items() if state.in_flight is None), None)
        return None if free is None else self._send(free, [])

    def forget(self, front: int, offset: int) -> None:
        """Drop the floors that say nothing about a front's offsets from here on: a committed manifest has the rest.

        Those that a manifest's T rests on are durable (R15), so this drops what the dead letters' barrier has gathered.
        """
        self._floors.cut(front, offset)

    def check(self) -> None:
        """Invariants, for simulations."""
        for lane, state in self._lanes.items():
            previous = state.last
            for piece in state.released:
                assert len(piece), "nothing empty waits"
                owned = {self._lane_of_unit[unit] for unit in piece.units} <= {*self._own}
                assert owned, f'a lane of "{self._name}" has another owner'
                assert piece.tick < self.released, f"lane {lane}: R12, strict"
                for at in piece.ats:
                    assert previous < at, f"lane {lane}: R12"
                    assert OrderKey.of(at).tick == piece.tick, f"lane {lane}: a piece has one tick"
                    previous = at
            assert state.in_flight is not None or not state.released, "the next bundle goes out at once"

    def _part(self, batch: Batch) -> None:
        """Give records of one tick, in order, to their lanes, or to the strand."""
        if self._strand is not None:
            self._release(self._own[0], batch)
            return
        lane_of_unit, units = self._lane_of_unit, batch.units
        first = lane_of_unit[units[0]]
        if len(units) == 1 or all([lane_of_unit[unit] == first for unit in units]):
            self._release(first, batch)
            return
        parts: dict[int, list[int]] = {}
        for index, unit in enumerate(units):
            parts.setdefault(lane_of_unit[unit], []).append(index)
        for lane, chosen in parts.items():
            self._release(lane, batch.pick(chosen))

    def _release(self, lane: int, batch: Batch) -> None:
        """Append what an earlier life has not delivered to what waits for a bundle, in pieces that fit into one."""
        state = self._lanes.get(lane)
        assert state is not None, f'lane {lane} of "{self._name}" has another owner'
        tick = batch.ticks[0]
        if self._found:
            batch = self._undelivered(batch)
        n, size = len(batch.ats), self._max_bundle_records
        self.backlog += n
        if n <= size:
            if n:
                state.released.append(Piece(tick, batch.ats, batch.rows, batch.units))
            return
        for start in range(0, n, size):
            part = slice(start, start + size)
            state.released.append(Piece(tick, batch.ats[part], batch.rows[part], batch.units[part]))

    def _undelivered(self, batch: Batch) -> Batch:
        """The records after what their own lanes had when the life began."""
        found, lane_of_unit = self._found, self._lane_of_unit
        places = zip(batch.ats, batch.units, strict=True)
        return batch.where([at > found.get(lane_of_unit[unit], NO_KEY) for at, unit in places])

    def _keep(self) -> None:
        """Note how far min time rests on durable floors alone."""
        while self._resting and self._resting[0][0] <= self._kept_version:
            self._kept_time = self._resting.popleft()[1]

    def _passes_mark(self, min_time: int) -> bool:
        every = self._mark_every
        return every > 0 and min_time // every * every > self._mark

    def _due_mark(self) -> bool:
        """Note the newest mark that min time has passed; return whether there is one that was not there before."""
        if not self._passes_mark(self.released):
            return False
        self._mark = self.released // self._mark_every * self._mark_every
        for state in self._lanes.values():
            if state.owed is None:
                state.owed = self._mark
        return True

    def _next(self, lane: int) -> Bundle | None:
        """The lane's next bundle, of as many pieces as fit; None if one is in flight, or there is nothing to say."""
        state = self._lanes[lane]
        if state.in_flight is not None:
            return None
        if not state.released:
            return self._send(lane, []) if state.marked < self._mark else None
        pieces = [state.released.popleft()]
        room = self._max_bundle_records - len(pieces[0])
        while state.released and len(state.released[0]) <= room:
            room -= len(state.released[0])
            pieces.append(state.released.popleft())
        return self._send(lane, pieces)

    def _send(self, lane: int, pieces: list[Piece]) -> Bundle:
        state = self._lanes[lane]
        version = self._floors.version
        # What is durable in one lane is so for all; what is only under way there may still be lost.
        floors = () if version == state.given else self._floors.since(state.given)
        if pieces:
            state.last = pieces[-1].ats[-1]
        state.given = version
        state.bundles += 1
        mark = None
        if state.marked < self._mark and state.marked < (due := self._complete(state)):
            mark = state.marked = due
            state.owed = mark if state.owed is None else min(state.owed, mark)
            # A later life relies on it as on a record: its new fronts open above (R3).
            state.last = max(state.last, mark_key(mark))
        covered = self._covered(floors)
        state.in_flight = Bundle(lane, state.bundles, pieces, state.last, floors, covered, mark, self._width)
        return state.in_flight

    def _complete(self, state: _Lane) -> int:
        """The newest mark below which all that was released has been given; the rest waits for other bundles."""
        if not state.released:
            return self._mark
        return min(self._mark, state.released[0].tick // self._mark_every * self._mark_every)

    def _covered(self, floors: Iterable[Floor]) -> tuple[Floor, ...]:
        """Note floors that a sink is given; return those given before that they take the place of."""
        covered = []
        for floor in floors:
            before = None if floor.cap else self._given.get(floor.front)
            if before is not None and before.offset == floor.offset and before.tick < floor.tick:
                covered.append(before)
            if not floor.cap:
                self._given[floor.front] = floor
        return tuple(covered)
