"""Schedules the reads of partitions' tails, and decides what a read may grant (R2); no I/O, time is an argument.

A grant `(front, offset, ms)` says: at broker time ms + skew, nothing that a read_committed reader would get lay at or
after `offset`. (A front that has read past it and cannot go on otherwise takes it at its own offset, where it holds
too: `core/fronts/own_floors.py`.) The last stable offset (LSO), asked after that time was taken, is such an
offset. It is of use only if it is the very offset that the front's owner expects next, and in a topic that is written
in transactions it never is: markers and aborted records take offsets that no reader gets. There, a reader is pointed
at what the owner expects (a *probe*). It gets a record, and so will the owner; or it gets the end of the partition at
some E. Then nothing lies in [next, E), and nothing ever will, as what is below the LSO is decided. An LSO of at most
E means then what one of `next` would mean, and `next` is granted. Or it gets nothing, which says nothing; or it learns
that there is no such offset.

A topic that another job of the graph writes has records that are as old as that job lags, so the broker's clock says
nothing about them. There a grant goes by the job's delivered time, and Kafka lets a commit's answer come before its
records can be read. So it takes three steps, in this order: the delivered time D is known; the partition's end H is
asked for, and all of the job's records before D lie below it; the LSO has come to H, so that all of them are decided.
From then on D may be granted at the LSO (`promised`).

If an owner does not get what it expects, the life cannot go on (`lost`, `unread`): the log ends before it, or begins
after it, or has a record there that its owner does not get.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from lowtide.core.fronts.end import END_MS

RECORD = -1
"""A probe's result instead of an end: a record."""
NO_OFFSET = -2
"""A probe's result if the log does not have the offset: it begins after it, or ends before it."""

BUSY_RECORDS_PER_S = 200.0
"""A front with more records per second needs few grants: its own carry the heartbeat, unless they lag behind others."""
BUSY_LOOK_S = 0.025
RATE_MEMORY_S = 0.1
"""The time over which records per second are averaged."""
QUIET_AFTER_S = 0.02
"""The time without records after which a front counts as quiet."""
ACTIVE_FOR_S = 0.5
"""The time after the last call for which something counts as waiting for min time, unless `calm` comes before."""
MIN_PATIENCE_S = 0.002
MAX_PATIENCE_S = 0.2
"""The time for which an owner's offset and the LSO must have differed without moving before a probe pays off."""
RECORD_STANDS_S = 1.0
"""The time until a probe is repeated that met a record: the owner gets it too, unless retention removes it."""
LONG_S = 1.0
"""The time after which an owner that still expects the same offset is probed for, whatever the LSO does."""
LOST_AFTER_S = 10.0
"""The time for which the log may lack an offset: news may have crossed, or a new leader lags. If it lasts longer, the
log was cut, recreated, or deleted from."""
NOTHING_MS = -(1 << 62)
"""The time before all others: a grant of it grants nothing."""
QUIET_S = 5.0
"""The time without a move after which a transaction may be open at the LSO."""
MIN_BACK_OFF_S = 0.02
MAX_BACK_OFF_S = 1.0


@dataclass(frozen=True, slots=True)
class Tail:
    """One source partition.

    Attributes:
        front: Its number in the register.
        topic: The topic.
        partition: The partition's number.
        offset: The next offset that its owner expects.
        stop: The first offset that it does not read; None if it never stops.
    """

    front: int
    topic: str
    partition: int
    offset: int
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """A promise that records from `offset` on are labelled no lower than `ms`, if nothing below it is still to come.

    Attributes:
        front: The front.
        offset: A floor at this very offset, for an owner that expects it next.
        ms: The broker's time before it was asked, minus the allowed skew; the end of time for a front at its stop. The
            caller turns it into a tick.
    """

    front: int
    offset: int
    ms: int


