"""The server of a tracker's process: the whole tracker or, of a sharded one, the merge or a shard."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from lowtide.process.credentials import client_tls, plain, secured, server_tls
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
from lowtide_tracker.announced import Announced
from lowtide_tracker.holder import Holder
from lowtide_tracker.life_server import LifeServer, NoticeServer
from lowtide_tracker.messages import Joined


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


class _Announcing(Served):
    """A server that announces min times."""

    server: NoticeServer
    announced: Announced

    def request(self, number: int) -> int:
        notice = self.announced.request(number)
        self.server.announce([notice])
        return notice.global_min

    def forget_floors(self, front: int, offset: int, at_most: int) -> bool:
        return self.announced.forget_floors(front, offset, at_most)

    def _reported(
        self,
        holder: str,
        *,
        held: Holder | None = None,
        held_by: tuple[int, int] | None = None,
        holders: Mapping[int, Holder] | None = None,
        held_at: Mapping[int, tuple[int, int]] | None = None,
    ) -> Report:
        announced = self.announced
        return Report(
            TrackerReport(
                era=announced.era,
                pid=os.getpid(),
                min_times=announced.min_times(),
                global_min=announced.global_min,
                holder=holder,
                held=held,
                missing=announced.missing,
                floors=announced.floors,
                traffic=self.server.traffic,
                workers=self.server.connected[0],
                held_by=held_by,
                holders=holders or {},
                held_at=held_at or {},
            )
        )


class _Alone(_Announcing):
    def __init__(self, server: TrackerServer) -> None:
        super().__init__(server)
        self.announced = self._tracker = server.tracker

    def __str__(self) -> str:
        return f"the tracker of era {self.announced.era}"

    def report(self) -> Report:
        try:
            held = self._tracker.holder()
        except StillRebuilding as error:
            return self._reported(str(error))
        holders = {segment: self._tracker.holder(segment) for segment in self.announced.min_times()}
        return self._reported(str(held), held=held, holders=holders)


class _Merge(_Announcing):
    def __init__(self, server: MergeServer) -> None:
        super().__init__(server)
        self.announced = self._merge = server.merge

    def __str__(self) -> str:
        return f"the merge of era {self.announced.era}"

    def report(self) -> Report:
        if missing := self._merge.missing:
            shards = ", ".join(map(str, missing))
            return self._reported(f"the tracker's merge is being rebuilt and waits for shards {shards}")
        found = {segment: self._merge.holder(segment) for segment in self.announced.min_times()}
        held_at = {segment: held for segment, held in found.items() if held is not None}
        return self._reported("", held_by=self._merge.holder(), held_at=held_at)


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
    tls = server_tls(secret) if first.tls else None
    if first.shard is not None:
        return _Shard(
            ShardServer(
                _maker(first, Graph(setting.graph)),
                shard=first.shard,
                shards=first.shards,
                merge=plain(first.merge),
                era=first.era,
                secret=secret,
                incarnation=setting.incarnation,
                on_fault=on_fault,
                tls=tls,
                merge_tls=client_tls(secret) if secured(first.merge) else None,
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
            tls=tls,
        )
        return _Merge(server)
    return _Alone(
        TrackerServer(
            _tracker_of(first),
            secret=secret,
            incarnation=setting.incarnation,
            on_fault=on_fault,
            on_notice=on_notice,
            tls=tls,
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
    setting = first.setting
    tracker = Tracker(
        Graph(setting.graph),
        setting.fronts,
        start=setting.start,
        capacity_ticks=setting.capacity_ticks,
        feeds=setting.feeds,
        dues=setting.dues,
        era=first.era,
    )
    return tracker if first.workers is None else tracker.rebuilt_from(first.workers)
