"""What the service knows of its job: what stays, and what it sees at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowtide.plan import Plan

__all__ = ["JobShape", "Moment", "TrackerReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """What stays the same as long as a life goes on.

    Attributes:
        job: The job's name.
        incarnation: Of its life.
        started_ms: When it began.
        slack_ms: How long a tick is.
        segments: Number to the names of the steps that receive its frames.
        sinks: Name to (level, lanes).
        delivery: "exactly_once" or "at_least_once".
    """

    job: str
    incarnation: int
    started_ms: int
    slack_ms: int
    segments: Mapping[int, str]
    sinks: Mapping[str, tuple[int, int]]
    delivery: str = "exactly_once"

    @classmethod
    def of(cls, plan: Plan, *, incarnation: int, started_ms: int, delivery: str = "exactly_once") -> JobShape:
        """Return a plan's shape; segment k is that of the frames that level k receives."""
        exchanges = {vertex.id for vertex in plan.exchanges()}
        receivers: dict[int, list[str]] = {level: [] for level in range(1, max(plan.levels, 2))}
        for vertex in plan.vertices:
            if vertex.level and exchanges.intersection(vertex.parents) and vertex.name not in receivers[vertex.level]:
                receivers[vertex.level].append(vertex.name)
        return cls(
            job=plan.name,
            incarnation=incarnation,
            started_ms=started_ms,
            slack_ms=plan.slack_ms,
            segments={level: ", ".join(names) for level, names in receivers.items()},
            sinks={sink.name: (sink.level, plan.lanes) for sink in plan.sinks()},
            delivery=delivery,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerReport:
    """What the tracker says of itself.

    Attributes:
        era: Of its process.
        pid: Of its process; None while there is none.
        min_times: Segment to tick.
        global_min: The smallest of them; None while it is being rebuilt.
        holder: Who holds the global min time, as `str(lowtide_tracker.Holder)` says it; empty if not known.
        holders: The same for each segment.
        floors: How many it keeps.
        restarts: How often it was started anew in this life.
    """

    era: int = 1
    pid: int | None = None
    min_times: Mapping[int, int] = field(default_factory=dict)
    global_min: int | None = None
    holder: str = ""
    holders: Mapping[int, str] = field(default_factory=dict)
    floors: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """All that the service knows at one moment.

    Attributes:
        now_ms: The broker's time.
        phase: "starting", "running", "stopping", "ended".
        cause: Why the life has ended; empty while it goes on.
        control: Where the control API listens.
        workers: As in `WorkerView`, each with the `gauges` it has sent last.
        fronts: Number to `topic-partition`, of all fronts that are registered.
        idle_fronts: Number to `{"heartbeat": tick, "next_offset": …}` of those that the service heartbeats itself.
        tracker: What the tracker says.
        delivered_time: The largest that is *stored*, as a tick (R18); None if there is none.
    """

    now_ms: int
    phase: str
    cause: str = ""
    control: str = ""
    workers: Sequence[Mapping[str, Any]] = ()
    fronts: Mapping[int, str] = field(default_factory=dict)
    idle_fronts: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    tracker: TrackerReport = field(default_factory=TrackerReport)
    delivered_time: int | None = None
