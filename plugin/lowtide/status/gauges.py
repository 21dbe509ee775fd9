"""Gauges: what each worker counts and sends to the service each second."""

from __future__ import annotations

from typing import Any

import msgspec

from lowtide.histogram import Histogram
from lowtide_tracker import Traffic

HISTOGRAMS = frozenset({"hops", "latency", "deliveries", "callers", "turns", "looks"})
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


class DiskGauges(msgspec.Struct, frozen=True, kw_only=True):
    """The state on disk of one process, or of all.

    Attributes:
        keys: How many keys are on disk.
        bytes: How much room they take there.
        limit_bytes: How much they may take, in all these processes.
        fullest: The share of its room that the fullest process takes, 0 to 1.
        hits: Keys of batches that were in memory.
        misses: Those that were not, and were looked for on disk.
        evicted: Keys that have left memory.
        given_up: Snapshots that were given up, as they held pages while there was little room left.
        folder: The folder of one process; empty if its disk is not known.
        free_bytes: The room that is left on the disk of that folder: of several, on the fullest.
        size_bytes: The size of that disk.
    """

    keys: int = 0
    bytes: int = 0
    limit_bytes: int = 0
    fullest: float = 0.0
    hits: int = 0
    misses: int = 0
    evicted: int = 0
    given_up: int = 0
    folder: str = ""
    free_bytes: int = 0
    size_bytes: int = 0

    def and_(self, other: DiskGauges) -> DiskGauges:
        """Both together."""
        least = min(self, other, key=lambda each: (not each.folder, each.free_bytes))
        return DiskGauges(
            keys=self.keys + other.keys,
            bytes=self.bytes + other.bytes,
            limit_bytes=self.limit_bytes + other.limit_bytes,
            fullest=max(self.fullest, other.fullest),
            hits=self.hits + other.hits,
            misses=self.misses + other.misses,
            evicted=self.evicted + other.evicted,
            given_up=self.given_up + other.given_up,
            folder=least.folder,
            free_bytes=least.free_bytes,
            size_bytes=least.size_bytes,
        )


