"""Loads a worker's state from a snapshot: the parts of its own hash units."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from typing import Any, NamedTuple

from lowtide.assignment.birth import Birth
from lowtide.assignment.deployment import Deployment
from lowtide.core.operators.order.order import FIRST_TICK
from lowtide.core.operators.program import Captured, Program
from lowtide.core.operators.state.cold import Entry
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.packing import Packing
from lowtide.core.operators.state.saved_step import SavedStep, saved_steps
from lowtide.disk.copies import LocalCopies, whose
from lowtide.errors import LifeEnded
from lowtide.flow.plan.plan import Plan, state_names
from lowtide.process.interpreter import without_collections
from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.format.entries import Chains, chains_of
from lowtide_snapshots.format.manifest import Part
from lowtide_snapshots.format.parts import SHARED, SHARED_UNIT, by_unit, decode_part, sha256
from lowtide_snapshots.stores import Store, open_store

GETS_AT_ONCE = 8


class Shelving(NamedTuple):
    """Takes the state of steps that may not fit memory.

    Attributes:
        program: The worker's.
        steps: Their names.
        copies: The machine's copies of parts; None if there are none.
    """

    program: Program
    steps: Collection[str]
    copies: LocalCopies | None = None

    def packing(self, step: SavedStep) -> str | None:
        """The packing of a step's parts, in words; None if it does not follow from the parts alone."""
        packing = self.program.packing(step.vertex)
        return None if packing is None else described(packing, step)


def described(packing: Packing, step: SavedStep) -> str:
    """A text that is the same as long as a step's parts are packed alike, in whichever life."""
    return f"{packing.described} {step.shape}"


def load_state(deployment: Deployment, birth: Birth, shelving: Shelving | None = None) -> Captured:
    """Load the parts of a worker's hash units and those that all workers share, checking each checksum.

    Args:
        deployment: The plan, and the parts that the life begins from.
        birth: The worker.
        shelving: Takes its steps' state, unit by unit.

    Returns:
        The state of all other steps.

    Raises:
        LifeEnded: a part cannot be read, or does not match the manifest.
    """
    state: Captured = {}
    tick = deployment.start
    for step, unit, content in _units(deployment, birth, shelving):
        if shelving is None or step.vertex not in shelving.steps:
            state.setdefault(step.vertex, {})[unit] = _entries(deployment, step, content.tables)
        elif content.copied is not None:
            shelving.program.restore_packed(step.vertex, unit, content.copied, tick)
        else:
            entries = _entries(deployment, step, content.tables)
            shelving.program.restore_unit(step.vertex, unit, entries, tick)
    return state


def _entries(deployment: Deployment, step: SavedStep, tables: Sequence[Any]) -> list[tuple[Key, Any]]:
    # An unchanged part may still have keys that its life has since forgotten.
    ttl = deployment.forgot.get(step.vertex)
    return step.applied(tables, FIRST_TICK if ttl is None else deployment.start - ttl)


class _Content(NamedTuple):
    """A hash unit: what the store has for it, or what lies on this machine."""

    tables: Sequence[Any] = ()
    copied: list[Entry] | None = None


def _units(
    deployment: Deployment, birth: Birth, shelving: Shelving | None
) -> Iterator[tuple[SavedStep, int, _Content]]:
    """Yield the steps and hash units of which a worker has parts, with what these have."""
    plan = deployment.plan
    steps = saved_steps(plan, birth.level)
    place = int(birth.name.partition("/")[2])
    mine = [part for part in parts_of(deployment.restored, plan, place) if part.vertex in steps]
    if not mine:
        return
    assert deployment.store is not None, "a life with parts has a store"
    try:
        store = open_store(deployment.store)
        try:
            loading = _Loading(store, plan, steps, shelving)
            with ThreadPoolExecutor(GETS_AT_ONCE) as pool, without_collections():
                for (name, unit), kind, content in _loaded(pool, loading, as_on_disk(mine, plan)):
                    yield steps[name], SHARED_UNIT if kind in SHARED else unit, content
        finally:
            store.close()
    except SnapshotsError as error:
        raise LifeEnded(error.what, where=error.where, way_out=error.way_out) from error


