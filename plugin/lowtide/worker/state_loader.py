"""Loads a worker's state from a snapshot: the parts of its own hash units."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from typing import Any

from lowtide.assignment.birth import Birth
from lowtide.assignment.deployment import Deployment
from lowtide.core.operators.order.order import FIRST_TICK
from lowtide.core.operators.program import Captured
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.errors import LifeEnded
from lowtide.flow.plan.plan import Plan, state_names
from lowtide.process.interpreter import without_collections
from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.format.manifest import Part
from lowtide_snapshots.format.parts import SHARED, SHARED_UNIT, decode_part, sha256
from lowtide_snapshots.stores import Store, open_store

GETS_AT_ONCE = 8


def load_state(
    deployment: Deployment,
    birth: Birth,
    shelved: Collection[str] = (),
    put: Callable[[str, int, list[tuple[Key, Any]]], None] | None = None,
) -> Captured:
    """Load the parts of a worker's hash units and those that all workers share, checking each checksum.

    Args:
        deployment: The plan, and the parts that the life begins from.
        birth: The worker.
        shelved: Steps whose state may not fit memory.
        put: Takes theirs, part by part: step, hash unit and keys.

    Returns:
        The state of all other steps.

    Raises:
        LifeEnded: a part cannot be read, or does not match the manifest.
    """
    state: Captured = {}
    for step, unit, keys in _units(deployment, birth):
        if step in shelved and put is not None:
            put(step, unit, keys)
        else:
            state.setdefault(step, {})[unit] = keys
    return state


def _units(deployment: Deployment, birth: Birth) -> Iterator[tuple[str, int, list[tuple[Key, Any]]]]:
    """Yield the steps and hash units of which a worker has parts, with what these come to."""
    plan = deployment.plan
    steps = saved_steps(plan, birth.level)
    place = int(birth.name.partition("/")[2])
    mine = [part for part in parts_of(deployment.restored, plan, place) if part.vertex in steps]
    if not mine:
        return
    assert deployment.store is not None, "a life with parts has a store"
    mine = as_on_disk(mine, plan)
    try:
        store = open_store(deployment.store)
        try:
            with ThreadPoolExecutor(GETS_AT_ONCE) as pool, without_collections():
                loaded = _loaded(pool, store, mine, plan)
                for (step, unit), chain in groupby(loaded, key=lambda each: (each[0].vertex, each[0].unit)):
                    # An unchanged part may still have keys that its life has since forgotten.
                    ttl = deployment.forgot.get(step)
                    gone = FIRST_TICK if ttl is None else deployment.start - ttl
                    shared = steps[step].kind in SHARED
                    yield step, SHARED_UNIT if shared else unit, steps[step].applied([each for _, each in chain], gone)
        finally:
            store.close()
    except SnapshotsError as error:
        raise LifeEnded(error.what, where=error.where, way_out=error.way_out) from error


def _loaded(pool: ThreadPoolExecutor, store: Store, parts: Sequence[Part], plan: Plan) -> Iterator[tuple[Part, Any]]:
    """Yield parts with their tables, in order; no more are in memory than are loaded at once."""
    loading: deque[tuple[Part, Future[Any]]] = deque()
    for part in parts:
        loading.append((part, pool.submit(_load, store, part, plan.name, plan.slack_ms)))
        if len(loading) > GETS_AT_ONCE:
            first, table = loading.popleft()
            yield first, table.result()
    while loading:
        first, table = loading.popleft()
        yield first, table.result()


def as_on_disk(parts: Sequence[Part], plan: Plan) -> list[Part]:
    """Return parts in the order in which their keys lie on disk, so that a store fills page after page.

    Those of one hash unit stay in their order.
    """
    names = [name for vertex in plan.vertices for name in state_names(vertex)]
    numbers = {name: number for number, name in enumerate(names)}
    return sorted(parts, key=lambda part: (part.unit, numbers.get(part.vertex, -1)))


def parts_of(parts: Sequence[Part], plan: Plan, place: int) -> list[Part]:
    """Return the parts of one worker: those of its hash units, and of what all units share that of the lowest unit.

    Snapshots of earlier formats have the shared part once for each unit, all alike.
    """
    workers = plan.worker_of_unit().tolist()
    shared: dict[str, Part] = {}
    for part in parts:
        if part.kind in SHARED and (part.vertex not in shared or part.unit < shared[part.vertex].unit):
            shared[part.vertex] = part
    return [
        part for part in parts if (part is shared[part.vertex] if part.kind in SHARED else workers[part.unit] == place)
    ]


def _load(store: Store, part: Part, job: str, slack_ms: int) -> Any:
    name = part.name(job, slack_ms)
    data = store.get(name)
    if sha256(data) != part.sha256:
        raise LifeEnded(
            "a part of the job's starting snapshot does not match its manifest",
            where=f"{store.where}/{name}",
            way_out="start the job again: it begins from the commit before that",
        )
    _, table = decode_part(data, name)
    return table
