"""A tracker in shards as the service has it: a process for each shard and one for the merge."""

from __future__ import annotations

import os
import signal

from tracker_life import SECRET, TrackerLife, wait

from lowtide.process.doors import DoorKind
from lowtide.service.tracker.sharded import ShardedTracker

MERGE = -1


class ShardedTrackerLife(TrackerLife):
    """A running tracker in shards; `restarts` are the merge's."""

    process: ShardedTracker  # type: ignore[assignment]

    def __init__(
        self,
        shards: int,
        *,
        graph: dict[int, tuple[int, ...]] | None = None,
        fronts: dict[int, int] | None = None,
        dues: dict[int, list[int]] | None = None,
        kind: DoorKind = DoorKind.UNIX,
    ) -> None:
        self.count = shards
        super().__init__(graph, fronts=fronts, dues=dues, kind=kind)

    def make(self) -> ShardedTracker:  # type: ignore[override]
        return ShardedTracker(self.setting, SECRET, self.hooks, self.doors, shards=self.count)

    def signal(self, which: int, number: signal.Signals) -> int:
        """Send a signal to a shard's process, or the merge's, and return who it was."""
        wait(lambda: self.process.pids[which] is not None)
        pid = self.process.pids[which]
        assert pid is not None
        os.kill(pid, number)
        return pid

    def kill_one(self, which: int) -> int:
        """Kill a shard's process or the merge's; when it returns, the service has noticed."""
        pid = self.signal(which, signal.SIGKILL)
        wait(lambda: self.process.pids[which] != pid)
        return pid

    def whole(self) -> bool:
        """True if all processes run and nothing is wrong with them."""
        report = self.process.report
        return (
            report is not None
            and report.pid == self.process.pids[MERGE]
            and not report.missing
            and not any(state.trouble for state in report.shards)
        )
