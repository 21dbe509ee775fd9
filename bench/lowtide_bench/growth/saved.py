"""The state that a worker keeps, and the parts of its snapshots, counted."""

from __future__ import annotations

import tempfile
from random import Random

from lowtide.worker.saver import Saver
from lowtide_bench.changing import feed
from lowtide_bench.stored import START, filled
from lowtide_bench.storing import WORKER, save
from lowtide_snapshots.stores import StoreSetting


def saved(keys: int, state_bytes: int, changes: int) -> dict[str, float]:
    """Count the state of a running count, the parts of its first snapshot, and of the next one after some records.

    Args:
        keys: Keys in the state.
        state_bytes: Bytes that each has beside its count.
        changes: Records of random keys between the two snapshots.
    """
    core = filled(keys, state_bytes)
    (kept,) = core.program.kept.values()
    with tempfile.TemporaryDirectory("-lowtide-bench") as folder:
        saver = Saver(core.plan, StoreSetting(url=folder), incarnation=1)
        saver.add(WORKER, core)
        _, _, whole = save(saver, core, 1)
        saver.committed(WORKER, START + 1)
        feed(core, Random(1), keys, changes, START + 1)  # noqa: S311 - the same each time
        _, _, changed = save(saver, core, 2)
    return {
        "keys kept": kept.number,
        "bytes kept": kept.bytes,
        "parts": len(whole),
        "bytes of parts": sum(part.bytes for part in whole),
        "parts after changes": len(changed),
        "bytes after changes": sum(part.bytes for part in changed),
    }
