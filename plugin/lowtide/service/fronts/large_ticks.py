"""Source partitions with more records at one tick than their window allows (R8): reported while they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from lowtide.service.workers.reported import Reported
from lowtide.status.gauges import WorkerState


class LargeTicks:
    """Watches the fronts of all workers; pure.

    Attributes:
        trouble: The partitions with a tick that is too large, and since when; empty if there are none.
    """

    def __init__(self) -> None:
        self.trouble = ""
        self._reported = Reported()

    def look(self, workers: Iterable[WorkerState], names: Mapping[int, str], now: datetime | None = None) -> bool:
        """Take the workers' reports, each second; return whether the partitions reported have changed.

        Args:
            workers: All of the life.
            names: `topic-partition` of each front.
            now: The time, UTC.
        """
        fronts = [worker.gauges.front for worker in workers if worker.gauges is not None]
        large = {names.get(front.front, ""): front.tick_bytes for front in fronts if front and front.overfull}
        reported = self._reported
        changed = reported.changed(large, now)
        said = ", ".join(f"{name} ({large[name] >> 20:,} MiB)" for name in reported.names)
        self.trouble = (
            f"since {reported.since} UTC: one tick has more records than memory is reserved for: {said}; min time "
            "waits for all of them, so they stay in memory; see LowtideTickTooLarge in docs/operations.md"
            if large
            else ""
        )
        return changed
