"""The place before a sink that releases records in order, each once, taken-back ones never (R12, R13, R18)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lowtide.fronts.floors import NO_TICK, Floors
from lowtide.operators.batch import Batch
from lowtide.operators.bundle import FIRST_KEY, Bundle
from lowtide.operators.meta import Meta
from lowtide.operators.order import OrderKey, pack
from lowtide.operators.pending import Pending
from lowtide_tracker import Floor

__all__ = ["Barrier"]


@dataclass(slots=True, eq=False)
class _Lane:
    """What one lane has released and not yet made durable.

    Attributes:
        last: Of the last record that was given to the sink, or was there when the life began.
        given: The version of the floors that the sink was given.
        kept: The version of the floors that is durable.
        durable: `last` as far as it is durable.
        released: Batches that wait for a bundle, in order.
        in_flight: The bundle that the sink has.
        bundles: How many there have been.
    """

    last: OrderKey = FIRST_KEY
    given: int = 0
    kept: int = 0
    durable: OrderKey = FIRST_KEY
    released: deque[Batch] = field(default_factory=deque)
    in_flight: Bundle | None = None
    bundles: int = 0

    def first_tick(self) -> int | None:
        """The tick below which all that was released is durable; None if all of it is."""
        for batch in (self.in_flight.batch if self.in_flight else None, *self.released):
            if batch is not None and len(batch):
                return int(batch.meta.tick[0])
        return None


class Barrier:
    """The barrier of one sink at one worker.

    Costs per record, all in numpy and pyarrow: one sort by order key, one by lane, one copy.

    Args:
        name: The sink's name, for errors.
        lanes: The lanes that this worker owns.
        lane_of_unit: int32[units], as `Plan.lane_of_unit` gives it.
        depth: The longest child path of the records.
        last: Per lane what the sink said at recovery; a lane that is missing was never delivered to.
        floors: The floors found at recovery.
        max_bundle_records: No bundle has more records.
        keeps_floors: Whether `delivered_time` is asked for; a barrier of dead letters, whose floors others keep, is
            asked for `durable_time` alone.

    Attributes:
        backlog: How many records are released and not durable.
    """

    def __init__(
        self,
        name: str,
        *,
        lanes: Iterable[int],
        lane_of_unit: npt.NDArray[np.int32],
        depth: int,
        last: Mapping[int, OrderKey] | None = None,
        floors: Iterable[Floor] = (),
        max_bundle_records: int = 10_000,
        keeps_floors: bool = True,
    ) -> None:
        assert max_bundle_records >= 1, "a bundle holds one record at least"
        self.backlog = 0
        self._name = name
        self._lane_of_unit = lane_of_unit
        self._depth = depth
        self._pending = Pending(f'the barrier before "{name}"', depth)
        self._floors = Floors(floors)
        self._found_version = self._floors.version
        self._max_bundle_records = max_bundle_records
        found = dict(last or {})
        # What was found is durable already, in whichever lane: it is not given again.
        version = self._found_version
        at = {lane: found.get(lane, FIRST_KEY) for lane in sorted(lanes)}
        self._lanes = {lane: _Lane(key, given=version, kept=version, durable=key) for lane, key in at.items()}
        self._keeps_floors = keeps_floors
        assert self._lanes, "a barrier owns one lane at least"
        # Only where a lane has a last record, and only until min time has passed it, is there anything to drop.
        self._found = {lane: key for lane, key in found.items() if lane in self._lanes}
        # (version of the floors, min time released with them), until some lane has made that version durable.
        self._resting: deque[tuple[int, int]] = deque()
        self._kept_time = NO_TICK
        self._found_tick = max((key.tick for key in self._found.values()), default=NO_TICK)

    def __len__(self) -> int:
        """How many records and tombstones wait for min time."""
        return len(self._pending)

    @property
    def lanes(self) -> tuple[int, ...]:
        """The lanes that this worker owns, ascending."""
        return tuple(self._lanes)

    @property
    def waits(self) -> bool:
        """Whether min time would bring something to a sink: records wait for it, and some lane is free."""
        return len(self._pending) > 0 and any(state.in_flight is None for state in self._lanes.values())

    @property
    def released(self) -> int:
        """The min time that was told last: everything below it has been released."""
        return self._pending.released

    def add(self, batch: Batch) -> None:
        """Take items and tombstones, an item before its tombstone; O(1) besides a look at their ticks.

        Raises:
            TimeWentBack: a record is below what has been released: it is never delivered.
        """
        self._pending.add(batch)

    def advance(self, min_time: int, floors: Iterable[Floor] = ()) -> list[Bundle]:
        """Release everything below min time; O(n log n) for what is released.

        Args:
            min_time: Of the barrier's segment.
            floors: The floors and caps that came with it.

        Returns:
            A bundle for every lane that has something released and nothing in flight.

        Raises:
            UnmatchedTombstone: a tombstone came without its item, or a second item with the same order key.
        """
        self._floors.merge(floors)
        for lane, part in self._pending.release_parts(min_time, self._lane_of_unit):
            assert lane in self._lanes, f'lane {lane} of "{self._name}" has another owner'
            pieces = self._undelivered(lane, part)
            self._lanes[lane].released.extend(pieces)
            self.backlog += sum(map(len, pieces))
        if self._found and self._pending.released > self._found_tick:
            self._found.clear()
        if self._keeps_floors:
            if self._resting and self._resting[-1][0] == self._floors.version:
                self._resting.pop()
            self._resting.append((self._floors.version, self.released))
            self._keep()
        return [bundle for lane in self._lanes if (bundle := self._next(lane)) is not None]

    def durable(self, lane: int) -> Bundle | None:
        """Take the sink's word that the lane's bundle is durable; return the next one, if there is any."""
        state = self._lanes[lane]
        assert state.in_flight is not None, f'lane {lane} of "{self._name}" has nothing in flight'
        self.backlog -= len(state.in_flight)
        state.durable = state.in_flight.last
        state.in_flight = None
        state.kept = state.given
        self._keep()
        return self._next(lane)

    def kept(self) -> dict[int, OrderKey]:
        """By lane the order key up to which records are durable, of lanes that have any."""
        return {lane: state.durable for lane, state in self._lanes.items() if state.durable != FIRST_KEY}

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
    def floors_to_keep(self) -> bool:
        """Whether there are floors that are durable in no lane."""
        return bool(self._floors.since(self._kept_version()))

    def keep_floors(self) -> Bundle | None:
        """A bundle of floors alone, if there are any to keep that no bundle in flight carries, and a lane is free."""
        given = max(self._found_version, *(state.given for state in self._lanes.values()))
        if not self._floors.since(given):
            return None
        free = next((lane for lane, state in self._lanes.items() if state.in_flight is None), None)
        return None if free is None else self._send(free, Batch(None, _NO_RECORDS, rows=[]))

    def forget(self, front: int, offset: int) -> None:
        """Drop the floors that say nothing about a front's offsets from here on: a committed manifest has the rest."""
        self._floors.cut(front, offset)

    def check(self) -> None:
        """Invariants, for simulations."""
        for lane, state in self._lanes.items():
            previous = state.last
            for batch in state.released:
                assert len(batch), "nothing empty waits"
                for key in (OrderKey.at(batch.meta, index) for index in range(len(batch))):
                    assert previous < key, f"lane {lane}: R12"
                    assert key.tick < self.released, f"lane {lane}: R12, strict"
                    previous = key
            assert state.in_flight is not None or not state.released, "the next bundle goes out at once"

    def _keep(self) -> None:
        """Note how far min time rests on durable floors alone."""
        kept = self._kept_version()
        while self._resting and self._resting[0][0] <= kept:
            self._kept_time = self._resting.popleft()[1]

    def _kept_version(self) -> int:
        """The version of the floors that is durable, in a lane here or since before this life."""
        return max(self._found_version, *(state.kept for state in self._lanes.values()))

    def _undelivered(self, lane: int, batch: Batch) -> list[Batch]:
        """What an earlier life has not delivered, in pieces that fit into a bundle."""
        start, n = 0, len(batch)
        found = self._found.get(lane)
        if found is not None and int(batch.meta.tick[0]) <= found.tick:
            packed = pack(batch.meta, self._depth)
            start = int(np.searchsorted(packed, pack(found.meta(), self._depth)[0], side="right"))
        size = self._max_bundle_records
        if start == 0 and n <= size:
            return [batch]
        return [batch.take(np.arange(at, min(at + size, n))) for at in range(start, n, size)]

    def _next(self, lane: int) -> Bundle | None:
        """The lane's next bundle, of as many pieces as fit; None if one is in flight, or nothing is released."""
        state = self._lanes[lane]
        if state.in_flight is not None or not state.released:
            return None
        pieces = [state.released.popleft()]
        room = self._max_bundle_records - len(pieces[0])
        while state.released and len(state.released[0]) <= room:
            room -= len(state.released[0])
            pieces.append(state.released.popleft())
        return self._send(lane, Batch.concat(pieces))

    def _send(self, lane: int, batch: Batch) -> Bundle:
        state = self._lanes[lane]
        floors = self._floors.since(state.given)
        if len(batch):
            state.last = OrderKey.at(batch.meta, len(batch) - 1)
        state.given = self._floors.version
        state.bundles += 1
        state.in_flight = Bundle(lane, state.bundles, batch, state.last, floors)
        return state.in_flight


_NO_RECORDS = Meta.of_source(0, 0, np.zeros(0, np.int64), np.zeros(0, np.int64))