class CallGauges(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a step; of one worker, or summed up.

    Attributes:
        open: Questions without an answer.
        waiting: Records that have not been asked about.
        reused: Answers of earlier lives that were used again.
        first: The lowest tick whose answers are not all durable; None if there is none.
    """

    open: int = 0
    waiting: int = 0
    reused: int = 0
    first: int | None = None

    def and_(self, other: CallGauges) -> CallGauges:
        """Both together."""
        firsts = [first for first in (self.first, other.first) if first is not None]
        return CallGauges(
            open=self.open + other.open,
            waiting=self.waiting + other.waiting,
            reused=self.reused + other.reused,
            first=min(firsts, default=None),
        )


class CallerGauges(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the process that asks for a host, of a step's service; of one host, or summed up.

    Attributes:
        oldest_s: The age of the oldest question without an answer in s; 0 if there is none.
        seconds: From a question to its answer, with all tries: bucket to questions.
        retries: Tries that were not a question's first.
        failures: Questions that have failed for good.
    """

    oldest_s: float = 0.0
    seconds: dict[int, int] = {}
    retries: int = 0
    failures: int = 0

    def and_(self, other: CallerGauges) -> CallerGauges:
        """Both together."""
        seconds = Histogram(self.seconds)
        seconds.merge(other.seconds)
        return CallerGauges(
            oldest_s=max(self.oldest_s, other.oldest_s),
            seconds=seconds.counts,
            retries=self.retries + other.retries,
            failures=self.failures + other.failures,
        )


class TraceGauges(msgspec.Struct, frozen=True, kw_only=True):
    """The spans of one process's traces, or of all.

    Attributes:
        sent: Spans that the endpoint has taken.
        failed: Spans that it has not taken.
        dropped: Spans for which there was no room while others waited for it.
    """

    sent: int = 0
    failed: int = 0
    dropped: int = 0

    def and_(self, other: TraceGauges) -> TraceGauges:
        """Both together."""
        return TraceGauges(
            sent=self.sent + other.sent, failed=self.failed + other.failed, dropped=self.dropped + other.dropped
        )


class LineGauges(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic on a process's line to the tracker, as that process sees it.

    Attributes:
        traffic: Messages and bytes, and what they were.
        acks: Of the flushes' entries those of each segment.
    """

    traffic: Traffic
    acks: dict[int, int] = {}


class SinkGauges(msgspec.Struct, frozen=True, kw_only=True):
    """The records that were delivered to one sink, and those that wait for it; of one worker, or of all.

    Attributes:
        records: The number of those that were delivered.
        bytes: The size of their texts and bytes.
        newest: The largest tick among them; None while there are none.
        waiting: Records that its store has been given and has not taken yet.
        waits_s: For how long the oldest of those has waited; 0 if none waits.
    """

    records: int = 0
    bytes: int = 0
    newest: int | None = None
    waiting: int = 0
    waits_s: float = 0.0

    def and_(self, other: SinkGauges) -> SinkGauges:
        """Return both together."""
        ticks = [each for each in (self.newest, other.newest) if each is not None]
        return SinkGauges(
            records=self.records + other.records,
            bytes=self.bytes + other.bytes,
            newest=max(ticks, default=None),
            waiting=self.waiting + other.waiting,
            waits_s=max(self.waits_s, other.waits_s),
        )


class LetterGauges(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of one step; of one worker, or of all.

    Attributes:
        records: Their number.
        tick: That of the last one.
        at: Its source record: partition and offset, or the step whose clock brought it.
        why: Its error, in one line.
    """

    records: int = 0
    tick: int = 0
    at: str = ""
    why: str = ""

    def and_(self, other: LetterGauges) -> LetterGauges:
        """Return both together."""
        last = max(self, other, key=lambda each: each.tick)
        return LetterGauges(records=self.records + other.records, tick=last.tick, at=last.at, why=last.why)


class StepLooks(msgspec.Struct, frozen=True, kw_only=True):
    """The looks at a process that have found its loop in one step.

    Attributes:
        looks: Their number.
        function: The flow's function that the last one has found it in, with file and line; empty if in none.
        worker: The worker that the loop worked for then.
    """

    looks: int = 0
    function: str = ""
    worker: str = ""


class LoopLooks(msgspec.Struct, frozen=True, kw_only=True):
    """Looks at the loop of a process, one each second; see `worker/busy.py`.

    Attributes:
        looks: Their number.
        steps: Those that have found it in a step, by step.
    """

    looks: int = 0
    steps: dict[str, StepLooks] = {}


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
        transactions: Of its process, from one of the workers in it; so are `records` and `deliveries`.
        records: What those transactions have delivered.
        deliveries: By store, from a packet's hand-over to its being durable.
        retries: Of its process, by store and the store's reason (PostgreSQL's SQLSTATE), what was tried again.
        refused: Of its process, by sink the rows that a table has refused and that were set aside.
        protocols: Of its process, by store how it is spoken with, where there are several ways.
        stores: Of its process, by store why it has taken nothing lately; stores that do take are missing.
        sinks: What was delivered or waits, by sink; sinks that got nothing are missing.
        letters: Dead letters by step.
        late: What was late, by window step or side of a join.
        kept: The state by step or side of a join; of a step with timers, these as `NAME/timers` besides its keys.
        calls: Calls of outside services, by step.
        callers: Of its host, from one of the workers in it: how services answer, by step.
        caller_restarts: Likewise how often the process that asks them was made again.
        turns: Likewise how long turns of its host's loop have taken: bucket to turns.
        looks: Likewise the looks at its host's loop.
        line: Of its process, from one of the workers in it; so are `disk` and `traces`.
        disk: The state on disk; None if there is none.
        traces: The spans of traces; None if nothing is traced.
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
    deliveries: dict[str, dict[int, int]] | None = None
    retries: dict[str, dict[str, int]] | None = None
    refused: dict[str, int] | None = None
    protocols: dict[str, str] | None = None
    stores: dict[str, str] | None = None
    sinks: dict[str, SinkGauges] | None = None
    letters: dict[str, LetterGauges] | None = None
    late: dict[str, LateGauges] | None = None
    kept: dict[str, KeptGauges] | None = None
    calls: dict[str, CallGauges] | None = None
    callers: dict[str, CallerGauges] | None = None
    caller_restarts: int | None = None
    turns: dict[int, int] | None = None
    looks: LoopLooks | None = None
    line: LineGauges | None = None
    disk: DiskGauges | None = None
    traces: TraceGauges | None = None

    def plain(self) -> dict[str, Any]:
        """Return all that is known, as JSON has it."""
        return {name: value for name, value in msgspec.to_builtins(self, str_keys=True).items() if value is not None}

    def shown(self) -> dict[str, Any]:
        """Return what a view shows: the same, histograms left out."""
        return {name: value for name, value in self.plain().items() if name not in HISTOGRAMS}


class StepStands(msgspec.Struct, frozen=True, kw_only=True):
    """A step whose function has not returned for a while: the process of its worker does nothing else meanwhile.

    Attributes:
        step: Its name.
        function: The function, with file and line; empty if it is Lowtide's own code.
        for_s: For how long.
    """

    step: str
    function: str
    for_s: float


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as the service knows it; `pid` and `address` are empty until it has reported.

    Attributes:
        worker: Its name.
        number: Its number in the life's register.
        attached: Whether a task was attached when it sent its gauges.
        gauges: What it has sent last; None if nothing.
        stands: The step that it is in without returning; None if it is in none.
    """

    worker: str
    level: int
    number: int | None = None
    executor: str = ""
    pid: int = 0
    address: str = ""
    attached: bool = False
    gauges: WorkerGauges | None = None
    stands: StepStands | None = None

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it, with what is known of its gauges."""
        gauges = {} if self.gauges is None else self.gauges.plain()
        return {**msgspec.to_builtins(self), "gauges": gauges}
