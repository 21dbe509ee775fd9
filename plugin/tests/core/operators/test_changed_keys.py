"""A snapshot by deltas is the snapshot: what changed since the last commit, on top of what that one has.

As a saver does it: a snapshot is taken, on memory or on shelves; what it writes rests on the newest commit that is
known then; it is committed later, sooner than others, or given up. Each is held against the whole state as of its T.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from cold_stores import CruelStore

from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import FIRST_TICK, OrderKey
from lowtide.core.operators.program import Program
from lowtide.core.operators.state import changed_keys
from lowtide.core.operators.state.changed_keys import ChangedKeys
from lowtide.core.operators.state.group import Group, Groups, Recent
from lowtide.core.operators.state.keyed_state import NOTHING, KeyedState
from lowtide.core.operators.state.saved_step import SavedStep, saved_steps
from lowtide.core.operators.state.shelf import Shelf, Shelves
from lowtide.flow.plan.plan import Plan
from lowtide_snapshots.format.manifest import ttl_of
from lowtide_snapshots.format.parts import GONE

logs: Any = import_module("plugin.tests.core.operators.test_shelf")
"""Plans and logs of steps that keep state by key."""
PLANS, log_of, Act = logs.PLANS, logs.log_of, logs.Act


def knows(name: str) -> bool:
    """True if all steps of a plan know which of their keys have changed."""
    program = Program(PLANS[name](), 1)
    return all(isinstance(state, KeyedState) for state in program._states.values())


KNOWING: list[str] = [name for name in PLANS if knows(name)]
"""Steps that know which of their keys have changed."""
SHELVED = (None, 0, 4_000)

Chains = dict[tuple[str, int], list[pa.Table]]
"""The parts of a snapshot by step and hash unit, in the order in which they apply."""


class Taken:
    """A snapshot under way.

    Attributes:
        tick: T.
        chains: What it has.
        whole: The same, made from all keys.
    """

    def __init__(self, tick: int, chains: Chains, whole: dict[tuple[str, int], list[str]]) -> None:
        self.tick = tick
        self.chains = chains
        self.whole = whole


class Snapshots:
    """A program whose snapshots are taken, given up and committed, and of which lives begin from time to time."""

    def __init__(self, plan: Plan, shelved: int | None, seed: int) -> None:
        self.plan = plan
        self.shelved = shelved
        self.dice = Random(seed)
        self.steps = saved_steps(plan, 1)
        self.base = Taken(FIRST_TICK, {}, {})
        self.counts: Counter[str] = Counter()
        self.begin()

    def begin(self) -> None:
        """A life begins from the last commit."""
        self.program = Program(self.plan, 1)
        if self.shelved is not None:
            self.program.shelve(Shelves(CruelStore(), self.shelved, write_at=16))
        if self.base.chains:
            self.program.restore(self.loaded(self.base), self.base.tick)
        self.program.note_changes()
        self.under_way: list[Taken] = []
        self.known = self.base

    def loaded(self, taken: Taken) -> Any:
        """What a life gets back of a snapshot."""
        found: dict[str, dict[int, Any]] = {}
        for (name, unit), tables in taken.chains.items():
            step = self.steps[name]
            ttl = ttl_of(step.shape)
            found.setdefault(name, {})[unit] = step.applied(tables, FIRST_TICK if ttl is None else taken.tick - ttl)
        return found

    def do(self, act: Any) -> None:
        """One thing happens; where time goes on a snapshot may be taken, and others be committed."""
        program, dice = self.program, self.dice
        if act.batch is not None:
            program.feed(act.vertex, act.batch)
            return
        program.advance(act.tick)
        takes = dice.random() < 0.15
        program.prune(act.tick if takes and dice.random() < 0.5 else max(0, act.tick - dice.randrange(6)))
        if takes:
            self.take(act.tick)
        if self.under_way and dice.random() < 0.2:
            self.decide(self.under_way.pop(dice.randrange(len(self.under_way))))

    def take(self, tick: int) -> None:
        """Take a snapshot: what rests on the last commit, as a saver would write it."""
        program, base = self.program, self.known
        changed = {} if base.tick == FIRST_TICK else program.changed_keys(base.tick)
        assert all(None not in keys for units in changed.values() for keys in units.values()), "no record has this key"
        chains = dict(base.chains)
        for name, units in program.capture(tick, base.tick).items():
            for unit, entries in units.items():
                place = name, unit
                keys = changed.get(name, {}).get(unit)
                if keys is None or (keys and self.dice.random() < 0.1):
                    self.counts["whole"] += 1
                    chains[place] = [self.steps[name].table(entries)] if entries else []
                elif keys:
                    found = program.capture_keys(name, unit, keys, tick)
                    gone = [key for key, state in found if state is NOTHING]
                    table = self.steps[name].delta([each for each in found if each[1] is not NOTHING], gone)
                    chains[place] = [*chains.get(place, ()), table]
                    self.counts.update(deltas=1, gone=len(gone), rows=table.num_rows)
                    self.counts["saved"] += len(entries) - len(keys)
        whole = {
            (name, unit): sorted(map(repr, self.steps[name].entries(self.steps[name].table(entries))))
            for name, units in program.capture(tick).items()
            for unit, entries in units.items()
            if entries
        }
        taken = Taken(tick, chains, whole)
        again = {
            (name, unit): sorted(map(repr, entries))
            for name, units in self.loaded(taken).items()
            for unit, entries in units.items()
            if entries
        }
        assert again == whole, f"the snapshot at {tick} that rests on {base.tick}"
        self.under_way.append(taken)
        program.cut_changes(tick)

    def decide(self, taken: Taken) -> None:
        """A snapshot is committed, or given up; or the program dies, and another life goes on from the last commit."""
        if self.dice.random() < 0.4 or taken.tick <= self.known.tick:
            self.counts["given up"] += 1
            return
        self.counts["committed"] += 1
        self.base = self.known = taken
        self.program.forget_changes(taken.tick)


def later(act: Any, by: int) -> Any:
    """The same some ticks later."""
    if act.batch is None:
        return Act(act.tick + by)
    keys = map(OrderKey.of, act.batch.ats)
    ats = [replace(key, tick=key.tick + by).packed() for key in keys]
    return Act(act.tick + by, act.vertex, Batch(ats, act.batch.units, act.batch.rows, act.batch.flags))


def lived(name: str, shelved: int | None, seed: int, records: int = 700) -> Counter[str]:
    plan = PLANS[name]()
    snapshots = Snapshots(plan, shelved, seed)
    for act in log_of(plan, seed, records):
        snapshots.do(act)
    end = act.tick + 20
    snapshots.do(Act(end))
    snapshots.take(end)
    # A life goes on from there, and knows what it changes itself.
    snapshots.base = snapshots.under_way[-1]
    snapshots.begin()
    for act in log_of(plan, seed + 1, records // 2):
        snapshots.do(later(act, end))
    snapshots.take(end + act.tick)
    return snapshots.counts


def live_on(name: str, shelved: int | None, seeds: int = 3) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(seeds):
        counts += lived(name, shelved, seed)
    return counts


@pytest.mark.parametrize("shelved", SHELVED, ids=["memory", "disk", "disk, some in memory"])
@pytest.mark.parametrize("name", KNOWING)
def test_what_has_changed_on_top_of_a_commit_is_the_state(name: str, shelved: int | None) -> None:
    counts = live_on(name, shelved, 2)
    assert counts["deltas"] > 40
    if ttl_of(saved_steps(PLANS[name]())["seen"].shape) is None:
        assert counts["saved"] > 300, "deltas have fewer keys than there are"
    assert min(counts["committed"], counts["given up"]) > 5
    if name not in ("last", "last, whole", "reduce", "aggregate"):
        assert counts["gone"] > 10


@pytest.mark.parametrize("name", [name for name in PLANS if name not in KNOWING])
def test_other_steps_are_written_whole(name: str) -> None:
    plan = PLANS[name]()
    program = Program(plan, 1)
    program.note_changes()
    assert program.changed_keys(FIRST_TICK) == {}


@pytest.mark.parametrize("spans", [1, 2])
def test_snapshots_that_are_all_given_up_lose_nothing(spans: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few of them are told apart."""
    monkeypatch.setattr(changed_keys, "MOST_SPANS", spans)
    live_on("scan", None)


