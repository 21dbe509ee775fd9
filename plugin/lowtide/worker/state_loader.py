"""Loads a worker's state from a snapshot: the parts of its own hash units."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lowtide.assignment.birth import Birth
from lowtide.assignment.deployment import Deployment
from lowtide.core.operators.order import FIRST_TICK
from lowtide.core.operators.program import Captured
from lowtide.core.operators.saved_step import saved_steps
from lowtide.errors import LifeEnded
from lowtide.process.interpreter import without_collections
from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.format.manifest import Part
from lowtide_snapshots.format.parts import decode_part, sha256
from lowtide_snapshots.stores import Store, open_store

__all__ = ["load_state"]

GETS_AT_ONCE = 8


def load_state(deployment: Deployment, birth: Birth) -> Captured:
    """Load the parts of a worker's hash units, each held against its checksum.

    Raises:
        LifeEnded: a part cannot be read, or is another than the manifest says.
    """
    plan = deployment.plan
    steps = saved_steps(plan, birth.level)
    place = int(birth.name.partition("/")[2])
    workers = plan.worker_of_unit().tolist()
    mine = [part for part in deployment.restored if part.vertex in steps and workers[part.unit] == place]
    if not mine:
        return {}
    assert deployment.store is not None, "whoever has parts has a store"
    state: Captured = {}
    try:
        store = open_store(deployment.store)
        try:
            with ThreadPoolExecutor(GETS_AT_ONCE) as pool, without_collections():
                tables = pool.map(lambda part: _load(store, part, plan.name, plan.slack_ms), mine)
                for part, table in zip(mine, tables, strict=True):
                    # A part that did not change may still have keys that its life had forgotten since.
                    ttl = deployment.forgot.get(part.vertex)
                    gone = FIRST_TICK if ttl is None else deployment.start - ttl
                    state.setdefault(part.vertex, {})[part.unit] = steps[part.vertex].entries(table, gone)
        finally:
            store.close()
    except SnapshotsError as error:
        raise LifeEnded(error.what, where=error.where, way_out=error.way_out) from error
    return state


def _load(store: Store, part: Part, job: str, slack_ms: int) -> Any:
    name = part.name(job, slack_ms)
    data = store.get(name)
    if sha256(data) != part.sha256:
        raise LifeEnded(
            "a part of the snapshot that the job began from is not what its manifest says",
            where=f"{store.where}/{name}",
            way_out="start the job again: it begins from the commit before",
        )
    _, table = decode_part(data, name)
    return table
