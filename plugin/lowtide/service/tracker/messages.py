"""Messages between the service and its tracker's process: lines of JSON over standard input and output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lowtide.assignment.messages import Message, Raw, Refused, reader
from lowtide.status.tracker_report import ShardReport, TrackerReport
from lowtide_snapshots.cause import Cause


@dataclass(frozen=True, slots=True)
class TrackerSetting:
    """The setting that a tracker begins with.

    Attributes:
        incarnation: The life.
        graph: Every segment with what feeds it.
        fronts: Every registered front with its opening floor, a tick.
        start: The tick at which all min times begin.
        capacity_ticks: The number of ticks that acks may lie ahead of min time.
        dues: Per segment the owners that report what is due (R6b).
        feeds: Per front the segments that it feeds; for a front not listed, all that nothing else feeds.
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
        secret: The job's secret, in hexadecimal.
        listener: The descriptor of its listening socket.
        setting: Its setting.
        era: 1, and one more for each process that replaces a dead one.
        workers: The workers whose reports rebuild it; None for the life's first, and for a merge.
        shards: The number of the tracker's shards; 1 for a single process.
        shard: This shard's number; None for the merge, and for a single process.
        merge: The merge's address, for a shard.
        tls: True to listen under TLS.
    """

    secret: str
    listener: int
    setting: TrackerSetting
    era: int
    workers: list[int] | None
    shards: int = 1
    shard: int | None = None
    merge: str = ""
    tls: bool = False


class Request(Message, frozen=True):
    """A request for a snapshot (R14); answered by `Requested`."""

    number: int


class ForgetFloors(Message, frozen=True):
    """An order to drop the floors of a front below an offset, which a commit makes unnecessary."""

    front: int
    offset: int


class Ready(Message, frozen=True):
    """The news that the process listens."""

    pid: int


class Requested(Message, frozen=True):
    """The tick at which all workers are asked for a snapshot, or why they are not."""

    number: int
    answer: int | Refused


class Report(Message, frozen=True):
    """A report, sent once the process is ready, as soon as min time moves, and now and then while it stands."""

    report: TrackerReport


class ShardSaid(Message, frozen=True):
    """The report of a shard, as `Report`; the first comes before the shard is ready."""

    report: ShardReport


class Fault(Message, frozen=True):
    """The news that the life is over; sent at most once."""

    cause: Cause


ToTracker = Request | ForgetFloors
FromTracker = Ready | Requested | Report | ShardSaid | Fault

read_tracker_start: Callable[[Raw], TrackerStart] = reader(TrackerStart, "the tracker")
read_by_tracker: Callable[[Raw], ToTracker] = reader(ToTracker, "the tracker")
read_from_tracker: Callable[[Raw], FromTracker] = reader(FromTracker, "the service")
