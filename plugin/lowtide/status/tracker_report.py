"""The tracker's report on itself to the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lowtide_tracker import Holder, Traffic


@dataclass(frozen=True, slots=True)
class ShardReport:
    """One report of a shard's process.

    Attributes:
        shard: Its number.
        era: 1, and one more for each process that replaced a dead one.
        pid: Of the process.
        missing: The workers that it waits for while it is being rebuilt.
        holders: What holds each group here, by the group's first segment.
        workers: How many are connected.
        traffic: What has come to this process, and gone from it; not what it says to the merge.
        joined: Whether it has a line to the merge.
    """

    shard: int
    era: int
    pid: int
    missing: tuple[int, ...]
    holders: Mapping[int, Holder]
    workers: int
    traffic: Traffic
    joined: bool


@dataclass(frozen=True, slots=True)
class ShardState:
    """The state of a shard, as the service sees it.

    Attributes:
        shard: Its number.
        era: The number of its processes so far.
        pid: Of the one that runs; None while there is none.
        traffic: Its traffic both ways, except with the merge.
        trouble: Its fault, for people; empty if there is none.
    """

    shard: int
    era: int
    pid: int | None
    traffic: Traffic
    trouble: str


@dataclass(frozen=True, slots=True)
class TrackerReport:
    """One report of a tracker's process.

    Attributes:
        era: Of the tracker: 1, and one more for each process that replaced a dead one.
        pid: Of the process.
        min_times: Every segment's min time, in topological order; while it is being rebuilt, what the life began with.
        global_min: The smallest of them.
        holder: Who holds the global min time, for people; while it is being rebuilt, the workers it waits for.
        held: The same with its segment, tick and front; None while it is being rebuilt.
        missing: The workers that a tracker being rebuilt waits for.
        floors: How many are kept.
        workers: How many are connected.
        traffic: What has come to this process, and gone from it, over all connections.
        held_by: Of a merge, the shard and the segment of what holds the global min time; None if it is not a shard.
        shards: The shards, where the tracker has some.
        holders: By segment what holds its min time, as far as it is known.
        held_at: Of a merge, the same as `held_by` by segment.
    """

    era: int
    pid: int
    min_times: Mapping[int, int]
    global_min: int
    holder: str
    held: Holder | None
    missing: tuple[int, ...]
    floors: int
    workers: int
    traffic: Traffic
    held_by: tuple[int, int] | None = None
    shards: tuple[ShardState, ...] = ()
    holders: Mapping[int, Holder] = field(default_factory=dict)
    held_at: Mapping[int, tuple[int, int]] = field(default_factory=dict)
