"""The parts of `lowtide bench early-keys` without a job: turns, whose lanes a record is of, the figures."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.schema.raw_record import Raw
from lowtide_bench import early_keys_report
from lowtide_bench.arrivals import Arrivals
from lowtide_bench.asked import AskedOfEarlyKeys
from lowtide_bench.early_keys import Turn, delays, summary, turns
from lowtide_bench.slow_key import EVERY, SLOW, Slow, SlowKeyed, slow_key
from lowtide_bench.tables import markdown
from lowtide_snapshots.keys.hashing import hash_unit

RECORDS = 40 * EVERY
FAST_MS, SLOW_MS = 10, 90


def asked(rounds: int, sleep: float) -> AskedOfEarlyKeys:
    return AskedOfEarlyKeys(rate=200, seconds=8, warmup=4, rounds=rounds, sleep=sleep, workers=2, tries=1)


def test_each_setting_is_first_and_last_in_turn() -> None:
    off, on = Turn(early=False, sleep_ms=0), Turn(early=True, sleep_ms=0)
    assert turns(asked(2, 0)) == [off, on, on, off]
    assert [turn.sleep_ms for turn in turns(asked(1, 200))] == [0, 0, 200, 200]


def test_one_key_of_both_partitions_sleeps_and_no_other() -> None:
    records, sleep_ms = SlowKeyed(), 20.0
    slow = [number for number in range(RECORDS) if records.message(number, 0)[0] == SLOW]
    assert len(slow) == RECORDS // EVERY
    assert {records.partition(number, 2) for number in slow} == {0, 1}
    function = Slow(sleep_ms)
    key, value = records.message(slow[0], 0)
    began = time.monotonic()
    assert function(0, Raw(key, value))[0] == 1
    assert time.monotonic() - began >= sleep_ms / 1e3


@pytest.mark.parametrize("workers", [2, 4])
def test_the_lanes_of_the_slow_keys_worker_are_apart_from_all_others(workers: int) -> None:
    """The other workers' records are fast here, the slow key's worker's are not."""
    plan = compile_flow(slow_key("job", "in", "out"), parallelism=workers, lanes=32)
    worker_of, records = plan.worker_of_unit(), SlowKeyed()
    numbers = np.arange(RECORDS)
    keys = [records.message(int(number), 0)[0] for number in numbers]
    of = np.array([worker_of[hash_unit([key], plan.units)] for key in keys])
    own = of == worker_of[hash_unit([SLOW], plan.units)]
    assert 0 < own.sum() < RECORDS
    latency_ms = np.where([key == SLOW for key in keys], 1_000, np.where(own, SLOW_MS, FAST_MS))
    sent = np.zeros(RECORDS, np.int64)
    measured = Arrivals(numbers, sent, sent, latency_ms.astype(np.int64) * 1_000_000, 0)
    assert delays(measured, [], plan) == {
        "others_p50_ms": FAST_MS,
        "others_p99_ms": FAST_MS,
        "own_p50_ms": SLOW_MS,
        "own_p99_ms": SLOW_MS,
    }


def turn(sleep_ms: float, p99_ms: float, notices: int, *, early: bool) -> dict[str, Any]:
    delayed = {"others_p50_ms": 10.0, "others_p99_ms": p99_ms, "own_p50_ms": 10.0, "own_p99_ms": 220.0}
    used = {"tracker_s": 0.8, "service_s": 1.6, "workers_s": 5.0, "jvm_s": 2.0, "cpu_s": 9.4}
    counts = {"flushes": 7_000, "acks": 4_000, "notices": notices, "lost": 1, "marked": False}
    return {"early": early, "sleep_ms": sleep_ms, **delayed, **used, **counts}


def test_ratios_are_of_medians_and_null_without_a_sleep() -> None:
    still = [turn(0, 50, 1_000, early=False), turn(0, 60, 1_500, early=True)]
    asleep = [turn(200, p99, 1_000, early=False) for p99 in (190, 200, 900)] + [turn(200, 60, 2_000, early=True)]
    found = summary([*still, *asleep])
    assert found["on_to_off_without_sleep"]["notices"] == 1.5
    assert found["on_to_off_with_sleep"]["others_p99_ms"] == 0.3
    assert found["sleep_to_none_off"]["others_p99_ms"] == 4
    assert found["sleep_to_none_on"]["others_p99_ms"] == 1
    assert found["lost"] == 6
    assert set(summary(still)["sleep_to_none_on"].values()) == {None}
    setting = {"rate": 200, "seconds": 8, "turns": [*still, *asleep]}
    shown = markdown(early_keys_report.tables({**setting, **found}), "")
    assert "| on, sleeps 200 ms | 10.0 | 60.0 | 10.0 | 220.0 |" in shown
    assert "| other workers' lanes, p99 | 1.20 | 0.30 | 4.00 | 1.00 |" in shown
