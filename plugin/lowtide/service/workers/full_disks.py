"""Processes whose state on disk comes near to its limit: reported while it does, as at the limit their life ends."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from lowtide.service.workers.reported import Reported
from lowtide.status.gauges import WorkerState

WARNED_AT = 0.8
"""The share of `state.disk_max_gb` from which on a process is reported."""


class FullDisks:
    """Watches the state on disk of all workers' processes; pure.

    Attributes:
        trouble: The processes near their limit, each named by its first worker, and since when; empty if there are
            none.
    """

    def __init__(self) -> None:
        self.trouble = ""
        self._reported = Reported()

    def look(self, workers: Iterable[WorkerState], now: datetime | None = None) -> bool:
        """Take the workers' reports, each second; return whether the processes reported have changed.

        Args:
            workers: All of the life.
            now: The time, UTC.
        """
        disks = {each.worker: each.gauges.disk for each in workers if each.gauges is not None}
        full = {name: disk.fullest for name, disk in disks.items() if disk is not None and disk.fullest >= WARNED_AT}
        reported = self._reported
        changed = reported.changed(full, now)
        said = ", ".join(f"of {name} ({full[name]:.0%})" for name in reported.names)
        self.trouble = (
            f"since {reported.since} UTC: little is left of state.disk_max_gb in the process {said}; at 100 % the job "
            'ends; see "State on disk" in docs/operations.md'
            if full
            else ""
        )
        return changed
