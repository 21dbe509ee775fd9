"""The cost of a snapshot after some of the keys have changed: by deltas, and with each changed hash unit written whole.

Both go through the same changes in one run, each with a worker of its own: snapshot, commit, records of random keys,
snapshot, and so on.
"""

from __future__ import annotations

import resource
import statistics
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.worker import WorkerCore
from lowtide.flow.schema.raw_record import Raw
from lowtide.worker import part_chains
from lowtide.worker.saver import Saver
from lowtide_bench.counted import SPREAD, state_message
from lowtide_bench.session import Say
from lowtide_bench.stored import START, filled
from lowtide_bench.storing import WORKER, save
from lowtide_snapshots.stores import StoreSetting, open_store

BATCH = 1_000
WHOLE = "whole hash units"
DELTAS = "deltas"
SNAPSHOTS = {WHOLE: 8, DELTAS: part_chains.MOST_CHANGES + 1}
"""By deltas so many that each hash unit is written whole once; the others are all alike."""


def run(keys: int, state_bytes: int, changes: int, setting: StoreSetting, say: Say) -> dict[str, Any]:
    """Measure both ways, one after the other.

    Args:
        keys: Keys in the state.
        state_bytes: Bytes that each has beside its count.
        changes: Records between two snapshots, of random keys.
        setting: The store; everything put there is deleted again.
        say: Called with each progress message.

    Raises:
        SnapshotFailed: the state was not written.
    """
    found: dict[str, Any] = {"changes": changes, "snapshots": SNAPSHOTS, "ways": {}}
    for way in (WHOLE, DELTAS):
        core = filled(keys, state_bytes)
        mine = replace(setting, url=f"{setting.url.rstrip('/')}/{way.partition(' ')[0]}")
        with patch.object(part_chains, "MOST_DELTAS", 0 if way == WHOLE else part_chains.MOST_DELTAS):
            rows = _way(core, mine, keys, changes, SNAPSHOTS[way], partial(_said, say, way))
        found["ways"][way] = {
            name: {"median": statistics.median(each), "mean": statistics.fmean(each), "max": max(each)}
            for name, each in ((name, [row[name] for row in rows]) for name in rows[0])
        }
    return found


def _said(say: Say, way: str, what: str) -> None:
    say(f"{way}: {what}")


def _way(
    core: WorkerCore, setting: StoreSetting, keys: int, changes: int, snapshots: int, say: Say
) -> list[dict[str, float]]:
    dice, rows = Random(1), []  # noqa: S311 - the same each time
    saver = Saver(core.plan, setting, incarnation=1)
    saver.add(WORKER, core)
    with closing(open_store(setting)) as store:
        try:
            say("the first snapshot, which is whole")
            save(saver, core, 1)
            saver.committed(WORKER, START + 1)
            for number in range(2, snapshots + 2):
                say(f"snapshot {number - 1} of {snapshots}")
                feed_s = feed(core, dice, keys, changes, START + number - 1)
                before = _children_s()
                pause_s, took_s, parts = save(saver, core, number)
                rows.append(
                    {
                        "feed_us": feed_s / changes * 1e6,
                        "pause_ms": pause_s * 1e3,
                        "took_s": took_s,
                        "cpu_s": _children_s() - before,
                        "mb": sum(part.bytes for part in parts) / 1e6,
                        "parts": len(parts),
                        "whole": sum(part.since is None for part in parts),
                    }
                )
                saver.committed(WORKER, START + number)
        finally:
            store.delete([entry.name for entry in store.names("")])
    return rows


def feed(core: WorkerCore, dice: Random, keys: int, changes: int, tick: int) -> float:
    """Let records of random keys come at a tick; return the time that the worker took for them, in s."""
    vertex, units, took_s = next(iter(core.plan.exchanges())).id, core.plan.units, 0.0
    for first in range(0, changes, BATCH):
        numbers = [dice.randrange(keys) for _ in range(min(BATCH, changes - first))]
        ats = [OrderKey(tick, 0, first + place, (), 7).packed() for place in range(len(numbers))]
        rows = [Raw(*state_message(number, 0)) for number in numbers]
        batch = Batch(ats, [(number * SPREAD >> 16) % units for number in numbers], rows)
        began = time.perf_counter()
        core.program.feed(vertex, batch)
        took_s += time.perf_counter() - began
    return took_s


def _children_s() -> float:
    """Return the CPU time of the processes that have written."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
