"""Several lives of one flow: each goes on from a snapshot of the one before, which dies with all that lies above it.

State goes through parts, as a store keeps them, so that what a start does not get back is not there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from random import Random
from typing import get_args

import pyarrow as pa
from cold_stores import drawn_shelves
from programs import END, Programs, by_lane
from step_kinds import KINDS as STEPS

from lowtide.core.fronts.floors import NO_TICK
from lowtide.core.operators.faults.failure import Dead, letters
from lowtide.core.operators.order.order import FIRST_TICK
from lowtide.core.operators.program import Captured, Program
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.keyed_state import NOTHING
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.core.operators.state.shelf import Shelves
from lowtide.flow.plan.plan import Plan, side_of
from lowtide.flow.steps.steps import Ask, Clock, Connect, Join, Loop, WindowBy
from lowtide.flow.steps.windows import Windows
from lowtide.local.run import Message, run_log
from lowtide_snapshots.format.manifest import ttl_of
from lowtide_snapshots.format.parts import KINDS, SHARED

Parts = dict[str, dict[int, pa.Table]]
"""A snapshot's parts, by step and hash unit."""

Changed = dict[str, dict[int, pa.Table | None]]
"""The parts that changed since another; None for a unit whose state has gone."""

Deltas = dict[str, dict[int, pa.Table]]
"""What changed of parts since another, of steps that know their keys."""

MOST_CUTS = 4
STEPS_NEAR = 6
BEYOND = 40
"""Min time comes at most so many ticks beyond the last record."""


class Forgotten(AssertionError):
    """A life that has begun from a snapshot gives another one at the same T, or delivers something else."""


class OneLife(Programs):
    """All workers of one life, which may begin from a snapshot.

    Args:
        plan: The plan, of this life's parallelism.
        dice: In which order frames arrive.
        grouping: The mode.
        parts: The snapshot's; nothing for a first life.
        tick: Its T.
        shelves: Where groups at rest lie; None if all is in memory.
    """

    def __init__(
        self, plan: Plan, dice: Random, grouping: str, parts: Parts, tick: int, shelves: Shelves | None = None
    ) -> None:
        super().__init__(plan, dice.randrange, grouping)
        if shelves is not None:
            for program in [each for programs in self.levels for each in programs]:
                program.shelve(shelves)
        if parts:
            for programs in self.levels:
                for place, program in enumerate(programs):
                    program.restore(share(plan, parts, place), tick)

    def captured(self, tick: int, since: int) -> Changed:
        """A snapshot of what has changed at a tick or later."""
        programs = [program for level in self.levels for program in level]
        for program in programs:
            assert_all_is_found(self.plan, program, tick)
        return parts_of(self.plan, [each.capture(tick, since) for each in programs])

    def reach(self, tick: int) -> None:
        """Min time comes to a tick at all levels: what is held and due below it is done."""
        self.run()
        for level, programs in enumerate(self.levels, 1):
            for place, program in enumerate(programs):
                self._take((level, place), level, program.advance(tick))
            self.run()

    def prune(self, tick: int) -> None:
        """Forget what only records below a tick could need."""
        for program in [each for programs in self.levels for each in programs]:
            program.prune(tick)

    def deliver(self, tick: int) -> None:
        """Deliver what lies below a tick; the rest dies with the life."""
        for (sink, place), barrier in sorted(self._barriers.items()):
            self._release(sink, place, barrier, tick)
        for faults in (self._faults[key] for key in sorted(self._faults)):
            for batch in faults.release(tick):
                self.dead += letters(self.plan, batch.ats, batch.rows)


def assert_all_is_found(plan: Plan, program: Program, tick: int) -> None:
    """Who goes through the keys, asks for each, or looks at their rows finds what a snapshot has."""
    steps = saved_steps(plan)
    for name, units in program.capture(tick).items():
        if steps[name].kind in SHARED:
            states = [state for keys in units.values() for _, state in keys]
            assert [program.look_beside(name, tick)] == (states or [NOTHING])
            continue
        everything = [entry for keys in units.values() for entry in keys]
        assert sorted(map(repr, program.look_around(name, None, tick))) == sorted(map(repr, everything))
        for unit, keys in units.items():
            assert sorted(map(repr, program.look_around(name, unit, tick))) == sorted(map(repr, keys))
        for key, state in everything:
            assert repr(program.look(name, key, tick)) == repr(state)
        if everything:
            rows = [row for each in steps[name].shown(everything) for row in each]
            assert repr(rows) == repr(steps[name].table(everything).to_pylist(maps_as_pydicts="strict"))


