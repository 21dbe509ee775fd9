"""Speed of writing a worker's state to a store and reading it back: the path of a snapshot, without Spark.

The worker's `Saver` writes: it forks a process that captures the state, makes a table of each hash unit, encodes it as
Parquet and puts it. Reading follows a life that starts from the snapshot: get, verify the checksum, decode, make
objects.
"""

from __future__ import annotations

import gc
import select
import time
import tracemalloc
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import count
from typing import Any

from lowtide.assignment.messages import PartWritten, ShareFailed
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.core.worker import WorkerCore
from lowtide.errors import SnapshotFailed
from lowtide.process.interpreter import set_up_collector, without_collections
from lowtide.worker.saver import Saver
from lowtide.worker.state_loader import GETS_AT_ONCE
from lowtide_bench.core_timing import spread
from lowtide_bench.ground import described
from lowtide_bench.session import Say
from lowtide_bench.stored import START, STEP, Kept, filled
from lowtide_snapshots.format.manifest import Part
from lowtide_snapshots.format.parts import PartHead, decode_part, encode_part, sha256
from lowtide_snapshots.stores import Store, StoreSetting, open_store
from lowtide_snapshots.stores.errors import StoreDamaged
from lowtide_tracker import Notice, Request

MB = 1e6
WORKER = "1/0"
WEIGHED = 100_000
"""Number of keys to measure memory with, which takes time."""
LIMIT_S = 600.0
"""Limit on one writing."""
LOOK_S = 0.01
"""Interval of looking for the end of the writing process, which sends no signal."""


def run(
    keys: int, state_bytes: int, kept: Kept, trials: int, settings: Sequence[StoreSetting], say: Say
) -> dict[str, Any]:
    """Measure, and return the object that `lowtide bench store --json` prints.

    Args:
        keys: Keys in the state.
        state_bytes: Bytes that each has beside its count.
        kept: Owner of the state.
        trials: Times that each store is written and read; the figures are medians.
        settings: The stores; everything put there is deleted again.
        say: Called with each progress message.

    Raises:
        SnapshotsError: a store failed.
        SnapshotFailed: the state was not written.
    """
    set_up_collector()
    with described() as surroundings:
        weight = _weight(state_bytes, kept)
        say(f"making {keys} keys")
        core = filled(keys, state_bytes, kept)
        say("encoding in this process")
        steps = _steps(core)
        stores, numbers = [], count(1)
        for setting in settings:
            # A prefix of its own, so that nothing else is there and all of it can be deleted.
            mine = replace(setting, url=f"{setting.url.rstrip('/')}/lowtide-bench-{uuid.uuid4().hex[:12]}")
            stores.append(_measured(core, mine, trials, steps["raw_bytes"], numbers=numbers, say=say))
    return {
        "of": kept,
        "keys": keys,
        "state_bytes": state_bytes,
        "trials": trials,
        "memory_bytes_per_key": weight,
        "steps": steps,
        "stores": stores,
        **surroundings,
    }


def _weight(state_bytes: int, kept: Kept) -> int:
    """Return the bytes of memory per key and its state, from everything that Python has allocated for them."""
    filled(1, state_bytes, kept)  # Whatever the first one loads belongs to no key.
    gc.collect()
    tracemalloc.start()
    try:
        core = filled(WEIGHED, state_bytes, kept)
        gc.collect()
        allocated, _ = tracemalloc.get_traced_memory()
        del core
        return round(allocated / WEIGHED)
    finally:
        tracemalloc.stop()


def _steps(core: WorkerCore) -> dict[str, Any]:
    """Time the steps one after the other on one thread, and size the state raw and as Parquet."""
    plan, took, sizes = core.plan, dict.fromkeys(("capture_s", "table_s", "encode_s", "checksum_s"), 0.0), [0, 0]
    step = saved_steps(plan, core.level)[STEP]

    def timed(name: str, began: float) -> None:
        took[name] += time.perf_counter() - began

    began = time.perf_counter()
    units = core.program.capture(START)[STEP]
    timed("capture_s", began)
    for unit, entries in units.items():
        began = time.perf_counter()
        table = step.table(entries)
        timed("table_s", began)
        began = time.perf_counter()
        head = PartHead(plan.name, STEP, step.kind, unit, START, plan.slack_ms, "000001-0001")
        data = encode_part(head, table)
        timed("encode_s", began)
        began = time.perf_counter()
        sha256(data)
        timed("checksum_s", began)
        sizes[0] += table.nbytes
        sizes[1] += len(data)
    rounded = {name: round(seconds, 4) for name, seconds in took.items()}
    return {**rounded, "parts": len(units), "raw_bytes": sizes[0], "parquet_bytes": sizes[1]}


