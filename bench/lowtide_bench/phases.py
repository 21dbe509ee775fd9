"""The parts of one run that take snapshots at different paces, under one continuous load. Pure.

The variants run one after another in one job, with the same state, caches and machine, so that they can be compared;
`rounds` repeats that, against drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide_bench.load import Load
from lowtide_bench.quiet import TRIES
from lowtide_bench.schedule import NS, Schedule


@dataclass(frozen=True, slots=True)
class Phase:
    """A window of the measurement.

    Attributes:
        every_s: Interval of snapshots in it; 0 for none.
        start_ns: Its beginning, ns since 1970.
        end_ns: Its end, exclusive: records due before belong to it.
    """

    every_s: float
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Course:
    """Variants, one after another, and that several times.

    Attributes:
        every: The pace of each variant in s; 0 for none.
        rounds: Turns of each variant.
        seconds: Duration of a turn.
        settle_s: Pause between two turns, in which the effects of the first fade.
        tries: As in `Sent`.
    """

    every: tuple[float, ...]
    rounds: int
    seconds: float
    settle_s: float
    tries: int = TRIES

    @property
    def turns(self) -> tuple[float, ...]:
        """The paces in the order of time."""
        return self.every * self.rounds

    def turns_of(self, every_s: float) -> list[int]:
        """Return the positions of a variant's turns among all."""
        return [turn for turn, every in enumerate(self.turns) if every == every_s]

    def load(self, rate: int, warmup_s: float) -> Load:
        """Return the one load that all turns are under."""
        turns = len(self.turns)
        return Load(rate, turns * self.seconds + (turns - 1) * self.settle_s, warmup_s, self.tries)

    def phases(self, schedule: Schedule) -> list[Phase]:
        """Return the turns' windows within a schedule of that load."""
        begin, _ = schedule.window_ns
        step, length = round((self.seconds + self.settle_s) * NS), round(self.seconds * NS)
        return [Phase(every, begin + n * step, begin + n * step + length) for n, every in enumerate(self.turns)]


def whole(every_s: float, schedule: Schedule) -> Sequence[Phase]:
    """Return the whole window of a schedule as one phase."""
    return [Phase(every_s, *schedule.window_ns)]
