"""The sharded tracker of a life: the processes of shards and merge, each watched and replaced on its own (R9)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Protocol

from lowtide.process.doors import Doors
from lowtide.service.tracker.messages import TrackerSetting
from lowtide.service.tracker.process import Part, TrackerHooks, TrackerProcess
from lowtide.status.tracker_report import ShardReport, ShardState, TrackerReport
from lowtide_snapshots.cause import Cause
from lowtide_tracker import Holder, Traffic

SILENCE_S = 2.0
"""Seconds of silence after which a process that reports several times a second is reported as silent."""


class LifeTracker(Protocol):
    """The tracker of a life, sharded or not, as the service uses it."""

    @property
    def report(self) -> TrackerReport | None:
        """The newest report; None before the first."""

    @property
    def shards(self) -> tuple[str, ...]:
        """The addresses of the shards, by number; empty if there are none."""

    @property
    def troubles(self) -> list[str]:
        """Return the faults that do not stop the life."""

    async def start(self) -> str:
        """Start all; return its address (errors: LifeEnded, ServiceUnavailable)."""

    async def close(self) -> None:
        """End all, without a notice."""

    def end_if_silent(self) -> None:
        """Replace a process that hangs; call it each second."""

    async def request(self, number: int) -> int:
        """Ask all workers for a snapshot; return its tick (errors: ServiceUnavailable)."""

    def forget_floors(self, front: int, offset: int) -> None:
        """Have it drop floors that a commit makes unnecessary."""


class ShardedTracker:
    """The merge, which is the tracker to all listeners, and the shards, to which workers flush.

    Args:
        setting: The tracker's setting.
        secret: The job's secret.
        hooks: The calls to the life.
        doors: Opens its doors.
        shards: The number of shards.

    Attributes:
        report: The merge's newest report, with the state of the shards; None before the first.
    """

    def __init__(
        self,
        setting: TrackerSetting,
        secret: bytes,
        hooks: TrackerHooks,
        doors: Doors,
        *,
        shards: int,
    ) -> None:
        self.report: TrackerReport | None = None
        self.shards: tuple[str, ...] = ()
        self._hooks = hooks
        self._faulted = False
        own = replace(hooks, on_fault=self._fault, on_report=self._reported)

        def processes(merge: str) -> list[TrackerProcess]:
            parts = [Part(shards, shard, merge) for shard in range(shards)]
            return [TrackerProcess(setting, secret, own, doors, part) for part in parts]

        self._merge = TrackerProcess(setting, secret, own, doors, Part(shards))
        self._processes: list[TrackerProcess] = []
        self._make = processes

    async def start(self) -> str:
        """Start all processes; return the merge's address (errors: as for `TrackerProcess.start`)."""
        address = await self._merge.start()
        try:
            self._processes = self._make(address)
            # All have their listening sockets by the time one fails, so closing ends them all.
            started = await asyncio.gather(*(each.start() for each in self._processes), return_exceptions=True)
            failed = [each for each in started if isinstance(each, BaseException)]
            if failed:
                raise failed[0]
        except BaseException:
            await self.close()
            raise
        self.shards = tuple(str(each) for each in started)
        return address

    async def close(self) -> None:
        """End all processes, without a notice."""
        await asyncio.gather(*(each.close() for each in (*self._processes, self._merge)))

    @property
    def pids(self) -> tuple[int | None, ...]:
        """The ids of the running processes, by shard, the merge's last."""
        return (*(each.pid for each in self._processes), self._merge.pid)

    @property
    def troubles(self) -> list[str]:
        """Return the faults of the merge and the shards; min time stands while there are any."""
        found = [f"{self._merge.part} {_silence(self._merge)}"] if _silence(self._merge) else []
        for each in self._processes:
            trouble = _trouble(each)
            if trouble:
                found.append(f"{each.part} {trouble}")
        return found

    def end_if_silent(self) -> None:
        """As for `TrackerProcess`, for each of them."""
        for each in (self._merge, *self._processes):
            each.end_if_silent()

    async def request(self, number: int) -> int:
        """As for `TrackerProcess`: the merge asks all workers."""
        return await self._merge.request(number)

    def forget_floors(self, front: int, offset: int) -> None:
        """As for `TrackerProcess`: the merge has all floors, and each shard some."""
        for each in (self._merge, *self._processes):
            each.forget_floors(front, offset)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _reported(self, report: TrackerReport) -> None:
        """Add the shards' reports to the merge's."""
        states = tuple(self._state(shard, each) for shard, each in enumerate(self._processes))
        report = replace(report, shards=states, traffic=self._traffic(report.traffic))
        troubled = [f"shard {state.shard} of the tracker {state.trouble}" for state in states if state.trouble]
        if troubled:
            report = replace(report, holder="; ".join([*([report.holder] if report.holder else []), *troubled]))
        else:
            found = {segment: self._holder(report, *at) for segment, at in report.held_at.items()}
            holders = {segment: held for segment, held in found.items() if held is not None}
            report = replace(report, holders=holders, held_at={})
            if report.held_by is not None:
                report = self._held(report, *report.held_by)
        self.report = report
        self._hooks.on_report(report)

    def _traffic(self, merges: Traffic) -> Traffic:
        """Return the traffic of all running processes."""
        total = Traffic()
        for each in (merges, *(said.traffic for said in self._said() if said is not None)):
            total.add(each)
        return total

    def _said(self) -> list[ShardReport | None]:
        return [each.shard_report for each in self._processes]

    def _holder(self, report: TrackerReport, shard: int, segment: int) -> Holder | None:
        """Return what holds a min time as the shard says that the merge names; None if that has moved."""
        said = self._processes[shard].shard_report if shard < len(self._processes) else None
        held = None if said is None else said.holders.get(segment)
        return held if held is not None and held.tick == report.min_times.get(segment) else None

    def _held(self, report: TrackerReport, shard: int, segment: int) -> TrackerReport:
        held = self._holder(report, shard, segment)
        if held is None:
            return replace(report, holder=f"what shard {shard} of the tracker has of segment {segment}")
        return replace(report, held=held, holder=str(held))

    def _state(self, shard: int, process: TrackerProcess) -> ShardState:
        said = process.shard_report
        traffic = Traffic() if said is None else said.traffic
        return ShardState(shard, process.era, process.pid, traffic, _trouble(process))

    def _fault(self, cause: Cause) -> None:
        """Report the first fault that ends the life."""
        if not self._faulted:
            self._faulted = True
            self._hooks.on_fault(cause)


def _silence(process: TrackerProcess) -> str:
    silent_s = process.silent_s
    return f"has been silent for {silent_s:.0f} s" if silent_s >= SILENCE_S else ""


def _trouble(process: TrackerProcess) -> str:
    """Return the fault of a shard; empty if it has none."""
    said = process.shard_report
    if process.pid is None:
        return "is gone and being restarted"
    silence = _silence(process)
    if silence:
        return silence
    if said is None or said.pid != process.pid:
        return "is being started"
    if not said.joined:
        return "has no line to the merge"
    if said.missing:
        return f"is being rebuilt and waits for workers {', '.join(map(str, said.missing))}"
    return ""
