"""Messages between the service and its tracker's process: lines of JSON over standard input and output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lowtide.assignment.messages import Message, Raw, Refused, reader
from lowtide.status.tracker_report import ShardReport, TrackerReport
from lowtide_snapshots.cause import Cause

__all__ = [
    "Fault",
    "ForgetFloors",
    "FromTracker",
    "Ready",
    "Report",
    "Request",
    "Requested",
    "ShardSaid",
    "ToTracker",
    "TrackerSetting",
    "TrackerStart",
    "read_by_tracker",
    "read_from_tracker",
    "read_tracker_start",
]


@dataclass(frozen=True, slots=True)
class TrackerSetting:
    """What a tracker begins with.

    Attributes:
        incarnation: The life.
        graph: Every segment with what feeds it.
        fronts: Every registered front with its opening floor, a tick.
        start: The tick that all min times begin with.
        capacity_ticks: How far acks may lie ahead of min time.
        dues: Per segment the owners that tell what is due (R6b).
        feeds: Per front the segments that it feeds; of one that is not named, all that nothing else feeds.
    """

    incarnation: int
    graph: Mapping[int, Sequence[int]]
    fronts: Mapping[int, int]
    start: int
    capacity_ticks: int
    dues: Mapping[int, Sequence[int]] = field(default_factory=dict)
    feeds: Mapping[int, Sequence[int]] = field(default_factory=dict)


class TrackerStart(Message, frozen=True, kw_only=True):
    """The first line to the process.

    Attributes:
        secret: The job's, in hexadecimal.
        listener: The descriptor of the socket where it listens.
        setting: What it begins with.
        era: 1, and one more for each process that replaces a dead one.
        workers: Whose reports it is rebuilt from; None for the life's first, and for a merge.
        shards: How many the tracker has; 1 for one that is a single process.
        shard: Which one this is; None for the merge, and for a tracker that is a single process.
        merge: Where the merge listens, for a shard.
    """

    secret: str
    listener: int
    setting: TrackerSetting
    era: int
    workers: list[int] | None
    shards: int = 1
    shard: int | None = None
    merge: str = ""


class Request(Message, frozen=True):
    """A snapshot is asked for (R14); answered by `Requested`."""

    number: int


class ForgetFloors(Message, frozen=True):
    """A commit has made the floors of a front below an offset superfluous."""

    front: int
    offset: int


class Ready(Message, frozen=True):
    """The process listens."""

    pid: int


class Requested(Message, frozen=True):
    """All workers are asked for a snapshot at `tick`, or the answer is why they are not."""

    number: int
    answer: int | Refused


class Report(Message, frozen=True):
    """Sent once the process is ready, as soon as min time moves, and now and then while it stands (`Reports`)."""

    report: TrackerReport


class ShardSaid(Message, frozen=True):
    """As `Report`, of a shard; it begins before the shard is ready."""

    report: ShardReport


class Fault(Message, frozen=True):
    """The life is over; sent once at most."""

    cause: Cause


ToTracker = Request | ForgetFloors
FromTracker = Ready | Requested | Report | ShardSaid | Fault

read_tracker_start: Callable[[Raw], TrackerStart] = reader(TrackerStart, "the tracker")
read_by_tracker: Callable[[Raw], ToTracker] = reader(ToTracker, "the tracker")
read_from_tracker: Callable[[Raw], FromTracker] = reader(FromTracker, "the service")
