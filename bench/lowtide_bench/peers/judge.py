"""Comparison of all results with what was sent: results that are lost, duplicated or wrong. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide_bench.counted import Counted
from lowtide_bench.record import Int64s


@dataclass(frozen=True, slots=True)
class Verdict:
    """Final view of the running count by a reader with `isolation.level=read_committed`.

    Attributes:
        lost: Records without a result.
        duplicated: Results of a record beyond its first.
        wrong: For each key with n records sent: the numbers from 1 to n that no result has, and the numbers that
            results have besides. Such state was lost or counted twice.
    """

    lost: int
    duplicated: int
    wrong: int

    def as_json(self) -> dict[str, Any]:
        """Return it as in the JSON object."""
        return {"lost": self.lost, "duplicated": self.duplicated, "wrong": self.wrong}


def judge(columns: Int64s, sent: int, partitions: int) -> Verdict:
    """Judge a run; O(records sent).

    Args:
        columns: The reader's data: int64[6, n] of number, due, Kafka's timestamp, receipt, key, count.
        sent: Records 0 to `sent` - 1 were sent, and before them a probe to each partition: -1 and below.
        partitions: Partitions of the topic.
    """
    numbers, keys, counts = columns[0], columns[4], columns[5]
    numbers = numbers[numbers >= 0]
    different = len(np.unique(numbers))
    records = Counted()
    of_key = Counter(records.message(number, 0)[0] for number in range(-partitions, sent))
    expected = {
        (int.from_bytes(key or b"", "little"), count) for key, last in of_key.items() for count in range(1, last + 1)
    }
    found = set(zip(keys.tolist(), counts.tolist(), strict=True))
    return Verdict(sent - different, len(numbers) - different, len(expected ^ found))