@dataclass(slots=True)
class _Watched:
    """The known state of one tail.

    Attributes:
        next: The offset that its owner expects next.
        lso: The last stable offset in the last answer.
        looked_s: The time of that answer.
        still_s: The time since which neither `next` nor `lso` has moved.
        next_s: The time since which `next` has not moved.
        rate: Records per second.
        empty: No reader gets anything in [empty[0], empty[1]).
        record: (offset, time): a probe at this offset met a record.
        record_s: The time at which a probe first met the record at `next`; None if none has.
        lost_s: The time since which the log has not had `next`.
        pending: (ms, end): the writing job's promise, and the end of the partition that was asked for later.
        allowed_ms: The largest grant for a topic that another job writes; `NOTHING_MS` for nothing yet.
        open_s: The time since which records behind the LSO have not been decided, as a transaction is open there; None
            if there are none.
        failures: The number of looks in a row without an answer.
        retry_s: The earliest time of the next look after a failure.
    """

    tail: Tail
    next: int
    lso: int | None = None
    looked_s: float = -math.inf
    still_s: float = -math.inf
    next_s: float = -math.inf
    rate: float = 0.0
    patience_s: float = MIN_PATIENCE_S
    empty: tuple[int, int] = (0, 0)
    record: tuple[int, float] = (-1, 0.0)
    record_s: float | None = None
    lost_s: float | None = None
    pending: tuple[int, int] | None = None
    allowed_ms: int = NOTHING_MS
    open_s: float | None = None
    failures: int = 0
    retry_s: float = -math.inf

    def ends_at_next(self, lso: int) -> bool:
        """Return whether nothing lies between what the owner expects and `lso`."""
        return self.empty[0] == self.next and self.next <= lso <= self.empty[1]

    def at_stop(self) -> bool:
        """Return whether nothing below its stop is still to come."""
        stop = self.tail.stop
        return stop is not None and (self.next >= stop or (self.empty[0] == self.next and self.empty[1] >= stop))

    @property
    def probe_at(self) -> int:
        """Return the offset for a reader: after what is known to hold nothing, as retention may have deleted that."""
        return self.empty[1] if self.empty[0] == self.next < self.empty[1] else self.next

    def wants_probe(self, now_s: float) -> bool:
        """Return whether there may well be nothing for the owner though the LSO is further on."""
        if self.lso is None or self.lso <= self.next or self.failures or self.ends_at_next(self.lso):
            return False
        offset, met_s = self.record
        if offset == self.next and now_s < met_s + RECORD_STANDS_S:
            return False
        return now_s >= min(self.still_s + self.patience_s, self.next_s + LONG_S)


