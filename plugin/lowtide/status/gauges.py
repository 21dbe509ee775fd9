"""Gauges: what each worker counts and sends to the service each second."""

from __future__ import annotations

from typing import Any

import msgspec

from lowtide_tracker import Traffic

__all__ = ["FrontGauges", "KeptGauges", "LateGauges", "LineGauges", "WorkerGauges", "WorkerState"]

HISTOGRAMS = frozenset({"hops", "latency", "commit"})
"""Gauges that a worker's view leaves out."""


class FrontGauges(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the front of a worker of level 0.

    Attributes:
        front: Its number.
        heartbeat: The tick below which it labels nothing more.
        next_offset: The offset that it expects.
        parked: Records that it keeps until min time moves.
        pulling: True while it reads on.
        own_floors: How often it advanced by itself because it read older records.
        tick_bytes: The size of its last tick's records, while more of them may come.
        overfull: True if that is twice the harmless size.
    """

    front: int
    heartbeat: int
    next_offset: int
    parked: int = 0
    pulling: bool = True
    own_floors: int = 0
    tick_bytes: int = 0
    overfull: bool = False


class LateGauges(msgspec.Struct, frozen=True, kw_only=True):
    """The late records of a window step, or of one stream of a join; of one worker, or summed up.

    Attributes:
        records: How many came, late or not.
        closed: How many came when log time had passed what they belong to.
        ahead: How many had a time too far in the future.
        most_ms: How far log time was ahead of a record's own time at most, of those that came too late.
        minute: The last minute of log time, since 1970, in which one was late; -1 if none was.
        first: The first late record of that minute: partition and offset, or the step whose clock brought it.
        first_ms: How far log time was ahead of it; negative: its own time lay in the future.
    """

    records: int = 0
    closed: int = 0
    ahead: int = 0
    most_ms: float = 0
    minute: int = -1
    first: str = ""
    first_ms: float = 0

    @property
    def late(self) -> int:
        """The number of late records."""
        return self.closed + self.ahead

    @property
    def share(self) -> float:
        """The share of all records that was late."""
        return self.late / self.records if self.records else 0.0

    def and_(self, other: LateGauges) -> LateGauges:
        """Both together."""
        last = max(self, other, key=lambda each: each.minute)
        return LateGauges(
            records=self.records + other.records,
            closed=self.closed + other.closed,
            ahead=self.ahead + other.ahead,
            most_ms=max(self.most_ms, other.most_ms),
            minute=last.minute,
            first=last.first,
            first_ms=last.first_ms,
        )


class KeptGauges(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a step, or of one side of a join; of one worker, or summed up.

    Attributes:
        what: "keys" that have a state, "records" that wait for partners, "rows" of a table, "timers" of keys that are
            to be called, or "windows" that are open.
        count: How many.
        bytes: About how much memory they take.
    """

    what: str
    count: int = 0
    bytes: int = 0

    def and_(self, other: KeptGauges) -> KeptGauges:
        """Both together."""
        return KeptGauges(what=self.what, count=self.count + other.count, bytes=self.bytes + other.bytes)


class LineGauges(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic on a process's line to the tracker, as that process sees it.

    Attributes:
        traffic: Messages and bytes, and what they were.
        acks: Of the flushes' entries those of each segment.
    """

    traffic: Traffic
    acks: dict[int, int] = {}


class WorkerGauges(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one worker since it began; a histogram is bucket to records.

    Attributes:
        attached: True while a task is attached.
        busy: True while there is work that does not wait for min time.
        delivered_time: The tick below which all its lanes are durable.
        waiting: Records before the barriers.
        queued: Records on their way to the sinks; None where it has none.
        hops: Where a record's time goes, by hop.
        latency: From a record's timestamp to its being durable.
        front: At level 0, where its front stands.
        transactions: Of its process, from one of the workers in it; so are `records` and `commit`.
        records: What those transactions have delivered.
        commit: From a packet's hand-over to its being durable.
        sinks: Records delivered by sink, where they are counted apart.
        late: What was late, by window step or side of a join.
        kept: The state by step or side of a join; of a step with timers, these as `NAME/timers` besides its keys.
        line: Of its process, from one of the workers in it.
    """

    records_in: int = 0
    records_out: int = 0
    delivered: int = 0
    dead_letters: int = 0
    repairs: int = 0
    attached: bool = False
    busy: bool = True
    delivered_time: int | None = None
    waiting: int = 0
    queued: int | None = None
    hops: dict[str, dict[int, int]] = {}
    latency: dict[int, int] = {}
    front: FrontGauges | None = None
    transactions: int | None = None
    records: int | None = None
    commit: dict[int, int] | None = None
    sinks: dict[str, int] | None = None
    late: dict[str, LateGauges] | None = None
    kept: dict[str, KeptGauges] | None = None
    line: LineGauges | None = None

    def plain(self) -> dict[str, Any]:
        """Return all that is known, as JSON has it."""
        return {name: value for name, value in msgspec.to_builtins(self, str_keys=True).items() if value is not None}

    def shown(self) -> dict[str, Any]:
        """Return what a view shows: the same, histograms left out."""
        return {name: value for name, value in self.plain().items() if name not in HISTOGRAMS}


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as the service knows it; `pid` and `address` are empty until it has reported.

    Attributes:
        worker: Its name.
        number: Its number in the life's register.
        attached: Whether a task was attached when it sent its gauges.
        gauges: What it has sent last; None if nothing.
    """

    worker: str
    level: int
    number: int | None = None
    executor: str = ""
    pid: int = 0
    address: str = ""
    attached: bool = False
    gauges: WorkerGauges | None = None

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it, with what is known of its gauges."""
        gauges = {} if self.gauges is None else self.gauges.plain()
        return {**msgspec.to_builtins(self), "gauges": gauges}