class _Loading:
    """Loads hash units: from this machine if all parts of one are there, else from the store."""

    def __init__(self, store: Store, plan: Plan, steps: Mapping[str, SavedStep], shelving: Shelving | None) -> None:
        self._store = store
        self._plan = plan
        self._copies = None if shelving is None else shelving.copies
        packings = {} if shelving is None else {name: shelving.packing(steps[name]) for name in shelving.steps}
        self._packings = {name: packing for name, packing in packings.items() if packing is not None}
        self._of_several: dict[str, dict[int, Any]] = {}
        """The tables of parts with several hash units, which have little of each, by name and hash unit."""
        self._one_loads = Lock()

    def __call__(self, unit: int, parts: Sequence[Part]) -> _Content:
        """Load the parts of a hash unit."""
        copied = self._copied(parts)
        if copied is not None:
            return _Content(copied=copied)
        return _Content([self._table(unit, part) for part in parts])

    def _table(self, unit: int, part: Part) -> Any:
        plan = self._plan
        if not part.units:
            return _load(self._store, part, plan.name, plan.slack_ms)
        name = part.name(plan.name, plan.slack_ms)
        with self._one_loads:
            if name not in self._of_several:
                self._of_several[name] = by_unit(_load(self._store, part, plan.name, plan.slack_ms))
        return self._of_several[name][unit]

    def _copied(self, parts: Sequence[Part]) -> list[Entry] | None:
        packing = self._packings.get(parts[0].vertex)
        names = [part.name(self._plan.name, self._plan.slack_ms) for part in parts]
        if self._copies is None or packing is None or not all(map(self._copies.has, names)):
            return None
        found: dict[bytes, bytes | None] = {}
        for name, part in zip(names, parts, strict=True):
            entries = self._copies.read(name, whose(name, part.sha256, packing))
            if entries is None:
                return None
            if len(parts) == 1:
                return entries
            found.update(entries)
        return sorted([entry for entry in found.items() if entry[1] is not None])


def _loaded(
    pool: ThreadPoolExecutor, load: Callable[[int, Sequence[Part]], _Content], chains: Chains
) -> Iterator[tuple[tuple[str, int], str, _Content]]:
    """Yield steps' hash units in order, with what they have; no more are in memory than are loaded at once."""
    loading: deque[tuple[tuple[str, int], str, Future[_Content]]] = deque()
    for (name, unit), parts in chains.items():
        loading.append(((name, unit), parts[0].kind, pool.submit(load, unit, parts)))
        if len(loading) > GETS_AT_ONCE:
            first, kind, content = loading.popleft()
            yield first, kind, content.result()
    while loading:
        first, kind, content = loading.popleft()
        yield first, kind, content.result()


def as_on_disk(parts: Sequence[Part], plan: Plan) -> Chains:
    """Return the parts of hash units in the order in which their keys lie on disk, so a store fills page after page."""
    names = [name for vertex in plan.vertices for name in state_names(vertex)]
    numbers = {name: number for number, name in enumerate(names)}
    chains = chains_of(parts)
    return {unit: chains[unit] for unit in sorted(chains, key=lambda each: (each[1], numbers.get(each[0], -1)))}


def parts_of(parts: Sequence[Part], plan: Plan, place: int) -> list[Part]:
    """Return the parts of one worker: those of its hash units, and of what all units share that of the lowest unit.

    Of a part with several hash units it has its own. Snapshots of earlier formats have the shared part once for each
    unit, all alike.
    """
    workers = plan.worker_of_unit().tolist()
    shared: dict[str, Part] = {}
    for part in parts:
        if part.kind in SHARED and (part.vertex not in shared or part.unit < shared[part.vertex].unit):
            shared[part.vertex] = part
    mine: list[Part] = []
    for part in parts:
        if part.units:
            units = tuple([unit for unit in part.units if workers[unit] == place])
            mine += [replace(part, units=units)] if units else []
        elif part is shared[part.vertex] if part.kind in SHARED else workers[part.unit] == place:
            mine.append(part)
    return mine


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
