"""A look at a system from outside: what it has counted, and the CPU time that it has used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from lowtide.bench.processes import busy_s, cpu_s, descendants, parents
from lowtide.bench.systems import System


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a system: its histograms, and CPU times.

    Attributes:
        hops: What its histograms had counted.
        cpu_s: CPU time by kind of process.
        ours_s: CPU time of all processes of the run: generator, reader and Kafka too.
        all_s: CPU time of the whole machine.
    """

    hops: Mapping[str, Mapping[int, int]]
    cpu_s: Mapping[str, float]
    ours_s: float
    all_s: float

    @classmethod
    def at(cls, system: System) -> Look:
        """Look now."""
        kinds = system.processes()
        used = {kind: sum(map(cpu_s, pids)) for kind, pids in kinds.items()}
        run = descendants({os.getpid()}, parents()).union(*kinds.values())
        return cls(system.hops(), used, sum(map(cpu_s, run)), busy_s())

    def others_s(self, before: Look) -> float:
        """Return the CPU time since an earlier look that was none of ours."""
        return max(0.0, self.all_s - before.all_s - (self.ours_s - before.ours_s))
