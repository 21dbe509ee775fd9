"""The partition that each lane has in a topic of the job's own, as the job grows.

A topic of staged records, or of answers, has a partition for each lane. More lanes divide each lane that there was: the
first of its parts keeps the partition, the others get new ones, numbered from the last one on. So with 2, then 8 lanes:

    2 lanes         0           1
    8 lanes     0  1  2  3  4  5  6  7
    partition   0  2  3  4  1  5  6  7

Nothing is written again. A partition has one lane at any time, and a key that moves goes to one that is made later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

__all__ = ["births_of", "partition_of_lane", "partitions_before"]


def partition_of_lane(counts: Sequence[int]) -> list[int]:
    """Return by lane its partition: each has one of its own; of a job that has never grown, that of its number.

    Args:
        counts: The numbers of lanes that the job had, the current one last; each is a multiple of the one before.
    """
    partitions = list(range(counts[0]))
    for before, after in pairwise(counts):
        fresh = iter(range(before, after))
        partitions = [kept if part == 0 else next(fresh) for kept in partitions for part in range(after // before)]
    return partitions


def births_of(counts: Sequence[int]) -> list[int]:
    """Return by partition the number of the growth that made it: 0 for those that were there at first.

    Args:
        counts: As of `partition_of_lane`.
    """
    return [bisect_right(counts, partition) for partition in range(counts[-1])]


def partitions_before(counts: Sequence[int], lane: int) -> list[int]:
    """Return the partitions that records of a lane's hash units are in: its own first, then those it had before.

    Args:
        counts: As of `partition_of_lane`.
        lane: The lane, by its current number.
    """
    found = [partition_of_lane(counts[:end])[lane * counts[end - 1] // counts[-1]] for end in range(len(counts), 0, -1)]
    return list(dict.fromkeys(found))