class TailState:
    """All watched tails; not thread-safe.

    Args:
        skew_ms: The largest lag of a record's timestamp behind the broker's clock when it comes.
        active_s: The time from look to look while something waits for min time.
        idle_s: The same at other times.
    """

    def __init__(self, *, skew_ms: int, active_s: float, idle_s: float) -> None:
        assert 0 < active_s <= idle_s, "looks at an idle job are not more frequent than at a busy one"
        self._skew_ms = skew_ms
        self._active_s = active_s
        self._idle_s = idle_s
        self._active_until_s = self._useful_s = -math.inf
        self._watched: dict[int, _Watched] = {}

    def watch(self, tail: Tail) -> None:
        """Watch this tail from now on, with a first look at once; a front that is already watched starts over."""
        self._watched[tail.front] = _Watched(tail, tail.offset)

    def at(self, front: int, offset: int, now_s: float) -> None:
        """Take the offset the owner expects next; ignored for a front that is not watched."""
        watched = self._watched.get(front)
        if watched is not None and watched.next != offset:
            watched.next = offset
            watched.still_s = watched.next_s = now_s
            watched.record_s = watched.lost_s = None

    def skipped(self, front: int, offset: int) -> int:
        """Return where to read on instead of at an offset from which no reader gets anything: markers may be there.

        Retention may delete those before it is read again, and that must not look like lost records.
        """
        watched = self._watched.get(front)
        start, end = (0, 0) if watched is None else watched.empty
        return end if start <= offset <= end else offset

    def active(self, now_s: float, useful_s: float = -math.inf) -> bool:
        """Note that something waits for min time; return whether a look may be due earlier than before.

        Args:
            now_s: The time.
            useful_s: The time from which on a look grants enough for what waits; such a look is made then.
        """
        begins = now_s >= self._active_until_s
        self._active_until_s = now_s + ACTIVE_FOR_S
        useful_s = min(useful_s, now_s + self._active_s)
        # Of several that wait the first counts; the others get their looks at the usual pace.
        if begins or useful_s < self._useful_s or (now_s >= self._useful_s and useful_s > self._useful_s):
            self._useful_s = useful_s
            return True
        return False

    def calm(self) -> None:
        """Note that nothing waits any more."""
        self._active_until_s = -math.inf

    def due(self, now_s: float) -> list[Tail]:
        """Return the tails to look at now."""
        return [found.tail for found in self._watched.values() if self._due_s(found, now_s) <= now_s]

    def wait_s(self, now_s: float) -> float:
        """Return the time until there is something to do, at most `idle_s`."""
        times = [self._due_s(found, now_s) for found in self._watched.values()]
        return min(self._idle_s, max(0.0, min(times, default=math.inf) - now_s))

    def failing(self, tails: Iterable[Tail]) -> list[Tail]:
        """Return those whose last look was not answered."""
        return [tail for tail in tails if self._watched[tail.front].failures]

    def all_failing(self) -> bool:
        """Return whether no tail's last look was answered."""
        return all(watched.failures for watched in self._watched.values())

    def awaits(self, front: int, ms: int) -> bool:
        """Return whether a promise is news for a front, so that its partition's end must be asked for."""
        watched = self._watched[front]
        return watched.pending is None and ms > watched.allowed_ms

    def promised(self, front: int, ms: int, end: int) -> None:
        """Take the delivered time of the job that writes a front's topic, and the partition's end, asked for after it.

        A promise that waits for its LSO is not replaced: under constant writes a newer one would wait for ever.
        """
        if self.awaits(front, ms):
            self._watched[front].pending = (ms, end)

    def withdrawn(self, front: int, ms: int | None) -> None:
        """Allow no more than is promised now: the writing job delivers again, or another one has its name."""
        watched = self._watched[front]
        now_ms = NOTHING_MS if ms is None else ms
        if now_ms < watched.allowed_ms or (watched.pending is not None and now_ms < watched.pending[0]):
            watched.allowed_ms, watched.pending = min(now_ms, watched.allowed_ms), None

    def looked(self, front: int, lso: int, *, before_ms: int, now_s: float, written_by_job: bool = False) -> Grant:
        """Take the answer to a look, and return what it grants.

        Args:
            front: The front.
            lso: Its partition's last stable offset.
            before_ms: The broker's time, or an earlier one, before it was asked.
            now_s: The time at which it was asked, on our own clock.
            written_by_job: True if another job of the graph writes the topic: its promise limits the grant.
        """
        watched = self._watched[front]
        if watched.pending is not None and lso >= watched.pending[1]:
            watched.allowed_ms, watched.pending = watched.pending[0], None
        if watched.lso is None:
            watched.next_s = now_s
        if watched.lso is None or lso != watched.lso:
            watched.still_s = now_s
            watched.open_s = None
        if watched.lso is not None:
            past_s = max(now_s - watched.looked_s, 1e-6)
            now_rate = max(0, lso - watched.lso) / past_s
            watched.rate += (now_rate - watched.rate) * -math.expm1(-past_s / RATE_MEMORY_S)
            if not now_rate and past_s >= QUIET_AFTER_S:
                watched.rate = 0.0
        watched.lso, watched.looked_s = lso, now_s
        watched.failures, watched.retry_s = 0, -math.inf
        if lso == watched.next:
            watched.lost_s = None
        elif lso < watched.next and watched.lost_s is None:
            watched.lost_s = now_s
        if watched.at_stop():
            return Grant(front, watched.next, END_MS)
        offset = watched.next if watched.ends_at_next(lso) else lso
        granted_ms = before_ms - self._skew_ms
        return Grant(front, offset, min(granted_ms, watched.allowed_ms) if written_by_job else granted_ms)

    def lost(self, now_s: float) -> list[tuple[Tail, int]]:
        """Return logs that end before the offset that their readers expect, with their ends; each only once."""
        found = []
        for watched in self._watched.values():
            if watched.lost_s is not None and now_s >= watched.lost_s + LOST_AFTER_S:
                watched.lost_s = math.inf
                assert watched.lso is not None
                tail = watched.tail
                found.append((Tail(tail.front, tail.topic, tail.partition, watched.next), watched.lso))
        return found

    def unread(self, now_s: float) -> dict[int, tuple[int, float]]:
        """Return by front the offset of a record that its owner expects next and has not reported, and for how long."""
        return {
            front: (watched.next, now_s - watched.record_s)
            for front, watched in self._watched.items()
            if watched.record_s is not None
        }

    def quiet(self, now_s: float) -> list[Tail]:
        """Return the tails whose LSO and reader have not moved for a while: a transaction may be open there."""
        return [
            found.tail
            for found in self._watched.values()
            if found.lso is not None and not found.failures and now_s >= found.still_s + QUIET_S
        ]

    def ended(self, front: int, end: int) -> None:
        """Take a quiet partition's end, committed or not: beyond the LSO lies what an open transaction holds back."""
        watched = self._watched[front]
        if watched.lso is None or end <= watched.lso:
            watched.open_s = None
        elif watched.open_s is None:
            watched.open_s = watched.still_s

    def open_transactions(self, now_s: float) -> dict[int, tuple[int, float]]:
        """Return by front the offset of a transaction that is open, and for how long nothing has moved there."""
        return {
            front: (watched.lso, now_s - watched.open_s)
            for front, watched in self._watched.items()
            if watched.open_s is not None and watched.lso is not None
        }

    def failed(self, front: int, now_s: float) -> int:
        """Note a look without an answer: delay the next one, and return the number of such looks in a row."""
        watched = self._watched[front]
        # Ask again at once the first time: another partition may have spoilt the request.
        back_off_s = 0.0 if not watched.failures else min(MAX_BACK_OFF_S, MIN_BACK_OFF_S * 2**watched.failures)
        watched.failures = min(watched.failures + 1, 32)
        watched.retry_s = now_s + back_off_s
        return watched.failures

    def probes(self, fronts: Iterable[int], now_s: float) -> list[Tail]:
        """Return the fronts to point a reader at, and the offsets: what is expected next, or later."""
        found = [self._watched[front] for front in fronts]
        return [
            Tail(wanting.tail.front, wanting.tail.topic, wanting.tail.partition, wanting.probe_at)
            for wanting in found
            if wanting.wants_probe(now_s)
        ]

    def probed(self, front: int, start: int, end: int | None, now_s: float) -> None:
        """Take the result of a reader that began at `start`: the end, `RECORD`, `NO_OFFSET`; None for nothing."""
        watched = self._watched[front]
        fresh = start == watched.probe_at
        if fresh:
            start = watched.next
        if end is not None and end >= 0:
            watched.empty = (start, end)
            watched.patience_s = MIN_PATIENCE_S
        else:
            watched.record = (start, now_s)
            watched.patience_s = min(MAX_PATIENCE_S, 2 * watched.patience_s)
        if end is not None and fresh:
            watched.record_s = (watched.record_s or now_s) if end == RECORD else None
            watched.lost_s = (watched.lost_s or now_s) if end == NO_OFFSET else None

    def _due_s(self, watched: _Watched, now_s: float) -> float:
        """Return the time of a tail's next look."""
        if now_s >= self._active_until_s:
            due_s = watched.looked_s + self._idle_s
        elif watched.rate > BUSY_RECORDS_PER_S:
            due_s = watched.looked_s + max(self._active_s, BUSY_LOOK_S)
        elif watched.looked_s < self._useful_s:
            due_s = self._useful_s
        else:
            due_s = watched.looked_s + self._active_s
        return max(due_s, watched.retry_s)
