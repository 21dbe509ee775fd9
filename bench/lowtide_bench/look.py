"""A look at a system from outside: its histograms, and the CPU time that the run's processes have used."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lowtide_bench.processes import busy_s, cpu_s, orphans_s
from lowtide_bench.quiet import Noise
from lowtide_bench.roles import roles
from lowtide_bench.systems import System


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a system: its histograms, and CPU times.

    Attributes:
        hops: The counts of its histograms.
        roles: Roles of the run's processes: the system's, Kafka's, generator and reader.
        used_s: CPU time that each of them had used, with its ended children.
        all_s: CPU time of the whole machine.
        orphans_s: CPU time of processes that have ended without a parent, the run's among them.
        at_s: The time, of the monotonic clock.
    """

    hops: Mapping[str, Mapping[int, int]]
    roles: Mapping[int, str]
    used_s: Mapping[int, float]
    all_s: float
    orphans_s: float
    at_s: float

    @classmethod
    def at(cls, system: System, beside: Collection[int] = ()) -> Look:
        """Look now; `beside` are processes of the run that are not its own children."""
        found = roles(beside)
        return cls(system.hops(), found, {pid: cpu_s(pid) for pid in found}, busy_s(), orphans_s(), time.monotonic())

    def cpu_s(self, before: Look) -> dict[str, float]:
        """Return the CPU time since an earlier look by role; a process that ended counts with the one that waited."""
        had = before.by_role()
        return {role: max(0.0, used - had.get(role, 0.0)) for role, used in self.by_role().items()}

    def by_role(self) -> dict[str, float]:
        """Return the CPU time so far by role."""
        sums: dict[str, float] = {}
        for pid, role in sorted(self.roles.items()):
            sums[role] = sums.get(role, 0.0) + self.used_s[pid]
        return sums

    def noise(self, before: Look, *, low: bool) -> Noise:
        """Return the CPU shares since an earlier look; `low` as in `Noise`."""
        seconds, busy = self.at_s - before.at_s, self.all_s - before.all_s
        run = sum(self.used_s.values()) - sum(before.used_s.values()) + self.orphans_s - before.orphans_s
        return Noise(max(0.0, busy - run) / seconds, busy / seconds / (os.cpu_count() or 1), low)
