"""Due times of records: an open loop, which the system under measurement cannot slow down."""

from __future__ import annotations

from dataclasses import dataclass

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """`rate` records per second from `start_ns` on, evenly.

    Latency counts from the time a record is due. So a generator that stalls does not hide the delay that its records
    would have met (coordinated omission): they count as late.

    Attributes:
        start_ns: Due time of record 0, ns since 1970.
        rate: Records per second.
        warmup_s: Duration of the first records, which count in no percentile.
        seconds: Duration of sending after that.
    """

    start_ns: int
    rate: int
    warmup_s: float
    seconds: float

    @property
    def warmup_count(self) -> int:
        """The number of the first record that counts."""
        return round(self.rate * self.warmup_s)

    @property
    def count(self) -> int:
        """Return the number of records."""
        return self.warmup_count + max(1, round(self.rate * self.seconds))

    @property
    def window_ns(self) -> tuple[int, int]:
        """The time in which the records that count are due: from, to (exclusive)."""
        return self.time_of(self.warmup_count), self.time_of(self.count)

    def time_of(self, sequence: int) -> int:
        """Return the due time of a record."""
        return self.start_ns + sequence * NS // self.rate

    def due(self, now_ns: int) -> int:
        """Return the number of records due by a time: those with `time_of(sequence) <= now_ns`."""
        if now_ns < self.start_ns:
            return 0
        # `time_of` rounds down, so record i is due from the ceiling of its exact time on.
        return min(self.count, ((now_ns - self.start_ns + 1) * self.rate - 1) // NS + 1)
