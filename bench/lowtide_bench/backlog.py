"""Backlog: records that are in a log before anything reads it, and the speed at which it is worked off. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lowtide_bench.arrivals import Arrivals
from lowtide_bench.record import Records
from lowtide_bench.schedule import NS

Message = tuple[int, bytes | None, bytes, int]
"""Partition, key, value, timestamp in ms."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Records whose timestamps are spread evenly over a span of time, in each partition alike.

    Attributes:
        end_ns: The last timestamp, ns since 1970.
        count: Number of records.
        span_s: From the first timestamp to the last.
    """

    end_ns: int
    count: int
    span_s: float

    def time_of(self, sequence: int) -> int:
        """Return a record's timestamp, ns since 1970."""
        span_ns = round(self.span_s * NS)
        return self.end_ns - span_ns + sequence * span_ns // max(1, self.count - 1)

    def messages(self, records: Records, partitions: int) -> Iterator[Message]:
        """Yield the records of a flow as messages, in the order of their timestamps."""
        for sequence in range(self.count):
            stamp_ns = self.time_of(sequence)
            key, value = records.message(sequence, stamp_ns)
            yield records.partition(sequence, partitions), key, value, stamp_ns // 1_000_000


@dataclass(frozen=True, slots=True)
class Drained:
    """The speed at which a backlog was worked off, once output began.

    Attributes:
        seconds: From the first message received to the last.
        per_s: Messages per second in that span, without those that came with the first. None if all came at once.
    """

    seconds: float
    per_s: float | None

    @classmethod
    def of(cls, arrivals: Arrivals) -> Drained:
        """Compute it from the arrivals."""
        if not len(arrivals):
            return cls(0.0, None)
        first, last = int(arrivals.received_ns.min()), int(arrivals.received_ns.max())
        later = int(np.count_nonzero(arrivals.received_ns > first))
        return cls((last - first) / NS, later * NS / (last - first) if later else None)