def _measured(
    core: WorkerCore, setting: StoreSetting, trials: int, raw_bytes: int, *, numbers: Iterator[int], say: Say
) -> dict[str, Any]:
    rows = []
    with closing(open_store(setting)) as store:
        where = store.where
        store.check()
        try:
            for trial in range(trials):
                say(f"{where}: trial {trial + 1} of {trials}")
                rows.append(_trial(core, setting, store, raw_bytes, numbers))
        finally:
            store.delete([entry.name for entry in store.names("")])
    return {"where": where, **{name: spread([row[name] for row in rows]).as_json() for name in rows[0]}}


def _trial(
    core: WorkerCore, setting: StoreSetting, store: Store, raw_bytes: int, numbers: Iterator[int]
) -> dict[str, float]:
    """Write all of it, request it again with nothing changed, and read it back."""
    saver = Saver(core.plan, setting, incarnation=1)
    saver.add(WORKER, core)
    first, second = next(numbers), next(numbers)
    forked_s, written_s, parts = save(saver, core, first)
    saver.committed(WORKER, START + first)
    _, unchanged_s, others = save(saver, core, second)
    assert not others, "nothing has changed"
    began = time.perf_counter()
    rows = _read(core, store, parts)
    read_s = time.perf_counter() - began
    assert rows == sum(part.rows for part in parts), "a part that was read has other rows than it was written with"
    parquet = sum(part.bytes for part in parts)
    return {
        "pause_ms": forked_s * 1e3,
        "write_s": written_s,
        "write_raw_mb_per_s": raw_bytes / MB / written_s,
        "write_parquet_mb_per_s": parquet / MB / written_s,
        "unchanged_ms": unchanged_s * 1e3,
        "read_s": read_s,
        "read_raw_mb_per_s": raw_bytes / MB / read_s,
        "read_parquet_mb_per_s": parquet / MB / read_s,
    }


def save(saver: Saver, core: WorkerCore, number: int) -> tuple[float, float, list[Part]]:
    """Take a snapshot; return the worker's pause and the total time, in s, and the parts written."""
    began = time.perf_counter()
    core.notice(_asked(core, number))
    said = saver.begin()
    forked_s = time.perf_counter() - began
    try:
        while saver.writes:
            if time.perf_counter() - began > LIMIT_S:
                raise SnapshotFailed(f"it was not written within {LIMIT_S:g} s", way_out="give fewer --keys")
            select.select(saver.descriptors(), [], [], LOOK_S)
            said += saver.hear()
    finally:
        saver.close()
    took_s = time.perf_counter() - began
    for _, each in said:
        if isinstance(each, ShareFailed):
            raise SnapshotFailed(f"the state was not written: {each.cause}")
    return forked_s, took_s, [each.part for _, each in said if isinstance(each, PartWritten)]


def _asked(core: WorkerCore, number: int) -> Notice:
    """That all below the tick of a snapshot has left each segment, and that it is asked for."""
    tick = START + number
    times = dict.fromkeys(core.program.segments.inbound, tick)
    return Notice(1, number, number - 1, times, tick, request=Request(number, tick))


def _read(core: WorkerCore, store: Store, parts: Sequence[Part]) -> int:
    """Read parts back; return the number of keys in them."""
    plan = core.plan
    step = saved_steps(plan, core.level)[STEP]

    def table_of(part: Part) -> Any:
        name = part.name(plan.name, plan.slack_ms)
        data = store.get(name)
        if sha256(data) != part.sha256:
            raise StoreDamaged(
                "a part differs from what was written", where=f"{store.where}/{name}", way_out="check the store"
            )
        return decode_part(data, name)[1]

    with ThreadPoolExecutor(GETS_AT_ONCE) as pool, without_collections():
        return sum(len(step.entries(table)) for table in pool.map(table_of, parts))
