"""Partitions of a staged log by age: younger ones follow once the store has what older ones had at the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import lowtide as lt
from lowtide.sinks.staged.ages import Ages, births_by_key
from lowtide.sinks.staged.contract import Carriage, Progress, StagedRow

BIRTHS = [0, 0, 1, 2]
ENDS = {0: 10, 1: 0, 2: 5, 3: 7}


@dataclass(frozen=True)
class Order:
    user: str


def rows(*offsets: int) -> list[StagedRow]:
    return [StagedRow(offset, 0, b"key", b"{}") for offset in offsets]


def progress(**needed: int) -> dict[int, Progress]:
    return {lane: Progress(needed.get(f"p{lane}", 0)) for lane in range(len(BIRTHS))}


def read_to(**offsets: int) -> object:
    return lambda ends: all(offsets.get(f"p{lane}", 0) >= end for lane, end in ends.items())


def test_a_growth_s_partitions_follow_once_the_store_has_what_older_ones_had() -> None:
    ages = Ages(BIRTHS, ENDS)
    assert ages.waiting == {2, 3}

    def go_on(read: Mapping[str, int], needed: Mapping[str, int]) -> bool:
        return ages.go_on(read_to(**read), progress(**needed))  # type: ignore[arg-type]

    ages.take(0, rows(3, 8))
    assert not go_on({"p0": 9}, {"p0": 9}), "one of them is not read"
    ages.take(0, rows(12))
    assert not go_on({"p0": 13}, {"p0": 4}), "one of them is not in the store"
    assert go_on({"p0": 13}, {"p0": 9}), "what came since does not count"
    assert ages.waiting == {3}
    assert not go_on({"p0": 13}, {"p0": 9})
    ages.take(2, rows(4))
    assert not go_on({"p0": 13, "p2": 5}, {"p0": 9, "p2": 4})
    assert go_on({"p0": 13, "p2": 5}, {"p0": 9, "p2": 5})
    assert ages.waiting == frozenset()
    assert not go_on({"p0": 13, "p2": 5}, {"p0": 9, "p2": 5})


def test_only_sinks_by_key_of_a_job_that_has_grown_wait() -> None:
    puts = lt.puts("orders", Order, key="user", put=lt.redis())
    table = lt.delta("/lake/orders", Order)
    grown = Carriage("shop", "id", 0, "sink", 6, 10, lane_counts=(2, 6))
    assert births_by_key(puts, grown) == [0, 0, 1, 1, 1, 1]
    assert not births_by_key(table, grown)
    assert not any(births_by_key(puts, Carriage("shop", "id", 0, "sink", 6, 10)))
    assert Ages((), {}).waiting == Ages([0, 0], {0: 1, 1: 1}).waiting == frozenset()
