"""Comparison of all results with what was sent: results that are lost, duplicated or wrong. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lowtide_bench.counted import Counted
from lowtide_bench.documents import Documents
from lowtide_bench.record import Int64s
from lowtide_bench.words import Words


class Results(Protocol):
    """Results that records must have, each numbered within its key from 1."""

    def results(self, sequence: int) -> list[tuple[int, int]]:
        """Return identity and key of each result of a record."""


RESULTS: Mapping[str, Results] = {
    "running-count": Counted(), "word-count": Words(), "inverted-index": Documents(),
}  # fmt: skip
"""By flow."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Final view of the results by a reader with `isolation.level=read_committed`.

    Attributes:
        lost: Results that never came.
        duplicated: Results beyond the first of their identity.
        wrong: For each key that must have n results: the numbers from 1 to n that no result has, and the numbers that
            results have besides. Such state was lost or counted twice.
    """

    lost: int
    duplicated: int
    wrong: int

    def as_json(self) -> dict[str, Any]:
        """Return it as in the JSON object."""
        return {"lost": self.lost, "duplicated": self.duplicated, "wrong": self.wrong}


def judge(columns: Int64s, sent: int, partitions: int, flow: str = "running-count") -> Verdict:
    """Judge a run; O(results due).

    Args:
        columns: The reader's data: int64[6, n] of identity, due, Kafka's timestamp, receipt, key, number in the key.
        sent: Records 0 to `sent` - 1 were sent, and before them a probe to each partition: -1 and below.
        partitions: Partitions of the topic.
        flow: The flow that gave the results.
    """
    identities, keys, numbers = columns[0], columns[4], columns[5]
    identities = identities[identities >= 0]
    different = np.unique(identities)
    due = [result for sequence in range(-partitions, sent) for result in RESULTS[flow].results(sequence)]
    lost = np.setdiff1d([identity for identity, _ in due if identity >= 0], different)
    of_key = Counter(key for _, key in due)
    expected = {(key, number) for key, last in of_key.items() for number in range(1, last + 1)}
    found = set(zip(keys.tolist(), numbers.tolist(), strict=True))
    return Verdict(len(lost), len(identities) - len(different), len(expected ^ found))
