"""One source partition: labels its messages, hands them out within a window, reports a heartbeat (R1-R8)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lowtide.core.fronts.end import end_tick
from lowtide.core.fronts.floors import LAST_TICK, NO_TICK, Floors
from lowtide.core.fronts.history import History
from lowtide.core.fronts.labels import Clock, calm_labels, label
from lowtide.core.fronts.own_floors import LIFT_MS, OwnFloors
from lowtide.core.fronts.source_rows import SourceRows
from lowtide.errors import LifeEnded
from lowtide_tracker import Floor


class OffsetWentBack(LifeEnded):
    """Recover the job: a source delivered a message twice, or out of order, and going on would be wrong."""

    def __init__(self, front: int, offset: int, expected: int) -> None:
        super().__init__(
            f"front {front}: expected offset {expected} or later, found {offset}",
            way_out="start the job again: it reads from its last commit; report it if it happens again",
        )


@dataclass(frozen=True, slots=True)
class Window:
    """The lead over min time that a front may have (R8).

    Attributes:
        lead_ticks: A front hands out labels below min time + this, at least 1.
        max_bytes: The bytes of messages at or above min time that a front hands out, counting `ROW_BYTES` for each.
        tick_bytes: The bytes of one tick that are fine, however many are handed out at once.
    """

    lead_ticks: int
    max_bytes: int
    tick_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FrontLimits:
    """The limits of a front.

    Attributes:
        slack_ms: The length of a tick.
        window: The lead over min time that it may have.
        max_future_ms: A timestamp further ahead of the broker's clock is not believed.
        lift_ms: See `LIFT_MS`.
    """

    slack_ms: int
    window: Window
    max_future_ms: int
    lift_ms: int = LIFT_MS


@dataclass(frozen=True, slots=True)
class KnownFloors:
    """Floors and ticks that earlier lives have left to a front.

    Attributes:
        opening: The opening floor; of a front that is recovered at T, the larger of T and its opening floor (R3).
        durable: All that are durable, of this front at least: register and lanes.
        unreported: Those that a commit alone knows: they hold as well, and are reported, so that lanes have them as
            soon as something rests on them; the commit may be dropped before they are needed again.
        relied_on: The largest tick that anything rests on: T of all commits, per lane `last`'s tick + 1, and any
            published delivered time (R18).
        highest: The largest tick of the floors of all fronts. The clock stands neither below this nor below
            `relied_on`, so a broker's clock that was set back changes no label that was relied on.
    """

    opening: int
    durable: Iterable[Floor] = ()
    unreported: Iterable[Floor] = ()
    relied_on: int = NO_TICK
    highest: int = NO_TICK


@dataclass(frozen=True, slots=True)
class Report:
    """A front's report to the tracker; sent in one flush with, or after, the acks of what it handed out (R5).

    Attributes:
        heartbeat: The front will label nothing below this tick any more; it never falls.
        floors: Floors and caps since the last report: the heartbeat may rest on them, so they travel with it.
    """

    heartbeat: int
    floors: tuple[Floor, ...]


class Front:
    """Labels messages in the order of their log, parks them, and hands out what the window lets pass.

    A front whose window is full is stopped, except the one that holds min time back: what is labelled min time always
    passes (R8). What is parked has its labels for good, so the first of them is the heartbeat: min time goes up to
    it over a gap in the log without anything being handed out.

    One that reads records older than its label sets floors of its own, so that time does not stand (`OwnFloors`).

    Args:
        number: The front's number in the register.
        limits: Its limits.
        known: The floors and ticks that earlier lives have left to it.
        offset: The first offset that may come: what `start_at(T)` gave.
        before: The label before it, likewise.
        stop: The first offset that it does not read; None if it reads on for ever. Once nothing below it is to come,
            the front is closed for good: its heartbeat is the end of time. That rests on no floor: every life sees it.
        preloaded: Messages below this offset are preloaded: their timestamps do not matter, so they are labelled with
            the opening floor, and those from there on later.

    Attributes:
        number: See above.
        next_offset: What comes next has this offset or a later one.
        own_floors: How many floors it has set by itself.
    """

    def __init__(
        self,
        number: int,
        limits: FrontLimits,
        known: KnownFloors,
        *,
        offset: int = 0,
        before: int = NO_TICK,
        stop: int | None = None,
        preloaded: int = 0,
    ) -> None:
        slack_ms, window, opening = limits.slack_ms, limits.window, known.opening
        assert slack_ms >= 1, "a tick lasts 1 ms at least"
        assert window.lead_ticks >= 1, "a front that may not be ahead at all never starts"
        durable, later = list(known.durable), [floor for floor in known.unreported if floor.front == number]
        now_tick = max([known.relied_on, known.highest, opening, *(floor.tick for floor in (*durable, *later))])
        self.number = number
        self.next_offset = offset
        self._stop_at = LAST_TICK if stop is None else stop
        self._end = end_tick(slack_ms)
        self.own_floors = 0
        self._own = OwnFloors(
            slack_ms=slack_ms,
            lift_ms=limits.lift_ms,
            relied_on=max(known.relied_on, opening),
            max_bytes=window.max_bytes,
        )
        self._window = window
        self._slack_ms = slack_ms
        self._now_ms = now_tick * slack_ms
        self._max_future_ms = limits.max_future_ms
        self._floors = Floors(floor for floor in durable if floor.front == number)
        self._floors.add(Floor(number, offset, opening))
        self._preloaded = preloaded
        if preloaded > offset:
            self._floors.add(Floor(number, preloaded, opening + 1))
        self._reported = self._floors.version
        for floor in later:
            self._floors.add(floor)
        if before > opening:
            # It may rest on a floor granted after T was published, which no lane has yet: report it from now on.
            self._floors.add(Floor(number, offset, before))
        self._history = History(before)
        self._parked: deque[SourceRows] = deque()
        self._handed_out_bytes = 0
        self._min_time: int | None = None
        self._look_at_floors()
        self._heartbeat = self._settled()

    @property
    def heartbeat(self) -> int:
        """The tick below which the front labels nothing that it has not handed out already (R5)."""
        return self._heartbeat

    @property
    def closed(self) -> bool:
        """True if it has reached its stop, so that it labels nothing more."""
        return self.next_offset >= self._stop_at

    @property
    def parked(self) -> int:
        """The number of messages labelled and not handed out."""
        return sum(map(len, self._parked))

    @property
    def older(self) -> bool:
        """True if the last message's own time lies before its label."""
        return self._own.older

    @property
    def tick_bytes(self) -> int:
        """The bytes of the messages with the last label; 0 if a later tick is promised. O(log ticks)."""
        label = self._history.label
        return 0 if self._heartbeat > label else self._history.bytes - self._history.bytes_below(label)

    @property
    def overfull(self) -> bool:
        """True if one tick holds twice `Window.tick_bytes`: min time waits for all of it, and nothing bounds it."""
        return self.tick_bytes >= 2 * max(self._window.max_bytes, self._window.tick_bytes)

    @property
    def pulling(self) -> bool:
        """True if more should be read: nothing is parked, and the window is open at the last min time received."""
        if self._parked:
            return False
        if self.closed:
            return True  # Messages after the stop are dropped, and nothing waits for them.
        if self._min_time is None or self._heartbeat <= self._min_time:
            return True
        return self._heartbeat < self._min_time + self._window.lead_ticks and self._room(self._min_time) > 0

    def take(self, rows: SourceRows, now_ms: int) -> None:
        """Label messages and park them; O(n).

        Args:
            rows: Messages of this front, offsets ascending; gaps are fine.
            now_ms: The broker's time.

        Raises:
            OffsetWentBack: an offset is below `next_offset`, or below the one before it.
        """
        assert rows.front == self.number, f"messages of front {rows.front} came to front {self.number}"
        if not rows.offsets:
            return
        expected = self.next_offset
        for offset in rows.offsets:
            if offset < expected:
                raise OffsetWentBack(self.number, offset, expected)
            expected = offset + 1
        self._now_ms = max(self._now_ms, now_ms)
        if self._own.stands(self._now_ms):
            self._lift()
        if expected > self._stop_at:
            rows = rows.slice(0, bisect_left(rows.offsets, self._stop_at))
            self.next_offset = expected
            if not rows.offsets:
                self._heartbeat = self._settled()
                return
        before = max(self._history.label, self._floor_tick)
        rows.ticks = self._label(rows)
        self._own.read(rows.timestamps[-1], rows.ticks[-1], self._now_ms, risen=rows.ticks[-1] > before)
        self._history.add(rows)
        self._parked.append(rows)
        self.next_offset = expected
        if expected >= self._calm_until:
            self._look_at_floors()
        if len(self._parked) == 1:
            self._heartbeat = rows.ticks[0]

    def admitted(self, min_time: int) -> list[SourceRows]:
        """Hand out what the window lets pass, in order, with labels; their acks go before the next report (R5).

        Args:
            min_time: The last one received.
        """
        if self._min_time is None or min_time > self._min_time:
            self._min_time = min_time
        out: list[SourceRows] = []
        while self._parked:
            rows = self._parked[0]
            stop = self._stop(rows, self._min_time)
            if stop:
                out.append(rows.slice(0, stop))
                self._handed_out_bytes += out[-1].size
                self._parked.popleft()
            if stop < len(rows):
                if stop:
                    self._parked.appendleft(rows.slice(stop, len(rows)))
                break
        self._heartbeat = self._settled()
        return out

    def grant(self, floor: Floor) -> bool:
        """Take an idle heartbeat (R2); return whether it was applied.

        It is not if the front promises as much already, or has something parked. If the front has not come to its
        offset, or has read on since it was made, it counts at the front's own next offset, and only if what the front
        reads has not raised its label for a while: else its records carry the time themselves.
        """
        assert floor.front == self.number, f"a floor of front {floor.front} came to front {self.number}"
        assert not floor.cap, "only a front caps its messages"
        if floor.tick >= self._end and floor.offset == self.next_offset:
            # Nothing lies below the stop any more; where the rest holds records, its own number says so.
            self.next_offset = max(self.next_offset, self._stop_at)
            self._heartbeat = self._settled()
            return True
        if floor.tick >= self._end or floor.tick <= self._heartbeat:
            return False
        if floor.offset == self.next_offset and not self._parked:
            self._set_floor(floor.tick)
            return True
        self._own.grants.add(floor.offset, floor.tick)
        return self._own.stands(self._now_ms) and self._lift()

    def report(self) -> Report:
        """Return the heartbeat, with the floors and caps since the last report; see `Report`."""
        version = self._floors.version
        if version == self._reported:
            return Report(self._heartbeat, ())
        floors = self._floors.since(self._reported)
        self._reported = version
        return Report(self._heartbeat, floors)

    def start_at(self, tick: int) -> tuple[int, int]:
        """Return where a later life must read to get all labels from `tick` on, and the least label from there.

        Args:
            tick: At or above the prune time.

        Returns:
            An offset, and the label before it or, if that is larger, the floor that holds there: floors that begin
            below the offset are not needed any more.
        """
        offset, before = self._history.start_at(tick) or (self.next_offset, self._history.label)
        return offset, max(before, self._floors.tick_at(self.number, offset))

    def prune(self, tick: int) -> None:
        """Drop what `start_at` below `tick` would need: the global min time, or a snapshot's T (R14)."""
        self._history.prune(tick)

    def forget(self, offset: int) -> None:
        """Drop the floors that do not matter from this offset on, at which the oldest kept manifest starts."""
        self._floors.cut(self.number, min(offset, self.next_offset))

    def check(self) -> None:
        """Check the invariants, for simulations."""
        assert all(len(rows) for rows in self._parked), "nothing empty is parked"
        waiting = [tick for rows in self._parked for tick in rows.ticks]
        assert all(one <= other for one, other in pairwise(waiting)), "labels never fall"
        assert not waiting or waiting[0] >= self._heartbeat, "R5"
        self._floors.check()

    def _lift(self) -> bool:
        """Set a floor of the front's own, if there is reason to; return whether it did (R2)."""
        if self._parked or self.next_offset < self._preloaded:
            return False
        tick = self._own.tick(self.next_offset, self._heartbeat, self.tick_bytes, self._now_ms)
        if tick == NO_TICK:
            return False
        self._set_floor(tick)
        self.own_floors += 1
        return True

    def _set_floor(self, tick: int) -> None:
        """Label nothing below this tick from the next offset on."""
        self._floors.add(Floor(self.number, self.next_offset, tick))
        self._look_at_floors()
        self._heartbeat = self._settled()

    def _label(self, rows: SourceRows) -> list[int]:
        """Return the labels of the next messages; caps made on the way become floors."""
        timestamps: Sequence[int] = rows.timestamps
        if rows.offsets[0] < self._preloaded:
            stamps = zip(rows.offsets, timestamps, strict=True)
            timestamps = [NO_TICK if offset < self._preloaded else stamp for offset, stamp in stamps]
        if rows.offsets[-1] < self._calm_until:
            before, limit_ms = max(self._history.label, self._floor_tick), self._now_ms + self._max_future_ms
            calm = calm_labels(timestamps, before=before, slack_ms=self._slack_ms, limit_ms=limit_ms)
            if calm is not None:
                return calm
        ticks, caps = label(
            self.number,
            rows.offsets,
            timestamps,
            before=self._history.label,
            floors=self._floors,
            clock=Clock(self._slack_ms, self._now_ms, self._max_future_ms),
        )
        self._floors.merge(caps)
        return ticks

    def _look_at_floors(self) -> None:
        """Note the floor that holds at the next offset, and from where on a further floor or a cap counts."""
        here = self.next_offset
        self._floor_tick = self._floors.tick_at(self.number, here)
        starts, _ = self._floors.steps(self.number, here + 1, LAST_TICK)
        caps, _ = self._floors.steps(self.number, here, LAST_TICK, cap=True)
        self._calm_until = min([LAST_TICK, *starts[:1], *caps[:1]])

    def _settled(self) -> int:
        """Return the least label to come: that of the first parked message, else of the last one, or the floor."""
        if self._parked:
            return self._parked[0].ticks[0]
        return self._end if self.closed else max(self._history.label, self._floor_tick)

    def _room(self, min_time: int) -> int:
        """Return the number of bytes that may be handed out; not positive if the window is full."""
        under_way = self._handed_out_bytes - self._history.bytes_below(min_time)
        return self._window.max_bytes - max(0, under_way)

    def _stop(self, rows: SourceRows, min_time: int) -> int:
        """Return the number of messages that the window lets pass."""
        ticks = rows.ticks
        end = min(min_time + self._window.lead_ticks, LAST_TICK)
        stop = len(ticks) if ticks[-1] < end else bisect_left(ticks, end)
        room = self._room(min_time)
        if rows.size > room:
            stop = min(stop, bisect_right(rows.ends(), room))
        # Messages labelled min time always pass: nothing else could make room for them.
        return stop if stop == len(ticks) else max(stop, bisect_right(ticks, min_time))
