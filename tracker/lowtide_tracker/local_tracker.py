"""The local tracker: sums up one worker's messages to the tracker between two flushes."""

from collections import deque
from collections.abc import Iterable
from operator import itemgetter

from lowtide_tracker.ack_values import AckValues
from lowtide_tracker.errors import HeartbeatWentBack, ProtocolError
from lowtide_tracker.fields import Ack, Due
from lowtide_tracker.floors import Floor, Floors
from lowtide_tracker.messages import Absolute, Flush, Notice
from lowtide_tracker.min_times import MinTimes
from lowtide_tracker.table import INT64_MIN

MAX_UNACKNOWLEDGED = 10_000
"""Limit on flushes that wait to be applied; at the limit no new one is made, and acks are still summed up."""
COMPACT_ABOVE = 1024
"""Sums per segment that are kept without checking whether min time has passed them."""
_TICK = itemgetter(1)


class LocalTracker:
    """Sums up acks, keeps the newest heartbeats and dues and makes the numbered flushes of one worker.

    Its user must keep these rules (R5, R6): fold the acks of a frame's output before the frame's own ack, or before
    the same `flush`; call `heartbeat` after the acks of the ticks it closes; `hold` a tick in the segment that will
    receive output before acknowledging the input that causes this output later, and `release` it after folding the
    output; likewise `due` for output much later.

    Args:
        worker: its number in the life's register.
        incarnation: the life.
        start: the min time of segments without news.
        max_unacknowledged: see `MAX_UNACKNOWLEDGED`.
    """

    def __init__(
        self,
        worker: int,
        incarnation: int,
        *,
        start: int = INT64_MIN,
        max_unacknowledged: int = MAX_UNACKNOWLEDGED,
    ) -> None:
        self.worker = worker
        self._values = AckValues(worker, incarnation)
        self._max_unacknowledged = max_unacknowledged
        self._sums: dict[int, dict[int, int]] = {}
        """Per segment: tick -> XOR of what was folded since the last flush; no zeros."""
        self._kept: dict[int, dict[int, int]] = {}
        """Per segment: tick -> XOR of all that was flushed; no zeros, and little of what is below min time."""
        self._compact_at: dict[int, int] = {}
        self._holds: dict[tuple[int, int, int], int] = {}
        """(segment, tick, owner) -> value."""
        self._heartbeats: dict[int, int] = {}
        """The newest per front, flushed or not."""
        self._flushed_heartbeats: dict[int, int] = {}
        self._new_heartbeats: dict[int, int] = {}
        """Those above the flushed ones."""
        self._dues: dict[tuple[int, int], int | None] = {}
        """(segment, owner) -> the newest, flushed or not."""
        self._flushed_dues: dict[tuple[int, int], int | None] = {}
        self._new_dues: dict[tuple[int, int], int | None] = {}
        """Those that have changed since they were flushed."""
        self._floors = Floors()
        self._number = 0
        self.flushed_acks: dict[int, int] = {}
        """Per segment: how many entries the flushes have had."""
        self._unacknowledged: deque[Flush] = deque()
        self.min_times = MinTimes(start)
        """The min times received from the tracker."""

    # -- what the worker does --------------------------------------------------------------------------------------

    def new_value(self) -> int:
        """A value for one frame and one target."""
        return self._values.next()

    def fold(self, segment: int, ticks: Iterable[int], value: int) -> None:
        """Fold a frame's value at each of its distinct ticks, as its sender or as its receiver. O(ticks).

        ``segment`` is the receiver's. The ticks are Python's integers. What sender and receiver fold before the same
        `flush` cancels out here, and costs the tracker nothing.
        """
        sums = self._sums.get(segment)
        if sums is None:
            sums = self._sums[segment] = {}
        known = sums.get
        for tick in ticks:
            total = known(tick, 0) ^ value
            if total:
                sums[tick] = total
            else:
                sums.pop(tick, None)

    def hold(self, segment: int, tick: int, *, owner: int = 0) -> bool:
        """Keep a tick of a segment open because something will be emitted into it later (R6); twice is once.

        Args:
            segment: the one that will receive.
            tick: at which it will.
            owner: who will emit: holds of several in one process do not know of each other.

        Returns:
            Whether this owner did not hold it before.
        """
        key = (segment, tick, owner)
        if key in self._holds:
            return False
        value = self._holds[key] = self.new_value()
        self.fold(segment, (tick,), value)
        return True

    def release(self, segment: int, tick: int, *, owner: int = 0) -> None:
        """End an owner's hold; ``KeyError`` if there is none. Fold what was emitted first."""
        self.fold(segment, (tick,), self._holds.pop((segment, tick, owner)))

    def due(self, segment: int, tick: int | None, *, owner: int = 0) -> None:
        """Set the tick from which on an owner will send into a segment without further input (R6b).

        Lower it before the `flush` with the ack of the cause, and raise it after folding what was sent. It may lie as
        far ahead as it likes. An owner that is registered says so once at least, be it None: min time waits for it.

        Args:
            segment: the one that will receive.
            tick: the smallest at which something will be sent; None if nothing will.
            owner: who will send, by its number in the segment's register.
        """
        key = (segment, owner)
        if key not in self._dues or self._dues[key] != tick:
            self._dues[key] = self._new_dues[key] = tick

    def heartbeat(self, front: int, tick: int) -> None:
        """This front labels nothing below ``tick`` any more; ``HeartbeatWentBack`` if it said more before."""
        before = self._heartbeats.get(front)
        if before is None or tick > before:
            self._heartbeats[front] = self._new_heartbeats[front] = tick
        elif tick < before:
            raise HeartbeatWentBack(front, tick, before)

    def floor(self, floor: Floor) -> None:
        """A decision about labels, sent with, or before, the first heartbeat that rests on it."""
        self._floors.add((floor,))

    def forget_floors(self, front: int, before_offset: int) -> None:
        """Drop a front's floors below an offset, once a commit holds the label before it."""
        self._floors.forget(front, before_offset)

    # -- what goes to the tracker ----------------------------------------------------------------------------------

    @property
    def flushed(self) -> int:
        """The number of the last flush that was made; 0 before the first."""
        return self._number

    @property
    def unflushed(self) -> bool:
        """Return whether something is in no flush yet, also because too many wait to be applied. O(segments)."""
        return any(self._sums.values()) or bool(self._new_heartbeats or self._new_dues) or self._floors.has_new

    def flush(self) -> Flush | None:
        """Everything since the flush before as one whole, or None: there is nothing, or too much waits to be applied.

        Entries go by decreasing tick (papers, tracker-implementation). A few microseconds for a few entries.
        """
        if len(self._unacknowledged) >= self._max_unacknowledged:
            return None
        acks: list[Ack] = []
        counts = self.flushed_acks
        for segment, sums in self._sums.items():
            if sums:
                self._keep(segment, sums)
                counts[segment] = counts.get(segment, 0) + len(sums)
                acks += [(segment, tick, value) for tick, value in sums.items()]
                sums.clear()
        beats, floors, dues = self._new_heartbeats, self._floors.take_new(), self._new_dues
        if not (acks or beats or floors or dues):
            return None
        acks.sort(key=_TICK, reverse=True)
        self._number += 1
        flush = Flush(
            self.worker, self._number, tuple(acks), tuple(beats.items()), floors, _listed(dues) if dues else ()
        )
        if beats:
            self._flushed_heartbeats.update(beats)
            beats.clear()
        if dues:
            self._flushed_dues.update(dues)
            dues.clear()
        self._unacknowledged.append(flush)
        return flush

    def unacknowledged(self) -> tuple[Flush, ...]:
        """The flushes that are not known to have been applied, oldest first: to be sent again on a new connection."""
        return tuple(self._unacknowledged)

    def applied(self, number: int) -> None:
        """The tracker has applied the flushes up to this number."""
        if number > self._number:
            raise ProtocolError(
                f"the tracker applied flush {number} of worker {self.worker}, which made {self._number}: an "
                "earlier process was this worker, and its state is lost: recover from the last commit"
            )
        while self._unacknowledged and self._unacknowledged[0].number <= number:
            self._unacknowledged.popleft()

    def absolute(self) -> Absolute:
        """Return all that this worker has flushed so far as one: for a tracker that is being rebuilt. O(open ticks)."""
        acks = [
            (segment, tick, value)
            for segment, sums in self._kept.items()
            for tick, value in sums.items()
            if tick >= self.min_time(segment)
        ]
        acks.sort(key=_TICK, reverse=True)
        beats = tuple(self._flushed_heartbeats.items())
        # Floors that wait for the next flush may go as well: one more than min time rests on is a floor all the same.
        dues, floors = _listed(self._flushed_dues), self._floors.all()
        return Absolute(self.worker, self._number, tuple(acks), beats, floors, dues, self.min_times.items(self._kept))

    # -- what comes from the tracker -------------------------------------------------------------------------------

    def hear(self, notice: Notice) -> bool:
        """Take a notice, in order and once; False if it says nothing new, ``NoticeGap`` if one is missing."""
        if not self.min_times.hear(notice):
            return False
        for segment in notice.min_times:
            self._compact_if_large(segment)
        return True

    def min_time(self, segment: int) -> int:
        """The min time of a segment as received; ``start`` before that."""
        return self.min_times[segment]

    @property
    def global_min(self) -> int:
        """The smallest min time of all segments as received; ``start`` before that."""
        return self.min_times.global_min

    # -- parts -----------------------------------------------------------------------------------------------------

    def _keep(self, segment: int, sums: dict[int, int]) -> None:
        """Add what is flushed of a segment to what was flushed before."""
        kept = self._kept.setdefault(segment, {})
        for tick, value in sums.items():
            total = kept.get(tick, 0) ^ value
            if total:
                kept[tick] = total
            else:
                del kept[tick]
        # Notices leave out segments that it sends into, so it looks where sums grow as well.
        self._compact_if_large(segment)

    def _compact_if_large(self, segment: int) -> None:
        """Drop sums below min time. Done when their number has doubled, so O(1) per entry on average."""
        if len(self._kept.get(segment, ())) <= self._compact_at.get(segment, COMPACT_ABOVE):
            return
        below = self.min_time(segment)
        if below == self.min_times.start:
            return
        kept = {tick: value for tick, value in self._kept[segment].items() if tick >= below}
        self._kept[segment] = kept
        self._compact_at[segment] = max(COMPACT_ABOVE, 2 * len(kept))


def _listed(dues: dict[tuple[int, int], int | None]) -> tuple[Due, ...]:
    return tuple((segment, owner, tick) for (segment, owner), tick in dues.items())
