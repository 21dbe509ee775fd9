"""Load for a system under measurement: even or rising."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, TypeVar

from lowtide_bench.quiet import TRIES
from lowtide_bench.ramp import Ramp
from lowtide_bench.schedule import Schedule

LATE_LIMIT_S = 30.0
"""Time beyond its schedule, and half as much again, that the generator and then the reader may take."""
LOW_RATE = 5_000
"""Up to this many records per second a run leaves cores idle, so that a full machine is a disturbance."""

S = TypeVar("S", Schedule, Ramp)
S_co = TypeVar("S_co", Schedule, Ramp, covariant=True)


class Sent(Protocol[S_co]):
    """Load to send: a `Load` or a `Rise`."""

    @property
    def tries(self) -> int:
        """Return the limit on measurements under it, which are repeated while the machine disturbs them."""

    @property
    def low(self) -> bool:
        """Return whether all of it is at a low rate."""

    def schedule(self, start_ns: int) -> S_co:
        """Return the schedule of the records."""

    @property
    def limit_s(self) -> float:
        """Return the limit on sending, and on the arrival of what is under way after that, in s."""


@dataclass(frozen=True, slots=True)
class Load:
    """Even load: a number of records per second for a time, after a warm-up; `tries` as in `Sent`."""

    rate: int
    seconds: float
    warmup_s: float
    tries: int = TRIES

    @property
    def low(self) -> bool:
        """Return whether the rate is at most `LOW_RATE`."""
        return self.rate <= LOW_RATE

    def schedule(self, start_ns: int) -> Schedule:
        """Return the schedule of the records."""
        return Schedule(start_ns, self.rate, self.warmup_s, self.seconds)

    @property
    def limit_s(self) -> float:
        """Return the limit on sending, and on the arrival of what is under way after that, in s."""
        return 1.5 * (self.seconds + self.warmup_s) + LATE_LIMIT_S


@dataclass(frozen=True, slots=True)
class Rise:
    """Rising load that finds out how much a system can take: each rate for the same time.

    Attributes:
        rates: Records per second, rising.
        step_s: Duration of each rate.
        warmup_s: Duration of the first rate before its step, rounded up to whole steps.
        tries: As in `Sent`.
    """

    rates: tuple[int, ...]
    step_s: float
    warmup_s: float
    tries: int = TRIES

    @property
    def low(self) -> bool:
        """Return False: it rises until the machine is full."""
        return False

    def schedule(self, start_ns: int) -> Ramp:
        """Return the schedule of the records."""
        warmups = math.ceil(self.warmup_s / self.step_s)
        return Ramp(start_ns, (*self.rates[:1] * warmups, *self.rates), self.step_s, warmups)

    @property
    def limit_s(self) -> float:
        """Return the limit as in `Load`; a rate that is too high leaves a backlog, which takes its time."""
        return 3 * (self.step_s * len(self.rates) + self.warmup_s) + LATE_LIMIT_S
