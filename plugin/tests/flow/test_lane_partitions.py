"""The partitions of lanes over growths: each lane has one, and what a key has in a later one is newer."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from lowtide.flow.plan.lane_partitions import births_of, partition_of_lane, partitions_before
from lowtide.sinks.puts.contract import version_of
from lowtide_snapshots.job.record import units_of_lanes

UNITS = 96
SEEDS = range(200)


def drawn(seed: int) -> tuple[Random, list[int]]:
    """Draw the numbers of lanes that a job has had."""
    rng = Random(seed)
    counts = [rng.choice([1, 2, 3, 5])]
    while rng.random() < 0.7 and counts[-1] * 2 <= UNITS:
        counts.append(counts[-1] * rng.choice([each for each in (2, 3, 4) if counts[-1] * each <= UNITS]))
    return rng, counts


def partition_of_unit(counts: list[int], unit: int) -> int:
    return partition_of_lane(counts)[unit * counts[-1] // UNITS]


def test_the_first_part_of_a_lane_keeps_its_partition() -> None:
    assert partition_of_lane([8]) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert partition_of_lane([2, 8]) == [0, 2, 3, 4, 1, 5, 6, 7]
    assert partition_of_lane([2, 4, 8]) == [0, 4, 2, 5, 1, 6, 3, 7]
    assert births_of([2, 4, 8]) == [0, 0, 1, 1, 2, 2, 2, 2]
    assert partitions_before([2, 4, 8], 3) == [5, 2, 0]
    assert partitions_before([2, 4, 8], 4) == [1]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_partition_has_one_lane_at_any_time(seed: int) -> None:
    _, counts = drawn(seed)
    assert sorted(partition_of_lane(counts)) == list(range(counts[-1]))
    assert len(births_of(counts)) == counts[-1]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_key_stays_in_its_partition_or_moves_to_one_that_is_made_later(seed: int) -> None:
    """And of the keys of a partition none comes from another one that was there before."""
    _, counts = drawn(seed)
    histories = [counts[:end] for end in range(1, len(counts) + 1)]
    for before, after in pairwise(histories):
        for unit in range(UNITS):
            was, now = partition_of_unit(before, unit), partition_of_unit(after, unit)
            assert now == was or now >= before[-1]
            assert births_of(after)[was] == births_of(before)[was], "what is made stays as it is"


@pytest.mark.parametrize("seed", SEEDS)
def test_all_that_a_lane_had_is_in_the_partitions_before_its_own(seed: int) -> None:
    _, counts = drawn(seed)
    for lane in range(counts[-1]):
        places = partitions_before(counts, lane)
        assert places[0] == partition_of_lane(counts)[lane]
        units = units_of_lanes(UNITS, counts[-1], lane, lane + 1)
        had = {partition_of_unit(counts[:end], unit) for end in range(1, len(counts) + 1) for unit in units}
        assert set(places) == had
        assert sorted(places, reverse=True) == places, "the oldest comes last"


@pytest.mark.parametrize("seed", SEEDS)
def test_r22_versions_of_a_key_ascend_over_growths_and_generations(seed: int) -> None:
    rng, counts = drawn(seed)
    offsets, last = dict[int, int](), dict[int, int]()
    generation, end = 0, 1
    for _ in range(400):
        if rng.random() < 0.02:
            generation += 1
        if rng.random() < 0.03:
            end = min(end + 1, len(counts))
        history = counts[:end]
        unit = rng.randrange(UNITS)
        partition = partition_of_unit(history, unit)
        offsets[partition] = offsets.get(partition, -1) + rng.choice([1, 1, 2, 50])
        version = version_of(generation, offsets[partition], births_of(history)[partition])
        assert version > last.get(unit, -1)
        last[unit] = version
