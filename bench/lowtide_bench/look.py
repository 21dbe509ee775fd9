"""A look at a system from outside: its histograms, and the CPU time that the run's processes have used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lowtide_bench.processes import busy_s, cpu_s
from lowtide_bench.roles import roles
from lowtide_bench.systems import System


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a system: its histograms, and CPU times.

    Attributes:
        hops: The counts of its histograms.
        roles: Roles of the run's processes: the system's, Kafka's, generator and reader.
        used_s: CPU time that each of them had used.
        all_s: CPU time of the whole machine.
    """

    hops: Mapping[str, Mapping[int, int]]
    roles: Mapping[int, str]
    used_s: Mapping[int, float]
    all_s: float

    @classmethod
    def at(cls, system: System) -> Look:
        """Look now."""
        found = roles()
        return cls(system.hops(), found, {pid: cpu_s(pid) for pid in found}, busy_s())

    def cpu_s(self, before: Look) -> dict[str, float]:
        """Return the CPU time since an earlier look by role, each process once.

        A process that has ended meanwhile cannot be measured and is left out.
        """
        sums: dict[str, float] = {}
        for pid, role in sorted(self.roles.items()):
            used = max(0.0, self.used_s[pid] - before.used_s.get(pid, 0.0))
            sums[role] = sums.get(role, 0.0) + used
        return sums

    def others_s(self, before: Look) -> float:
        """Return the CPU time since an earlier look that processes outside the run used."""
        return max(0.0, self.all_s - before.all_s - sum(self.cpu_s(before).values()))