def share(plan: Plan, parts: Parts, place: int) -> Captured:
    """One worker's share of a snapshot."""
    steps, workers, found = saved_steps(plan), plan.worker_of_unit().tolist(), Captured()
    for name, units in parts.items():
        mine = [unit for unit in units if steps[name].kind in SHARED or workers[unit] == place]
        found[name] = {unit: steps[name].entries(units[unit]) for unit in mine}
    return found


def parts_of(plan: Plan, captured: Iterable[Captured]) -> Changed:
    """The parts that workers have captured."""
    steps, found = saved_steps(plan), Changed()
    for each in captured:
        for name, units in each.items():
            tables = {unit: steps[name].table(entries) if entries else None for unit, entries in units.items()}
            found.setdefault(name, {}).update(tables)
    return found


def merged(base: Parts, changed: Changed) -> Parts:
    """The parts of a snapshot whose unchanged parts are those of another."""
    found = {name: dict(units) for name, units in base.items()}
    for name, units in changed.items():
        for unit, table in units.items():
            if table is None:
                found.get(name, {}).pop(unit, None)
            else:
                found.setdefault(name, {})[unit] = table
    return {name: units for name, units in found.items() if units}


def deltas_of(plan: Plan, program: Program, keys: Mapping[str, Mapping[int, Collection[Key]]], tick: int) -> Deltas:
    """The deltas of hash units by step: what these keys have at a tick."""
    steps, found = saved_steps(plan), Deltas()
    for name, units in keys.items():
        for unit, each in units.items():
            states = program.capture_keys(name, unit, each, tick)
            gone = [key for key, state in states if state is NOTHING]
            there = [entry for entry in states if entry[1] is not NOTHING]
            found.setdefault(name, {})[unit] = steps[name].delta(there, gone)
    return found


def with_deltas(plan: Plan, parts: Parts, deltas: Deltas) -> Parts:
    """The parts that a snapshot comes to with deltas."""
    steps, changed = saved_steps(plan), Changed()
    for name, units in deltas.items():
        for unit, delta in units.items():
            before = parts.get(name, {}).get(unit)
            entries = steps[name].applied([delta] if before is None else [before, delta])
            changed.setdefault(name, {})[unit] = steps[name].table(entries) if entries else None
    return merged(parts, changed)


def alive(plan: Plan, parts: Parts, tick: int) -> Parts:
    """Parts without the keys that have been forgotten since: those of units that did not change may still have them."""
    steps, found = saved_steps(plan), dict[str, dict[int, pa.Table]]()
    for name, units in parts.items():
        ttl = ttl_of(steps[name].shape)
        for unit, table in units.items():
            left = steps[name].entries(table, FIRST_TICK if ttl is None else tick - ttl)
            if left:
                found.setdefault(name, {})[unit] = steps[name].table(left)
    return found


