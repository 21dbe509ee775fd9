"""The service's knowledge of its job: what stays, and what it sees at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from lowtide.core.barriers import Lanes
from lowtide.flow.plan.segments import Segments, segments_of
from lowtide.flow.steps.steps import Answers, Sign, WhenDone
from lowtide.status.gauges import FrontGauges, WorkerState
from lowtide.status.job_view import SnapshotsView
from lowtide.status.tracker_report import TrackerReport
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.job.standbys import Standby

if TYPE_CHECKING:
    from lowtide.flow.plan.plan import Plan, Vertex

OUTLET = "(before the sinks)"
"""Stands for the steps where a segment has none: what may end the life waits there (`flow/plan/segments.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """One step of a flow.

    Attributes:
        name: Its name.
        word: The word of the API that made it: "scan".
        level: The level at which it runs.
        after: Those before it, by their place among all; by exchanges or not.
        segments: The segments whose frames it receives; of a sink the one in which it holds what may end the life.
    """

    name: str
    word: str
    level: int
    after: tuple[int, ...] = ()
    segments: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartShape:
    """The part of a segment that one worker's lanes wait for, instead of all of it.

    Attributes:
        part: Its number among the segments.
        segment: Of which it is a part.
        worker: Whose frames it has: "1/0".
        lanes: The worker's.
    """

    part: int
    segment: int
    worker: str
    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """The facts of a job that stay the same during a life.

    Attributes:
        job: The job's name.
        incarnation: Of its life.
        started_ms: When it began.
        slack_ms: How long a tick is.
        segments: Number to the names of the steps that receive its frames; or `OUTLET`.
        sinks: Name to (level, lanes).
        delivery: "exactly_once" or "at_least_once".
        labels: By `when_done` with a label its columns, each with the name of its type.
        steps: The flow's, those before others first; exchanges are left out, as they are no steps to a user.
        connections: By kind of connection what protects it between machines.
        stores: By sink its store, as `Sink.store` names it.
        dead_letters: The topic of the dead letters; empty if there is none.
        parts: The parts of segments, where lanes do not wait for those of other workers.
    """

    job: str
    incarnation: int
    started_ms: int
    slack_ms: int
    segments: Mapping[int, str]
    sinks: Mapping[str, tuple[int, int]]
    delivery: str = "exactly_once"
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    steps: tuple[StepShape, ...] = ()
    connections: Mapping[str, str] = field(default_factory=dict)
    stores: Mapping[str, str] = field(default_factory=dict)
    dead_letters: str = ""
    parts: tuple[PartShape, ...] = ()

    @classmethod
    def of(
        cls,
        plan: Plan,
        *,
        incarnation: int,
        started_ms: int,
        delivery: str = "exactly_once",
        connections: Mapping[str, str] = MappingProxyType({}),
    ) -> JobShape:
        """Return a plan's shape; segments are named for the steps that take their frames, outlets for their sinks."""
        found = segments_of(plan)
        names: dict[int, list[str]] = {segment: [] for segment in found.inbound}
        for vertex in plan.vertices:
            for segment in sorted({found.of_exchange[each] for each in vertex.parents if each in found.of_exchange}):
                names[segment].append(vertex.name)
        for way in plan.feedbacks():
            assert way.back is not None, "a way back leads to a head"
            head, steps = plan.vertices[way.back].name, names[found.of_exchange[way.id]]
            if head not in steps:
                steps.append(head)
        outlets = {*found.outlet_of.values(), *([] if found.letters is None else [found.letters])}
        for outlet in outlets if len(outlets) > 1 else ():
            sinks = [sink.name for sink in plan.sinks() if found.outlet_of.get(sink.id) == outlet]
            letters = ["the dead letters"] if outlet == found.letters else []
            names[outlet].append(f"(before {', '.join(sinks + letters)})")
        parts = _parts_of(plan, found)
        for each in parts:
            names[each.part] = [f"{', '.join(names[each.segment])} (worker {each.worker})"]
        return cls(
            job=plan.name,
            incarnation=incarnation,
            started_ms=started_ms,
            slack_ms=plan.slack_ms,
            segments={each: ", ".join(steps) or OUTLET for each, steps in names.items()},
            sinks={sink.name: (sink.level, plan.lanes) for sink in plan.sinks()},
            delivery=delivery,
            labels={each.name: _label_of(each) for each in plan.those(WhenDone) if each.step.label},
            steps=_steps_of(plan, found),
            connections=dict(connections),
            stores={sink.name: sink.step.sink.store for sink in plan.sinks()},
            dead_letters="" if plan.dead_letters is None else plan.dead_letters.topic,
            parts=parts,
        )

    def whole(self, min_times: Mapping[int, int]) -> dict[int, int]:
        """Return min times in which a segment with parts has the smallest of theirs: before that all has left it."""
        found = dict(min_times)
        for each in self.parts:
            if each.part in min_times and each.segment in found:
                found[each.segment] = min(found[each.segment], min_times[each.part])
        return found


def _parts_of(plan: Plan, segments: Segments) -> tuple[PartShape, ...]:
    level_of = {segment: plan.vertices[exchange].level for exchange, segment in segments.of_exchange.items()}
    return tuple(
        PartShape(
            part=part,
            segment=segment,
            worker=f"{level_of[segment]}/{place}",
            lanes=tuple(Lanes.of_worker(plan, place).own),
        )
        for segment, parts in segments.parts.items()
        for place, part in enumerate(parts)
    )


def _steps_of(plan: Plan, segments: Segments) -> tuple[StepShape, ...]:
    """Return the steps as a user wrote them: what sends records on is no step, nor is what the compiler has added."""
    steps: list[StepShape] = []
    places: dict[int, tuple[int, ...]] = {}
    received: dict[int, tuple[int, ...]] = {}
    for vertex in plan.vertices:
        before = tuple(dict.fromkeys(place for parent in vertex.parents for place in places[parent]))
        inbound = tuple(sorted({number for parent in vertex.parents for number in received[parent]}))
        if vertex.is_exchange or isinstance(vertex.step, Sign | Answers):
            places[vertex.id] = before
            segment = segments.of_exchange.get(vertex.id)
            received[vertex.id] = () if segment is None else (segment, *segments.parts.get(segment, ()))
        else:
            places[vertex.id], received[vertex.id] = (len(steps),), ()
            if vertex.id in segments.outlet_of:
                inbound = (*inbound, segments.outlet_of[vertex.id])
            word, level = vertex.step.word, vertex.level
            steps.append(StepShape(name=vertex.name, word=word, level=level, after=before, segments=inbound))
    return tuple(steps)


def _label_of(vertex: Vertex[WhenDone]) -> dict[str, str]:
    from lowtide.flow.schema.schema import schema_of

    kinds = schema_of(vertex.takes).kinds
    return {column: kinds[column].name for column in vertex.step.label}


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedMoment:
    """A staged sink's carrier at one moment.

    Attributes:
        visible_ms: Below this log time readers of the store see everything; None while unknown (R21).
        records: Staged records that the carrier has not read, about.
        bytes: Size of what is staged and still needed, about.
        restarts: How often its process was started again.
        pid: Of its process; None while there is none.
        counts: What it has done, by what it counts (`Carrier.counts`).
        trouble: Why it does not carry; empty while it does.
        way_out: What to do about that.
    """

    visible_ms: int | None = None
    records: int = 0
    bytes: int = 0
    restarts: int = 0
    pid: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    trouble: str = ""
    way_out: str = ""


@dataclass(frozen=True, slots=True)
class Room:
    """The disk of a folder.

    Attributes:
        what: "log", "snapshots" or "state".
        folder: The folder.
        free_bytes: What is left of it.
        size_bytes: All of it.
    """

    what: str
    folder: str
    free_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """All that the service knows at one moment.

    Attributes:
        now_ms: The broker's time.
        phase: "starting", "running", "stopping", "ended".
        cause: Why the life has ended; None while it runs.
        control: Where the control API listens.
        workers: All of the life.
        fronts: Number to `topic-partition`, of all fronts that are registered.
        idle_fronts: By number, those that the service heartbeats itself.
        tracker: The newest report of the tracker's process; None while there is none.
        restarts: How often the tracker was restarted in this life.
        spare: By front what `FrontView.spare` says.
        delivered_time: The largest that is *stored*, as a tick (R18); None if there is none.
        snapshots: Of the life.
        troubles: Open problems that do not stop the life.
        chain: Who holds the job along the jobs that it waits for.
        clock_jump_ms: By how much the broker's clock is beyond what is believed of it.
        staged: By name the sinks that are staged.
        unanswered: By front why Kafka does not report its partition's end; without those that it does report.
        unread: By front its partition, the offset of a record that its worker does not get, and for how many s.
        open_transactions: By front the offset of a transaction that is open, and for how many s nothing behind it could
            be read.
        rooms: The disks that the job writes to on the service's machine.
        standbys: The programs that wait for the job's lease.
    """

    now_ms: int
    phase: str
    cause: Cause | None = None
    control: str = ""
    workers: Sequence[WorkerState] = ()
    fronts: Mapping[int, str] = field(default_factory=dict)
    idle_fronts: Mapping[int, FrontGauges] = field(default_factory=dict)
    tracker: TrackerReport | None = None
    restarts: int = 0
    spare: Mapping[int, int] = field(default_factory=dict)
    delivered_time: int | None = None
    snapshots: SnapshotsView = field(default_factory=SnapshotsView)
    troubles: Sequence[str] = ()
    chain: Sequence[str] = ()
    clock_jump_ms: int = 0
    staged: Mapping[str, StagedMoment] = field(default_factory=dict)
    unanswered: Mapping[int, str] = field(default_factory=dict)
    unread: Mapping[int, tuple[str, int, float]] = field(default_factory=dict)
    open_transactions: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    rooms: Sequence[Room] = ()
    standbys: Sequence[Standby] = ()
