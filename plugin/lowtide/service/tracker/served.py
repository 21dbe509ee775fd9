"""The server of a tracker's process: the whole tracker or, of a sharded one, the merge or a shard."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable

from lowtide.service.tracker.messages import Report, ShardSaid, TrackerStart
from lowtide.status.tracker_report import ShardReport, TrackerReport
from lowtide_tracker import (
    Graph,
    Merge,
    MergeServer,
    Notice,
    Shard,
    ShardServer,
    StillRebuilding,
    Tracker,
    TrackerError,
    TrackerServer,
)
from lowtide_tracker.life_server import LifeServer
from lowtide_tracker.messages import Joined

__all__ = ["Served", "served_of"]


class Served(ABC):
    """One of the three servers.

    Args:
        server: The server, not started yet.
    """

    def __init__(self, server: LifeServer) -> None:
        self.server = server

    @abstractmethod
    def report(self) -> Report | ShardSaid:
        """Return its report. O(segments), some microseconds."""

    @abstractmethod
    def request(self, number: int) -> int:
        """Ask all workers for a snapshot, and return its tick (errors: StillRebuilding)."""

    @abstractmethod
    def forget_floors(self, front: int, offset: int, at_most: int) -> bool:
        """Drop some floors; return whether there are more."""


class _Alone(Served):
    server: TrackerServer

    def __str__(self) -> str:
        return f"the tracker of era {self.server.era}"

    def report(self) -> Report:
        server, tracker = self.server, self.server.tracker
        held, holder = None, ""
        try:
            held = tracker.holder()
            holder = str(held)
        except StillRebuilding as error:
            holder = str(error)
        return Report(
            TrackerReport(
                era=tracker.era,
                pid=os.getpid(),
                min_times=tracker.min_times(),
                global_min=tracker.global_min,
                holder=holder,
                held=held,
                missing=tracker.missing,
                floors=tracker.floors,
                traffic=server.traffic,
                workers=server.connected[0],
            )
        )

    def request(self, number: int) -> int:
        notice = self.server.tracker.request(number)
        self.server.announce([notice])
        return notice.global_min

    def forget_floors(self, front: int, offset: int, at_most: int) -> bool:
        return self.server.tracker.forget_floors(front, offset, at_most)


class _Merge(Served):
    server: MergeServer

    def __str__(self) -> str:
        return f"the merge of era {self.server.era}"

    def report(self) -> Report:
        server, merge = self.server, self.server.merge
        missing = merge.missing
        holder = ""
        if missing:
            holder = f"the tracker's merge is being rebuilt and waits for shards {', '.join(map(str, missing))}"
        return Report(
            TrackerReport(
                era=merge.era,
                pid=os.getpid(),
                min_times=merge.min_times(),
                global_min=merge.global_min,
                holder=holder,
                held=None,
                missing=missing,
                floors=merge.floors,
                traffic=server.traffic,
                workers=server.connected[0],
                held_by=None if missing else merge.holder(),
            )
        )

    def request(self, number: int) -> int:
        notice = self.server.merge.request(number)
        self.server.announce([notice])
        return notice.global_min

    def forget_floors(self, front: int, offset: int, at_most: int) -> bool:
        return self.server.merge.forget_floors(front, offset, at_most)


class _Shard(Served):
    server: ShardServer

    def __str__(self) -> str:
        return f"shard {self.server.number} of {self.server.count}, era {self.server.era},"

    def report(self) -> ShardSaid:
        server, shard = self.server, self.server.shard
        return ShardSaid(
            ShardReport(
                shard=server.number,
                era=server.era,
                pid=os.getpid(),
                missing=() if shard is None else shard.missing,
                holders={} if shard is None or shard.missing else shard.holders(),
                traffic=server.traffic,
                workers=server.connected[0],
                joined=server.joined_merge,
            )
        )

    def request(self, number: int) -> int:
        raise AssertionError("the merge is asked for a snapshot")

    def forget_floors(self, front: int, offset: int, at_most: int) -> bool:
        shard = self.server.shard
        return shard is not None and shard.forget_floors(front, offset, at_most)


def served_of(
    first: TrackerStart, on_fault: Callable[[TrackerError], None], on_notice: Callable[[Notice], None]
) -> Served:
    """Return the server for the first line: the life's first, or one to be rebuilt.

    Args:
        first: The first line.
        on_fault: Called with the reason why the life is over.
        on_notice: Called with every notice, as subscribers get it; a shard announces none.

    Raises:
        TrackerError: the setting is not valid for a tracker.
    """
    setting, secret = first.setting, bytes.fromhex(first.secret)
    if first.shard is not None:
        return _Shard(
            ShardServer(
                _maker(first, Graph(setting.graph)),
                shard=first.shard,
                shards=first.shards,
                merge=first.merge,
                era=first.era,
                secret=secret,
                incarnation=setting.incarnation,
                on_fault=on_fault,
            )
        )
    if first.shards > 1:
        merge = Merge(
            Graph(setting.graph),
            setting.fronts,
            shards=first.shards,
            start=setting.start,
            capacity_ticks=setting.capacity_ticks,
            feeds=setting.feeds,
            era=first.era,
        )
        server = MergeServer(
            merge,
            shards=first.shards,
            secret=secret,
            incarnation=setting.incarnation,
            on_fault=on_fault,
            on_notice=on_notice,
        )
        return _Merge(server)
    return _Alone(
        TrackerServer(
            _tracker_of(first),
            secret=secret,
            incarnation=setting.incarnation,
            on_fault=on_fault,
            on_notice=on_notice,
        )
    )


def _maker(first: TrackerStart, graph: Graph) -> Callable[[Joined], Shard]:
    shard, setting = first.shard, first.setting
    assert shard is not None

    def make(joined: Joined) -> Shard:
        return Shard.joining(
            graph,
            joined,
            shard=shard,
            shards=first.shards,
            start=setting.start,
            dues=setting.dues,
            workers=first.workers,
        )

    return make


def _tracker_of(first: TrackerStart) -> Tracker:
    setting, era = first.setting, first.era
    graph, fronts, dues, feeds = Graph(setting.graph), setting.fronts, setting.dues, setting.feeds
    start, capacity_ticks = setting.start, setting.capacity_ticks
    if first.workers is None:
        return Tracker(graph, fronts, start=start, capacity_ticks=capacity_ticks, feeds=feeds, dues=dues, era=era)
    return Tracker.rebuilding(
        graph,
        fronts,
        workers=first.workers,
        start=start,
        capacity_ticks=capacity_ticks,
        feeds=feeds,
        dues=dues,
        era=era,
    )
