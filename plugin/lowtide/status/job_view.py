"""The status of a job as one typed value: what `GET /status` answers, and what everything that shows a job is made of.

All times are ms since 1970; None where nothing is known yet. `lag` is always the broker's time minus the time in
question. `lowtide.status.teller` puts it together.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from lowtide.status.gauges import DiskGauges, KeptGauges, LateGauges, LetterGauges, TraceGauges
from lowtide.status.recent import Percentiles, Rates, Totals
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.job.standbys import Standby
from lowtide_tracker import Traffic

__all__ = [
    "CallView",
    "FrontView",
    "JobView",
    "KeptGauges",
    "LateGauges",
    "LetterGauges",
    "LevelView",
    "Percentiles",
    "Phase",
    "Rates",
    "SegmentView",
    "ShardView",
    "SinkView",
    "SnapshotView",
    "SnapshotsView",
    "StagedView",
    "StepView",
    "Totals",
    "TrackerView",
    "TroubleKind",
    "TroubleView",
    "WorkerView",
]


class SegmentView(Struct, frozen=True, kw_only=True):
    """One tracked part of the flow.

    Attributes:
        segment: Its number.
        name: The steps that receive its frames.
        min_time_ms: Every record before it has left the segment and its parts, for ever.
        lag_ms: Lag of min time behind the broker's clock.
        holder: The holder of min time; only of the segment that holds up the whole job.
        acks: Entries for it in all flushes of workers, since the life began.
        lanes: Of a worker's part of a segment, the lanes that wait for it and for no other part; else none.
        waits_for: What these lanes wait for.
    """

    segment: int
    name: str
    min_time_ms: int | None = None
    lag_ms: int | None = None
    holder: str = ""
    acks: int = 0
    lanes: list[int] = []
    waits_for: str = ""


class FrontView(Struct, frozen=True, kw_only=True):
    """One source partition.

    Attributes:
        front: Its number in the job's register.
        partition: `topic-partition`.
        worker: Who reads it; empty while the service itself heartbeats it, as it has shown no record.
        heartbeat_ms: It labels nothing more before this time.
        lag_ms: Lag of that behind the broker's clock.
        next_offset: The next offset it would read.
        parked: Records that were read and wait, as the front is ahead of the others.
        pulling: Whether it reads on.
        own_floors: How often it advanced by itself because it read older records.
        tick_bytes: What the records of its last tick have together, while more of it may come.
        overfull: Whether that is more than the memory is bounded to: 128 MiB, or twice a larger `job.max_front_bytes`.
        spare: How many records the source still has before those that the last commit needs; negative: it lacks some.
        quiet_s: For how long no record has been read from it, as far as this life knows; None if that is not known.
    """

    front: int
    partition: str
    worker: str = ""
    heartbeat_ms: int | None = None
    lag_ms: int | None = None
    next_offset: int | None = None
    parked: int = 0
    pulling: bool = True
    own_floors: int = 0
    tick_bytes: int = 0
    overfull: bool = False
    spare: int | None = None
    quiet_s: float | None = None


TroubleKind = Literal["slow step", "dry sink", "dead letters", "silent partition", "full disk"]


class TroubleView(Struct, frozen=True, kw_only=True):
    """Something that keeps records from where they belong, by the name of what does.

    Attributes:
        kind: Its kind.
        name: The step, the sink, the partition (`topic-partition`) or the folder.
        since_ms: Since when, by the broker's clock.
        headline: It in a few words.
        says: It in a sentence, with the figures and since when.
        to_do: What to do, a sentence or two each; what can be typed stands between backticks.
    """

    kind: TroubleKind
    name: str
    since_ms: int
    headline: str
    says: str
    to_do: list[str]


class StepView(Struct, frozen=True, kw_only=True):
    """One step of the flow, as it was written.

    Attributes:
        does: The word of the API that made it: "scan".
        level: The level at which it runs.
        after: The steps before it, by their place in the list.
        holds: Whether min time is held in the frames that it receives, or in its calls.
        late: Records that came too late for it.
        busy: The share of the time of one process that it has taken over the last seconds, 0 to 1.
        letters: Records that it has given to the dead letters.
    """

    step: str
    does: str
    level: int
    after: list[int] = []
    holds: bool = False
    late: int = 0
    busy: float = 0.0
    letters: int = 0


class LevelView(Struct, frozen=True, kw_only=True):
    """The workers of one level together: all steps between two exchanges.

    Attributes:
        workers: How many of them have reported.
        records_in: Records that they have read or received, since the life began.
        records_out: Those that they have sent on, or given to sinks.
        in_per_s: Records in per second, over the last few seconds; None before the second look.
        out_per_s: Records out per second, likewise.
    """

    level: int
    workers: int = 0
    records_in: int = 0
    records_out: int = 0
    in_per_s: float | None = None
    out_per_s: float | None = None


class WorkerView(Struct, frozen=True, kw_only=True):
    """One worker process; `gauges` is what it has said of itself last, histograms left out."""

    worker: str
    level: int
    executor: str = ""
    pid: int = 0
    address: str = ""
    attached: bool = False
    number: int | None = None
    gauges: dict[str, Any] = {}


class StagedView(Struct, frozen=True, kw_only=True):
    """The way of a staged sink's records from Kafka into its store.

    Attributes:
        visible_time_ms: Readers of the store see everything before it.
        lag_ms: Lag of that behind the broker's clock.
        records: Staged records that have not been read, about.
        bytes: Size of what is staged and still needed, about.
        restarts: How often the process that carries them was started again.
        pid: Of that process; None while there is none.
        counts: What it has done since the life began: "files", "file_bytes", "commits committed", "puts taken", ...
    """

    visible_time_ms: int | None = None
    lag_ms: int | None = None
    records: int = 0
    bytes: int = 0
    restarts: int = 0
    pid: int | None = None
    counts: dict[str, int] = {}


class SinkView(Struct, frozen=True, kw_only=True):
    """One sink, since the life began.

    Attributes:
        delivered: Records that were delivered to it, of a staged one to its log.
        bytes: The size of their texts and bytes.
        newest_ms: The log time of the newest of them; None while there are none.
        lag_ms: Lag of that behind the broker's clock: how long the sink has been dry.
        transactions: Those of the processes whose workers write to it.
        staged: None for a sink that is not.
        store: Its store: "kafka", "postgres:default".
        waiting: Records that its store has been given and has not taken yet.
        waits_s: For how long the oldest of those has waited; 0 if none waits.
        trouble: Why its store takes nothing now; empty while it does, or if that is not known.
    """

    sink: str
    lanes: int
    delivered: int = 0
    bytes: int = 0
    newest_ms: int | None = None
    lag_ms: int | None = None
    transactions: int = 0
    delivery: str = "exactly_once"
    staged: StagedView | None = None
    store: str = ""
    waiting: int = 0
    waits_s: float = 0.0
    trouble: str = ""


class CallView(Struct, frozen=True, kw_only=True):
    """The calls of one step.

    Attributes:
        open: Questions without an answer.
        waiting: Records that have not been asked about.
        oldest_s: The age of the oldest question without an answer in s; 0 if there is none.
        per_s: Answers per second, over the last few seconds; None before the second look.
        took_ms: From a question to its answer, with all tries, over the last seconds.
        retries: Tries that were not a question's first.
        failures: Questions that have failed for good.
        reused: Answers of earlier lives that were used again.
    """

    open: int = 0
    waiting: int = 0
    oldest_s: float = 0.0
    per_s: float | None = None
    took_ms: Percentiles = Percentiles()
    retries: int = 0
    failures: int = 0
    reused: int = 0


class ShardView(Struct, frozen=True, kw_only=True):
    """A shard of the tracker: `era` counts its processes, `traffic` is that of the one that runs."""

    shard: int
    era: int = 0
    pid: int | None = None
    traffic: Traffic = field(default_factory=Traffic)
    trouble: str = ""


class TrackerView(Struct, frozen=True, kw_only=True):
    """The tracker's process, of one in shards the merge's.

    Attributes:
        era: Counts its lives within the job's.
        pid: Of the process.
        floors: How many it keeps.
        restarts: How often it was restarted.
        workers: How many processes are connected that flush.
        traffic: What has come to this process, and gone from it; to all shards, too.
        messages_per_record: Those of the life's workers, in and out, for each record read.
        shards: The shards, if there are some.
    """

    era: int = 0
    pid: int | None = None
    floors: int = 0
    restarts: int = 0
    workers: int = 0
    traffic: Traffic = field(default_factory=Traffic)
    messages_per_record: float | None = None
    shards: tuple[ShardView, ...] = ()


Phase = Literal["taking", "sealed", "committed", "failed"]


class SnapshotView(Struct, frozen=True, kw_only=True):
    """One snapshot, as the control API tells it.

    Attributes:
        id: Its id.
        name: The name that the user gave it; None without one.
        phase: "taking" until all is written and durable, then "sealed", then "committed"; or "failed".
        min_time_ms: Its T; None before it is known.
        parts: The number of parts to write, as far as known.
        parts_done: How many are written.
        rows: Of those, with the parts that it shares with the commit before.
        bytes: Their size, shared parts included.
        began: When it was asked for, ISO, UTC.
        took_s: How long it took until it was sealed or failed, or so far.
        pause_ms: For how long it held up the worker that it held up longest: the fork of the process that writes.
        waits_for: The workers that it waits for, each with what for.
        why: Why it failed; None otherwise.
    """

    id: str
    name: str | None
    phase: Phase
    min_time_ms: int | None
    parts: int
    parts_done: int
    rows: int
    bytes: int
    began: str
    took_s: float
    pause_ms: float = 0.0
    waits_for: list[str]
    why: Cause | None = None


class SnapshotsView(Struct, frozen=True, kw_only=True):
    """The snapshots of this life.

    Attributes:
        last: The id of the job's last commit; empty if it has none.
        last_ms: Its min time.
        committed_s: How long ago the last commit was made, whichever life made it, or the job began if it has none.
        taking: The id of the one that is being taken; empty if none is.
        counts: How many of this life are "committed", "sealed", "failed".
        took_s: How long the last one took that was sealed.
        bytes: The size of its state.
    """

    last: str = ""
    last_ms: int | None = None
    committed_s: float | None = None
    taking: str = ""
    counts: dict[str, int] = {}
    took_s: float | None = None
    bytes: int | None = None


class JobView(Struct, frozen=True, kw_only=True):
    """Everything that is known of a running job.

    Attributes:
        job: Its name.
        incarnation: The number of its life.
        phase: "starting", "running", "stopping", "ended".
        cause: Why the life has ended; None while it runs.
        troubles: Open problems that do not stop the job, each with the time since when; those of `found` too.
        found: Those that name a step, a sink, a partition or a folder, each with what to do.
        clock_jump_ms: The broker's clock less the job's estimate of it; 0 while they agree.
        started_ms: When the life began.
        seen_ms: When this was put together, by the broker's clock.
        control: Where the control API listens, `host:port`.
        min_time_ms: Of the whole job: every record before it is out of all segments, for ever.
        lag_ms: Lag of min time behind the broker's clock.
        holder: Who keeps min time from moving.
        held_s: For how long min time has stood where it is.
        to_do: What to do if min time goes on standing there, a sentence or two each; empty if `found` explains it.
        chain: The holders along the jobs that it waits for, line by line; empty for a job outside a graph.
        delivered_time_ms: Everything before it is durable in the sinks, of staged ones visible in the store (R21), and
            that this is so is stored too (R18).
        rates: Per second, over the last few seconds.
        totals: Since the life began.
        latency_ms: From a record's timestamp until it was durable, over the last seconds.
        hops: Where the time goes, by hop, over the last seconds.
        kept: What steps and sides of joins keep, by their names; timers as `NAME/timers`.
        calls: The calls of outside services, by step.
        caller_restarts: How often a process that asks them was made again, since the life began.
        disk: The state on disk; None if there is none.
        traces: The spans of traces; None if nothing is traced.
        retries: What was tried again, by store and the store's reason.
        refused: Rows that a table has refused and that were set aside, by sink.
        protocols: By store the ways in which hosts speak with it, where there are several: of Kafka the versions of its
            transactions, "v1" and "v2".
        letters: Dead letters by step, each with the last one's place and error.
        dead_letters: Their topic; empty if the flow has none.
        steps: The flow's, those before others first.
        connections: By kind of connection what protects it between machines.
        standbys: The programs that wait for the job's lease, to take over if its driver dies; the longest first.
        events: The last ones, oldest first, each as its line in the log.
    """

    job: str
    incarnation: int
    phase: str
    cause: Cause | None = None
    troubles: list[str] = []
    found: list[TroubleView] = []
    clock_jump_ms: int = 0
    started_ms: int | None = None
    seen_ms: int | None = None
    control: str = ""
    min_time_ms: int | None = None
    lag_ms: int | None = None
    holder: str = ""
    held_s: float | None = None
    to_do: list[str] = []
    chain: list[str] = []
    delivered_time_ms: int | None = None
    rates: Rates = Rates()
    totals: Totals = Totals()
    latency_ms: Percentiles = Percentiles()
    hops: dict[str, Percentiles] = {}
    steps: list[StepView] = []
    levels: list[LevelView] = []
    segments: list[SegmentView] = []
    fronts: list[FrontView] = []
    workers: list[WorkerView] = []
    sinks: list[SinkView] = []
    kept: dict[str, KeptGauges] = {}
    calls: dict[str, CallView] = {}
    caller_restarts: int = 0
    disk: DiskGauges | None = None
    traces: TraceGauges | None = None
    retries: dict[str, dict[str, int]] = {}
    refused: dict[str, int] = {}
    protocols: dict[str, list[str]] = {}
    letters: dict[str, LetterGauges] = {}
    dead_letters: str = ""
    tracker: TrackerView = TrackerView()
    snapshots: SnapshotsView = SnapshotsView()
    connections: dict[str, str] = {}
    standbys: list[Standby] = []
    events: list[dict[str, Any]] = []