@pytest.mark.parametrize("shelved", SHELVED)
def test_of_too_many_keys_none_are_remembered_until_the_next_snapshot(
    shelved: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_keys, "LEAST_KEYS", 20)
    monkeypatch.setattr(changed_keys, "LEAST_LOOK", 5)
    counts = live_on("scan", shelved)
    assert counts["whole"] > 100
    assert counts["deltas"] > 20


def test_remembered_keys_are_bounded() -> None:
    changed = ChangedKeys()
    for number in range(1_000_000):
        changed.add(Group(number, number % 128, None))
        if number % 100 == 0:
            changed.bound(number)
            assert len(changed) <= max(number // 4, changed_keys.LEAST_KEYS) * 1.3
    assert changed.since(FIRST_TICK) is None, "each key was new"
    changed.cut(50)
    assert changed.since(50) == {}
    assert changed.since(49) is None


def test_what_changed_before_a_commit_is_forgotten() -> None:
    changed = ChangedKeys()
    for number, tick in enumerate([10, 20, 30]):
        changed.add(Group(number, 1, None))
        changed.cut(tick)
    changed.add(Group(3, 1, None))
    assert [changed.since(tick) for tick in (FIRST_TICK, 10, 15, 20, 30)] == [
        {1: {0, 1, 2, 3}},
        {1: {1, 2, 3}},
        {1: {1, 2, 3}},
        {1: {2, 3}},
        {1: {3}},
    ]
    changed.forget(20)
    assert changed.since(FIRST_TICK) == {1: {2, 3}}
    assert len(changed) == 2
    changed.forget(30)
    assert len(changed) == 1


# -- mutations -------------------------------------------------------------------------------------------------------


def _applied_without_deletions(step: SavedStep, tables: Any, gone: int = FIRST_TICK) -> Any:
    found: dict[Any, Any] = {}
    for table in tables:
        if GONE in table.column_names:
            there = table.filter(pc.invert(table.column(GONE))).drop_columns(GONE)
            found |= dict(step.entries(there, gone))
        else:
            found = dict(step.entries(table, gone))
    return list(found.items())


APPLIED, DELTA, FORGET = SavedStep.applied, SavedStep.delta, ChangedKeys.forget


def _applied_backwards(step: SavedStep, tables: Any, gone: int = FIRST_TICK) -> Any:
    return APPLIED(step, [*tables[:1], *tables[:0:-1]], gone)


def _delta_without_deletions(step: SavedStep, entries: Any, gone: Any) -> Any:
    return DELTA(step, entries, [])


def _cut_as_committed(changed: ChangedKeys, tick: int) -> None:
    """Deltas are relative to the last snapshot, committed or not."""
    changed._spans = changed._spans[-1:]
    CUT(changed, tick)
    changed._spans = changed._spans[-1:]


CUT = ChangedKeys.cut


def _forget_too_much(changed: ChangedKeys, tick: int) -> None:
    """What changed after T goes too, as soon as it is committed."""
    FORGET(changed, tick)
    changed._spans = changed._spans[-1:]
    if changed._spans[0].keys is not None:
        changed._spans[0].keys.clear()


def _nothing_recent(recent: Recent, tick: int) -> Any:
    return iter(())


def _what_is_in_memory(state: KeyedState, unit: int, keys: Any, tick: int) -> Any:
    return [(key, state._below(state._groups[key], tick) if key in state._groups else NOTHING) for key in keys]


def _newest_state(state: KeyedState, unit: int, keys: Any, tick: int) -> Any:
    """As of now, not of T."""
    groups = state._groups
    there = [(key, state._state(groups[key], len(groups[key].elements), tick)) for key in keys if key in groups]
    absent = [key for key in keys if key not in groups]
    return there + (
        [(key, NOTHING) for key in absent] if state._shelf is None else state._shelf.look_at(unit, absent, tick)
    )


SETTLE = Groups._settle


def _settle_without_a_note(groups: Groups, settled: list[Group], end: bytes) -> None:
    changed, groups.changed = groups.changed, None
    SETTLE(groups, settled, end)
    groups.changed = changed
    for group in settled:
        if changed is not None and groups.by_key.get(group.key) is group:
            changed.add(group)


MUTATIONS: Mapping[str, tuple[str, int | None, Any, str, Any]] = {
    "a deletion is not applied": ("scan", None, SavedStep, "applied", _applied_without_deletions),
    "deltas apply in the wrong order": ("scan", None, SavedStep, "applied", _applied_backwards),
    "a deletion is not written": ("table", None, SavedStep, "delta", _delta_without_deletions),
    "a delta is relative to a snapshot that was given up": ("scan", None, ChangedKeys, "cut", _cut_as_committed),
    "what changed after T is forgotten with its commit": ("scan", None, ChangedKeys, "forget", _forget_too_much),
    "what the prune time has not passed is left out": ("scan", None, Recent, "since", _nothing_recent),
    "a key that goes is not noted": ("scan", None, Groups, "_settle", _settle_without_a_note),
    "a key that has left memory counts as gone": ("scan", 0, KeyedState, "capture_keys", _what_is_in_memory),
    "a delta has the state as of now": ("scan", None, KeyedState, "capture_keys", _newest_state),
    "a state on disk is read as if it never forgot": (
        "scan that forgets",
        0,
        Shelf,
        "now",
        lambda shelf, key, unit, state, tick: state,
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mutation_is_found(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, shelved, changed, method, mutant = MUTATIONS[mutation]
    monkeypatch.setattr(changed, method, mutant)
    with pytest.raises(AssertionError):
        live_on(name, shelved)