class Lives:
    """A flow on its log, in several lives with snapshots between them, compared with the oracle at the end.

    What is drawn: where snapshots are taken, and after which of them the life dies; each life's parallelism and mode;
    how far beyond T fronts have read and min time has come, as it has wherever workers go on before they are asked;
    whether pruning goes on before; and whether a life may leave units to the snapshot it began from, or has to write
    all of them, as after a change of a step's ttl.

    Args:
        plan: The plan; its parallelism is drawn for every life.
        log: The messages of each source; sources of one topic have the same.
        dice: What draws.
        say: Hears of each start, snapshot and death.
        shelved: What draws which lives have state on shelves, and how much of it in memory; None for none.

    Attributes:
        number: How many lives there have been.
        evicted: How many groups have left memory.
        covered: What a life has got back; see `to_be_covered`.
    """

    def __init__(
        self,
        plan: Plan,
        log: Mapping[str, Sequence[Message]],
        dice: Random,
        say: Callable[[str], None] = lambda _: None,
        shelved: Random | None = None,
    ) -> None:
        self.number = 0
        self.evicted = 0
        self._shelved = shelved
        self._shelves: Shelves | None = None
        self.covered: set[str] = set()
        self._plan = plan
        self._log = log
        self._dice = dice
        self._say = say
        self._readers: dict[int, str] = {}
        self._rows: dict[int, list[tuple[int, Message]]] = {}
        for name, messages in log.items():
            for message in messages:
                front = message.position.front
                if self._readers.setdefault(front, name) == name:
                    self._rows.setdefault(front, []).append((message.timestamp // plan.slack_ms, message))
        for rows in self._rows.values():
            rows.sort(key=lambda row: row[1].position.sequence)
            ticks = accumulate((tick for tick, _ in rows), max, initial=NO_TICK)
            rows[:] = [(tick, message) for tick, (_, message) in zip(list(ticks)[1:], rows, strict=True)]
        self._read = dict.fromkeys(self._rows, 0)
        self._reached = NO_TICK
        """Min time of this life."""
        self._then: dict[int, dict[str, dict[int, str]]] = {}
        """By T what the state below was before anything at or above it was processed."""
        self._begin({}, NO_TICK)

    def run(self) -> None:
        """Live them, and hold what comes out against the oracle.

        Raises:
            Forgotten: something was lost, or is another.
        """
        ticks = sorted({tick for rows in self._rows.values() for tick, _ in rows})
        between = range(ticks[0] + 1, ticks[-1] + 1) if ticks else range(0)
        near = sorted({near for tick in ticks for near in (tick, tick + 1) if near in between})
        # The oracle's clocks strike until the last record.
        beyond = 0 if any(isinstance(vertex.step, Clock) for vertex in self._plan.vertices) else BEYOND
        cuts = self._dice.sample(near, min(MOST_CUTS - 1, len(near))) + self._dice.sample(between, min(1, len(between)))
        cuts = sorted(set(cuts))
        for place, tick in enumerate(cuts):
            reached = tick if self._dice.random() < 0.5 else self._dice.randint(tick, ticks[-1] + beyond)
            if self._shelves is not None:
                self._come_near(tick)
            for each in (*(cut for cut in cuts[place:] if cut <= reached), reached):
                self._go_on(each)
            self._snapshot(tick)
            if self._dice.random() < 0.7:
                self._life.deliver(tick)
                self._begin(alive(self._plan, self._parts, tick), tick)
        self._feed(END)
        self._life.finish()
        self._count()
        self._compare()

    def _begin(self, parts: Parts, tick: int) -> None:
        dice, before = self._dice, getattr(self, "_life", None)
        plan = replace(self._plan, parallelism=dice.randint(1, self._plan.lanes))
        grouping = dice.choice(["optimistic", "ordered"])
        self._count()
        self._shelves = None if self._shelved is None else drawn_shelves(self._shelved)
        self._life: OneLife = OneLife(plan, dice, grouping, parts, tick, self._shelves)
        self.number += 1
        self._say(f"life {self.number} begins at {tick}, {grouping}, parallelism {plan.parallelism}")
        self._parts, self._reached = parts, tick
        self._base: int | None = tick if dice.random() < 0.5 else None
        if before is not None:
            self._life.delivered, self._life.dead = before.delivered, before.dead
            again = self._whole(tick)
            if again != said(parts):
                raise Forgotten(f"life {self.number} began with {differing(said(parts), again)}")
            self.covered |= covered(plan, parts)
        for front, rows in self._rows.items():
            self._read[front] = sum(label < tick for label, _ in rows)
            if self._read[front]:
                self._life._labels[front] = rows[self._read[front] - 1][0]

    def _come_near(self, tick: int) -> None:
        """Min time comes to a tick in steps, each of which lets groups come to rest, and leave memory."""
        assert self._shelved is not None
        first = max(self._reached, min([row[0] for rows in self._rows.values() for row in rows], default=tick))
        for each in sorted(self._shelved.randint(first, tick) for _ in range(STEPS_NEAR)) if first < tick else ():
            self._go_on(each)
            self._life.prune(each)

    def _count(self) -> None:
        """Note what has left memory in a life that is over."""
        self.evicted += 0 if self._shelves is None else self._shelves.evicted

    def _go_on(self, tick: int) -> None:
        """Min time comes to a tick, if it has not yet; what a snapshot has then is what it is to have later."""
        if tick > self._reached:
            self._feed(tick)
            self._life.reach(tick)
            self._reached, self._then[tick] = tick, self._whole(tick)

    def _whole(self, tick: int) -> dict[str, dict[int, str]]:
        """All that a snapshot has at a tick, changed or not."""
        return said(merged({}, self._life.captured(tick, FIRST_TICK)))

    def _feed(self, tick: int) -> None:
        """Fronts read, in any order, all that lies below a tick, and of what comes after it as much as they like."""
        dice, ends = self._dice, {}
        for front, rows in self._rows.items():
            needed = sum(label < tick for label, _ in rows)
            ends[front] = max(self._read[front], dice.randint(needed, min(len(rows), needed + 3)))
        while left := [front for front, end in ends.items() if self._read[front] < end]:
            front = dice.choice(left)
            start = self._read[front]
            self._read[front] = dice.randint(start + 1, ends[front])
            self._life.feed(
                self._readers[front], [message for _, message in self._rows[front][start : self._read[front]]]
            )
            assert self._life._labels[front] == self._rows[front][self._read[front] - 1][0], "R1"
            for _ in range(dice.randrange(3)):
                self._life.step()

    def _snapshot(self, tick: int) -> None:
        if self._dice.random() < 0.3:
            self._life.prune(tick)
        if (now := self._whole(tick)) != self._then[tick]:
            at = f"at {self._reached} a snapshot as of {tick}"
            raise Forgotten(f"{at} would have {differing(self._then[tick], now)}")
        if self._base is None:
            self._parts = merged({}, self._life.captured(tick, FIRST_TICK))
        else:
            self._parts = merged(self._parts, self._life.captured(tick, self._base))
        self._say(f"a snapshot at {tick}, since {self._base}, has {said(self._parts)}")
        self._base = tick

    def _compare(self) -> None:
        written, dead = run_log(self._plan, self._log, [])
        wanted, given = by_lane(written), self._life.delivered
        for name, lanes in wanted.items():
            for lane in range(self._plan.lanes):
                one, other = given[name].get(lane, []), lanes.get(lane, [])
                if one != other:
                    raise Forgotten(f"lane {lane} of {name} has {one} instead of {other}")
        found, expected = buried(self._life.dead), buried(dead)
        if found != expected:
            raise Forgotten(f"the dead letters are {found - expected} instead of {expected - found}")


def buried(dead: Sequence[Dead]) -> Counter[str]:
    """Dead letters in any order; a message without headers has none, however that came."""
    return Counter(repr(replace(each, headers=each.headers or None)) for each in dead)


def said(parts: Parts) -> dict[str, dict[int, str]]:
    """Parts as texts that are equal if they have the same rows, in any order."""
    return {
        name: {unit: "\n".join(sorted(map(repr, table.to_pylist()))) for unit, table in sorted(units.items())}
        for name, units in sorted(parts.items())
    }


def differing(one: dict[str, dict[int, str]], other: dict[str, dict[int, str]]) -> str:
    """The differences of two snapshots, in words."""
    places = [(name, unit) for both in (one, other) for name, units in both.items() for unit in units]
    texts = [(place, *(each.get(place[0], {}).get(place[1], "nothing") for each in (one, other))) for place in places]
    different = dict.fromkeys(
        f"{unit} of {name}: {was!r}, and has {now!r}" for (name, unit), was, now in texts if was != now
    )
    return "unit " + "; unit ".join(different)


def covered(plan: Plan, parts: Parts) -> set[str]:
    """The kinds of state in parts: kinds of parts, steps by their classes, windows by theirs."""
    steps, found = saved_steps(plan), set[str]()
    vertices = {vertex.name: vertex for vertex in plan.vertices}
    vertices |= {
        side_of(each, port): each for each in plan.vertices if isinstance(each.step, Join) for port in range(2)
    }
    for name in parts:
        step = vertices[name].step
        found |= {steps[name].kind, type(step).__name__}
        if isinstance(step, WindowBy):
            found.add(type(step.windows).__name__)
    return found


def to_be_covered() -> set[str]:
    """All that `covered` can find of what the product has."""
    classes = [
        each for each in STEPS if each.stateful and each not in (Ask, Connect, Loop)
    ]  # Most of those keep nothing.
    # Nobody answers here: what a call keeps is in the simulation's world of calls.
    return {each.__name__ for each in (*classes, *get_args(Windows))} | set(KINDS) - {"call"}
