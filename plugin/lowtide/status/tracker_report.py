"""The tracker's report on itself to the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lowtide_tracker import Holder, Traffic

__all__ = ["TrackerReport"]


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
