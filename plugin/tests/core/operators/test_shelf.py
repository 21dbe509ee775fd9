"""Steps whose groups lie on shelves give what they give in memory: outputs, snapshots and look-ups.

The logs are such that a lost deletion or a forgotten touch shows: many keys, few of them in memory, states that become
none and come again, records that come late or are taken back. With a sixth of the misses a lost deletion is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from heapq import heappop
from random import Random
from typing import Any, Literal

import pytest
from cold_stores import CruelStore, StoreFailed

import lowtide as lt
from lowtide.core.operators.joins.cold_side import ColdSide
from lowtide.core.operators.joins.join_asof import AsofNode, ColdPartners
from lowtide.core.operators.joins.join_node import JoinNode
from lowtide.core.operators.joins.join_side import Dues, Held, JoinSide
from lowtide.core.operators.joins.join_table import RECORDS as RECORDS_PORT
from lowtide.core.operators.joins.join_table import ROWS, TableJoinNode
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import FIRST_TICK, OrderKey
from lowtide.core.operators.order.portion import Portion
from lowtide.core.operators.program import Captured, Program
from lowtide.core.operators.state.at_rest import AtRest
from lowtide.core.operators.state.away_dues import AwayDues
from lowtide.core.operators.state.cold_key_dues import NEVER, ColdKeyDues
from lowtide.core.operators.state.group import Group, Groups, Key
from lowtide.core.operators.state.keyed_state import NOTHING, KeyedState
from lowtide.core.operators.state.packing import DUE, ColdDamaged, Packing, RecordPacking
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.core.operators.state.shelf import Shelf, Shelves
from lowtide.core.operators.timers.timed_scan import TimedScanNode
from lowtide.core.operators.windows.cold_records import ColdRecords
from lowtide.core.operators.windows.cold_sessions import ColdSessions
from lowtide.core.operators.windows.cold_windows import ColdWindows
from lowtide.core.operators.windows.window_node import Cold, WindowNode
from lowtide.core.operators.windows.windows import FixedWindows, SessionWindows
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.steps.steps import WindowBy
from lowtide.flow.steps.windows import Session
from lowtide_snapshots.keys.hashing import hash_unit

UNITS = 8
JOIN_ADMITS = JoinNode._admit
BRIEF = timedelta(milliseconds=9)
KEYS = 200
RECORDS = 1_500
LAG = 6
NEAR = 3
"""So many ticks on it is known without the store what is due."""
END = 1 << 40


@dataclass(frozen=True)
class Event:
    key: str
    part: int
    number: int


@dataclass(frozen=True)
class Stamped:
    """A record with a time of its own, up to twelve ticks beside that at which it comes."""

    key: str
    part: int
    number: int
    at: datetime


@dataclass(frozen=True)
class Late(Stamped):
    """One more."""


@dataclass(frozen=True)
class Seen:
    count: int
    newest: int
    named: dict[str, int]
    shares: tuple[float, ...] = ()


@dataclass(frozen=True)
class Out:
    key: str
    seen: int
    newest: int


@dataclass(frozen=True)
class Total:
    key: str
    part: int
    number: int


@dataclass(frozen=True)
class Row:
    key: str
    part: int
    number: int
    gone: bool = False
    shares: tuple[float, ...] = ()


def remember(state: Seen, event: Event) -> tuple[Seen, Out]:
    """A state that is none again after every third record, and a function that fails now and then."""
    if event.number % 97 == 0:
        raise ValueError("ninety-seven")
    out = Out(event.key, state.count, state.newest)
    if state.count == 2:
        return NONE, out
    return Seen(state.count + 1, event.number, {**state.named, event.key[-1]: event.number}, (0.5, float("inf"))), out


def remember_each(state: Seen, event: Event) -> tuple[Seen, list[Out]]:
    state, out = remember(state, event)
    return state, [out] * (event.number % 3)


def remember_beside(state: Seen, event: Event, beside: int) -> tuple[Seen, Out]:
    state, out = remember(state, event)
    return state, replace(out, seen=out.seen + 1000 * beside)


def count(state: int, event: Event) -> int:
    return state + 1


def window(events: tuple[Event, ...]) -> Out:
    return Out(events[-1].key, len(events), sum(event.number for event in events))


@dataclass(frozen=True)
class Asking:
    """A state that asks to be called, up to forty ticks on."""

    key: str = ""
    count: int = 0
    until: datetime | None = None


def at_tick(tick: int) -> datetime:
    return datetime.fromtimestamp(tick / 1_000, UTC)


def ask(state: Asking, event: Event) -> tuple[Asking, list[Out]]:
    """A state that is none again after every third record."""
    if event.number % 97 == 0:
        raise ValueError("ninety-seven")
    out = Out(event.key, state.count, event.number)
    if state.count % 3 == 2:
        return Asking(), [out]
    until = at_tick(100 + event.number // 12 + event.number % 40)
    return Asking(event.key, state.count + 1, until if event.number % 5 else None), [out]


def asks(state: Asking) -> datetime | None:
    return state.until


def called(state: Asking, moment: datetime) -> tuple[Asking, list[Out]]:
    if state.count % 11 == 7:
        raise ValueError("seven")
    outs = [Out(state.key, -state.count, round(moment.timestamp() * 1_000))]
    return Asking() if state.count > 8 else Asking(state.key, state.count + 3, moment + 2 * BRIEF), outs


@dataclass(frozen=True)
class Counted:
    key: str
    part: int
    window_start: datetime
    count: int
    newest: int | None


def beside_its_row(event: Event, row: Row | None) -> Out:
    if event.number % 97 == 0:
        raise ValueError("ninety-seven")
    return Out(event.key, event.number, -1 if row is None else row.number)


def larger(one: Event, other: Event) -> Event:
    return replace(other, number=max(one.number, other.number) % 1_000)


NONE = Seen(0, 0, {})


def plan_of(write: Callable[[Any], Any], columns: tuple[str, ...] = ("key", "part"), gives: type = Out) -> Plan:
    flow = lt.Flow("test")
    events = flow.read("events", lt.kafka("events", lt.json(Event)))
    write(events.key_by(*columns)).write("out", lt.kafka("out", lt.json(gives)))
    return compile_flow(flow, units=UNITS, parallelism=1, slack_ms=1)


def plan_beside() -> Plan:
    flow = lt.Flow("test")
    broadcast = flow.read("more", lt.kafka("more", lt.json(Event))).broadcast("fold", count, 0)
    keyed = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    keyed.scan("seen", remember_beside, NONE, broadcast=broadcast).write("out", lt.kafka("out", lt.json(Out)))
    return compile_flow(flow, units=UNITS, parallelism=1, slack_ms=1)


def both(event: Event, row: Row) -> Out:
    if event.number % 31 == 0:
        raise ValueError("thirty-one")
    return Out(event.key, event.number, row.number)


def plan_of_join() -> Plan:
    """Records that wait for partners for longer than it takes them to come to rest."""
    flow = lt.Flow("test")
    keyed = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key", "part")
    rows = flow.read("rows", lt.kafka("rows", lt.json(Row))).key_by("key", "part")
    joined = keyed.join("seen", rows, both, before=5 * BRIEF, after=3 * BRIEF)
    joined.write("out", lt.kafka("out", lt.json(Out)))
    return compile_flow(flow, units=UNITS, parallelism=1, slack_ms=1)


def either(event: Event | None, row: Row | None) -> Out:
    if (0 if event is None else event.number) % 31 == 5:
        raise ValueError("thirty-one")
    key = (event or row).key  # type: ignore[union-attr]  # one of them is there
    return Out(key, -1 if event is None else event.number, -1 if row is None else row.number)


def plan_of_outer_join(how: Literal["left", "outer"]) -> Plan:
    flow = lt.Flow("test")
    keyed = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key", "part")
    rows = flow.read("rows", lt.kafka("rows", lt.json(Row))).key_by("key", "part")
    joined = keyed.join("seen", rows, either, before=5 * BRIEF, after=3 * BRIEF, how=how)
    joined.write("out", lt.kafka("out", lt.json(Out)))
    return compile_flow(flow, units=UNITS, parallelism=1, slack_ms=1)


def newest_of(event: Stamped, other: Late | None) -> Out:
    return Out(event.key, event.number, -1 if other is None else other.number)


def plan_of_join_asof(how: Literal["left", "inner"]) -> Plan:
    flow = lt.Flow("test")
    keyed = flow.read("events", lt.kafka("events", lt.json(Stamped))).key_by("key", "part")
    others = flow.read("others", lt.kafka("others", lt.json(Late))).key_by("key", "part")
    time = lt.event_time("at", wait=2 * BRIEF, late="drop")
    joined = keyed.join_asof("seen", others, newest_of, back=4 * BRIEF, time=time, how=how)
    joined.write("out", lt.kafka("out", lt.json(Out)))
    return compile_flow(flow, units=UNITS, parallelism=1, slack_ms=1)


def plan_of_windows(cut: Any, *, emit: Any = "close", reduces: bool = False) -> Plan:
    """Windows that outlast their records' rest."""

    def write(keyed: Any) -> Any:
        windowed = keyed.window("seen", cut, emit=emit)
        if reduces:
            return windowed.reduce(larger)
        return windowed.aggregate(Counted, count=lt.agg.count(), newest=lt.agg.max("number"))

    return plan_of(write, gives=Event if reduces else Counted)


def asks_for_later(state: Asking) -> datetime | None:
    return None if state.until is None else state.until + timedelta(days=300)


def listed(window: lt.Window, events: tuple[Event, ...]) -> Iterator[Out]:
    if len(events) % 7 == 6:
        raise ValueError("six")
    for event in events[:1] + events[-1:]:
        yield Out(event.key, len(events), event.number)


def plan_of_records(cut: Any) -> Plan:
    """Windows that outlast the rest of their first records."""
    return plan_of(lambda keyed: keyed.window("seen", cut).apply(listed))


def plan_of_merging_sessions() -> Plan:
    """Sessions that a record between two of them makes one of."""
    flow = lt.Flow("test")
    keyed = flow.read("events", lt.kafka("events", lt.json(Stamped))).key_by("key", "part")
    time = lt.event_time("at", wait=BRIEF, late="drop")
    windowed = keyed.window("seen", lt.session(BRIEF), time=time)
    counted = windowed.aggregate(Counted, count=lt.agg.count(), newest=lt.agg.max("number"))
    counted.write("out", lt.kafka("out", lt.json(Counted)))
    return compile_flow(flow, units=UNITS, parallelism=1, slack_ms=1)


def plan_of_timers(ttl: timedelta | None = None, *, far: bool = False) -> Plan:
    timer = asks_for_later if far else asks
    return plan_of(
        lambda keyed: keyed.flat_scan("seen", ask, Asking(), timer=timer, on_timer=called, ttl=ttl), ("key",)
    )


def plan_of_table(ttl: timedelta | None = None) -> Plan:
    flow = lt.Flow("test")
    keyed = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key", "part")
    rows = flow.read("rows", lt.kafka("rows", lt.json(Row))).key_by("key", "part")
    table = rows.table("table", deleted="gone", ttl=ttl)
    joined = keyed.join_table("seen", table, beside_its_row, how="left")
    joined.write("out", lt.kafka("out", lt.json(Out)))
    return compile_flow(flow, units=UNITS, parallelism=1, slack_ms=1)


PLANS: dict[str, Callable[[], Plan]] = {
    "scan": lambda: plan_of(lambda keyed: keyed.scan("seen", remember, NONE)),
    "scan that forgets": lambda: plan_of(lambda keyed: keyed.scan("seen", remember, NONE, ttl=BRIEF), ("key",)),
    "flat scan": lambda: plan_of(lambda keyed: keyed.flat_scan("seen", remember_each, NONE), ("key",)),
    "reduce": lambda: plan_of(lambda keyed: keyed.reduce("seen", larger), gives=Event),
    "aggregate": lambda: plan_of(
        lambda keyed: keyed.aggregate("seen", Total, number=lt.agg.sum("number"), ttl=BRIEF), gives=Total
    ),
    "last": lambda: plan_of(lambda keyed: keyed.last(3, partial=True, name="seen").map(window)),
    "last, whole": lambda: plan_of(lambda keyed: keyed.last(2, partial=False, name="seen").map(window)),
    "last that forgets": lambda: plan_of(
        lambda keyed: keyed.last(3, partial=True, name="seen", ttl=BRIEF).map(window), ("key",)
    ),
    "deduplicate": lambda: plan_of(lambda keyed: keyed.deduplicate("seen", within=BRIEF), gives=Event),
    "beside": plan_beside,
    "join": plan_of_join,
    "left join": lambda: plan_of_outer_join("left"),
    "outer join": lambda: plan_of_outer_join("outer"),
    "join_asof": lambda: plan_of_join_asof("left"),
    "inner join_asof": lambda: plan_of_join_asof("inner"),
    "tumbling": lambda: plan_of_windows(lt.tumbling(5 * BRIEF)),
    "sliding": lambda: plan_of_windows(lt.sliding(6 * BRIEF, 2 * BRIEF), reduces=True),
    "updates": lambda: plan_of_windows(lt.tumbling(7 * BRIEF), emit="update"),
    "records": lambda: plan_of_records(lt.tumbling(5 * BRIEF)),
    "records of short windows": lambda: plan_of_records(lt.tumbling(BRIEF)),
    "records of sliding windows": lambda: plan_of_records(lt.sliding(6 * BRIEF, 3 * BRIEF)),
    "sessions": lambda: plan_of_windows(lt.session(4 * BRIEF)),
    "sessions, reduced": lambda: plan_of_windows(lt.session(BRIEF), reduces=True),
    "sessions that merge": plan_of_merging_sessions,
    "timers": plan_of_timers,
    "timers that forget": lambda: plan_of_timers(3 * BRIEF),
    "timers far ahead": lambda: plan_of_timers(far=True),
    "table": plan_of_table,
    "table that forgets": lambda: plan_of_table(4 * BRIEF),
}
CACHES = (0, 4_000, 30_000)
"""Of these many bytes the groups at rest have room for none, for some, and for about an eighth of all."""


class Act:
    """One thing that happens to a program: a batch for one of its exchanges, or the prune time moves to a tick."""

    def __init__(self, tick: int, vertex: int = -1, batch: Batch | None = None) -> None:
        self.tick = tick
        self.vertex = vertex
        self.batch = batch


class Stream:
    """What may come for one exchange: records that are held back, and those that may be taken back."""

    def __init__(self, vertex: Vertex) -> None:
        self.vertex = vertex.id
        self.record = vertex.gives
        self.held: list[tuple[bytes, int, Any]] = []
        self.alive: list[tuple[bytes, int, Any]] = []

    def made(self, key: int, number: int) -> Any:
        """A record; every fourth row says that its key is gone."""
        named, part = f"user-{key:05d}", key % 2
        if self.record is Event:
            return Event(named, part, number)
        if self.record in (Stamped, Late):
            return self.record(named, part, number, at_tick(100 + number // 12 + number * 7 % 25 - 12))
        return Row(named, part, number, number % 4 == 0, (0.5,))


def log_of(plan: Plan, seed: int, records: int = RECORDS) -> list[Act]:  # noqa: C901 - one branch for each event
    """Batches of one to seven records, some late, some tombstones; the prune time is eight ticks behind."""
    chosen = Random(seed)
    taken = {vertex.name: vertex for vertex in plan.exchanges() if vertex.level == 1}
    streams = [Stream(vertex) for name, vertex in taken.items() if name != "fold"]
    columns = plan.keyed(plan.vertices[streams[0].vertex]).step.columns
    mends = "fold" not in taken
    acts: list[Act] = []
    tick = number = 0
    while number < records:
        stream = chosen.choice(streams) if len(streams) > 1 else streams[0]
        items: list[tuple[bytes, int, Any, bool]] = []
        for _ in range(chosen.randrange(1, 8)):
            number += 1
            tick = 100 + number // 12
            key = chosen.randrange(KEYS // 50) if chosen.random() < 0.3 else chosen.randrange(KEYS)
            event = stream.made(key, number)
            unit = hash_unit([getattr(event, column) for column in columns], UNITS)
            at = OrderKey(tick, 0, number, (), 7).packed()
            if mends and chosen.random() < 0.05:
                stream.held.append((at, unit, event))
                continue
            items.append((at, unit, event, False))
            stream.alive.append((at, unit, event))
        if stream.held and chosen.random() < 0.3:
            items += [(*each, False) for each in stream.held]
            stream.held = []
        if mends and stream.alive and chosen.random() < 0.2:
            stream.alive = [each for each in stream.alive if OrderKey.of(each[0]).tick > tick - 6]
            gone = chosen.choice(stream.alive or [(b"", 0, Event("", 0, 0))])
            if gone in stream.alive and gone[0] not in [item[0] for item in items]:
                stream.alive.remove(gone)
                items.append((*gone, True))
        if items:
            ats, units, rows, flags = map(list, zip(*items, strict=True))
            acts.append(Act(tick, stream.vertex, Batch(ats, units, rows, flags if any(flags) else None)))
        if not mends and chosen.random() < 0.1:
            at = OrderKey(tick, 1, number, (1,), 7).packed()
            acts.append(Act(tick, taken["fold"].id, Batch([at], [0], [Event("more", 0, number)])))
        held = [OrderKey.of(at).tick for each in streams for at, _, _ in each.held]
        if held:
            acts.append(Act(min([*held, tick - 8])))
        elif chosen.random() < 0.7:
            acts.append(Act(tick - 8))
    return acts


def shown(feed: Feed) -> list[Any]:
    """What came of a call, comparable by its bytes."""
    delivers = [(sink, batch.ats, list(map(repr, batch.rows)), batch.flags) for sink, batch in feed.delivers]
    faults = [(batch.ats, [each.failure.error for each in batch.rows], batch.flags) for batch in feed.faults]
    return [delivers, faults]


def captured(program: Program, tick: int, since: int = FIRST_TICK) -> dict[str, dict[int, list[str]]]:
    return {
        name: {unit: sorted(map(repr, keys)) for unit, keys in units.items()}
        for name, units in program.capture(tick, since).items()
    }


def shelf_of(program: Program, name: str = "seen") -> Shelf | Cold | ColdSide:
    state = program._states[name]
    if isinstance(state, ColdSide):
        return state
    if isinstance(state, WindowNode):
        assert state._cold is not None
        return state._cold
    assert isinstance(state, KeyedState)
    assert state._shelf is not None
    return state._shelf


class Pair:
    """A program in memory and one on shelves, at which the same happens."""

    def __init__(self, plan: Plan, limit_bytes: int, store: CruelStore | None = None) -> None:
        self.plan = plan
        self.limit_bytes = limit_bytes
        self.lag = Random(7)
        """How far the prune time lies behind that at which a step in order gives what it holds."""
        self.names = [name for name in saved_steps(plan, 1) if name.startswith("seen")]
        steps = [vertex.step for vertex in plan.vertices]
        self.grows = any(isinstance(step, WindowBy) and isinstance(step.windows, Session) for step in steps)
        """Whether in memory something may be said to be due earlier than it is."""
        self.memory = Program(plan, 1)
        self.begin(store or CruelStore())

    def begin(self, store: CruelStore) -> None:
        self.store = store
        self.promised = END
        """The tick that was said to be due first."""
        self.shelves = Shelves(store, self.limit_bytes, write_at=16, near_ms=NEAR)
        self.shelved = Program(self.plan, 1)
        assert self.shelved.shelvable() == self.names
        self.shelved.shelve(self.shelves)

    @property
    def shelf(self) -> Any:
        return shelf_of(self.shelved, self.names[0])

    def do(self, act: Act) -> None:
        if act.batch is not None:
            found = [program.feed(act.vertex, act.batch) for program in (self.memory, self.shelved)]
        else:
            found = [program.advance(act.tick) for program in (self.memory, self.shelved)]
            pruned = act.tick - self.lag.randrange(LAG)
            for program in (self.memory, self.shelved):
                program.prune(pruned)
        assert shown(found[0]) == shown(found[1])
        due, on_disk = self.memory.first_due, self.shelved.first_due
        if not self.grows:
            assert due is None or (on_disk is not None and on_disk <= due), "a due is known without its group"
        first = END if on_disk is None else on_disk
        assert first >= min(self.promised, END if due is None else due), "others rely on what was said to be due first"
        self.promised = first

    def compare(self, tick: int, chosen: Random) -> None:
        check_dues(self.shelved, self.names)
        since = chosen.choice([FIRST_TICK, tick - 5])
        assert captured(self.memory, tick, since) == captured(self.shelved, tick, since)
        for number in [*chosen.sample(range(KEYS), 20), 0, 1]:
            columns = {"key": f"user-{number:05d}", "part": number % 2}
            names = self.plan.key_of(next(each for each in self.plan.vertices if each.name == "seen"))
            key: Any = tuple(columns[name] for name in names) if len(names) > 1 else columns[names[0]]
            for name in self.names:
                looked = [repr(program.look(name, key, tick)) for program in (self.memory, self.shelved)]
                assert looked[0] == looked[1]
        for name in self.names:
            walked = [sorted(map(repr, each.look_around(name, None, tick))) for each in (self.memory, self.shelved)]
            assert walked[0] == walked[1]

    def saved(self, program: Program, tick: int) -> Captured:
        """A snapshot as it comes back: of what is not in memory each hash unit is asked for, as by a saver."""
        steps, found = saved_steps(self.plan, 1), program.capture(tick, whole=False)
        for name, units in found.items():
            for unit, keys in units.items():
                rows = program.whole(name, unit, keys, tick)
                assert program.has_away(name, unit) or rows == keys
                units[unit] = steps[name].entries(steps[name].table(rows)) if rows else []
        return found

    def restart(self, tick: int, chosen: Random) -> None:
        """Go on in new lives from a snapshot, each from the other's."""
        states = [self.saved(program, tick) for program in (self.memory, self.shelved)]
        self.memory = Program(self.plan, 1)
        self.begin(CruelStore())
        self.memory.restore(states[1], tick)
        for name in self.names:
            for unit, keys in states[0].pop(name).items():
                self.shelved.restore_unit(name, unit, keys, tick)
        self.shelved.restore(states[0], tick)


def check_dues(program: Program, names: Sequence[str]) -> None:
    """Who is not in memory is due as the state there says, at one place each."""
    for name in names:
        state = program._states[name]
        found: dict[Key, int] = {}
        shelf: Any = shelf_of(program, name)
        if isinstance(state, TimedScanNode):
            assert isinstance(state._dues, ColdKeyDues)
            away, here = state._dues._away, shelf.by_key
            for key, _, value in at_places(shelf):
                found[key], _ = DUE.unpack(shelf._packing.carried(value))
        elif isinstance(shelf, ColdSessions):
            away, here = shelf._away, shelf._open
            found = {key: shelf._closes_first(saved) for key, saved, _ in at_places(shelf)}
        elif isinstance(shelf, ColdSide) and shelf.comes_alone:
            away, here = shelf._away, shelf._kept
            for key, saved, _ in at_places(shelf):
                due = shelf._due(shelf._held(0, key, saved))
                if due is not None:
                    found[key] = due
        else:
            if isinstance(shelf, ColdPartners):
                shelf.by_time.check(shelf._kept)
            continue
        away.check()
        assert away._standing.keys() <= here.keys()
        far = {key: tick for key, tick in found.items() if key not in here and tick >= away._until}
        assert far_dues(away) == far
        near = {key: tick for tick, keys in away._near.items() for key in keys}
        if not isinstance(state, TimedScanNode):  # There a key may be called that has been forgotten.
            assert near == {key: tick for key, tick in found.items() if key not in here and tick < away._until}


def at_places(shelf: Any) -> list[tuple[Key, Any, bytes]]:
    """The keys at the places of a shelf, with what is saved of them and their values."""
    values = [value for unit in range(UNITS) for _, value in shelf._shelves.walk(*shelf._packing.bounds(unit))]
    return [(*shelf._packing.unpack(value), value) for value in values]


def far_dues(away: AwayDues) -> dict[Key, int]:
    """By key that is not in memory the tick of its entry in the store."""
    packing = away._packing
    entries = [each for unit in range(UNITS) for each in away._shelves.walk(*packing.bounds(unit))]
    found = {packing.unpack(value)[0]: packing.tick_at(place) for place, value in entries}
    return {key: tick for key, tick in found.items() if key not in away._standing}


@pytest.mark.parametrize("limit_bytes", CACHES)
@pytest.mark.parametrize("name", PLANS)
def test_a_step_on_shelves_gives_what_it_gives_in_memory(name: str, limit_bytes: int) -> None:
    plan = PLANS[name]()
    pair, chosen = Pair(plan, limit_bytes), Random(3)
    for act in log_of(plan, limit_bytes, 2 * RECORDS if "table" in name or "join" in name else RECORDS):
        pair.do(act)
        if act.batch is None and chosen.random() < 0.03:
            pair.compare(max(pair.shelf.pruned, act.tick + chosen.randrange(-LAG, LAG)), chosen)
    if not isinstance(pair.shelf, ColdRecords):
        assert pair.shelf.at_rest.misses > RECORDS / 4, "else a lost deletion is not found"
    assert pair.shelf.at_rest.evicted > RECORDS / 4
    assert pair.shelves.written > RECORDS / 8


def test_a_window_that_begins_in_memory_may_have_begun_on_disk() -> None:
    """A snapshot as of just before its newest records, when it has closed: seldom asked for."""
    run(Pair(PLANS["records of short windows"](), 0), often=0.5)


@pytest.mark.parametrize("name", PLANS)
def test_a_life_on_shelves_goes_on_from_one_in_memory_and_the_other_way_round(name: str) -> None:
    live_twice(PLANS[name]())


def live_twice(plan: Plan) -> None:
    pair, chosen = Pair(plan, 4_000), Random(5)
    for act in log_of(plan, seed=11, records=800):
        # A snapshot's T is the prune time, and what lies above it is read again: here nothing does.
        if act.batch is not None and chosen.random() < 0.02:
            tick = act.batch.ticks[0] - 10
            pair.compare(max(tick, pair.shelf.pruned), chosen)
        pair.do(act)
    end = act.tick + 20
    pair.do(Act(end))
    pair.restart(end, chosen)
    pair.compare(end, chosen)
    for act in log_of(plan, seed=12, records=800):
        later = act.tick + end
        if act.batch is not None:
            ats = [replace(OrderKey.of(at), tick=OrderKey.of(at).tick + end).packed() for at in act.batch.ats]
            pair.do(Act(later, act.vertex, Batch(ats, act.batch.units, act.batch.rows, act.batch.flags)))
        else:
            pair.do(Act(later))
    pair.compare(later, chosen)


def run(pair: Pair, seed: int = 1, records: int = RECORDS, often: float = 0.05) -> None:
    chosen = Random(seed)
    for act in log_of(pair.plan, seed, records):
        pair.do(act)
        if act.batch is None and chosen.random() < often:
            pair.compare(max(pair.shelf.pruned, act.tick + chosen.randrange(-LAG, LAG)), chosen)


# -- mutations: each has to be found ---------------------------------------------------------------------------------


def _touch_without_leaving_the_order(shelf: Shelf, last: int, groups: list[Group]) -> None:
    Groups.touch(shelf, last, groups)
    for group in groups:
        if group.key in shelf.at_rest._stored:
            shelf.at_rest._stored[group.key] = False


def _touch_and_stay_clean(shelf: Shelf, last: int, groups: list[Group]) -> None:
    Groups.touch(shelf, last, groups)
    for group in groups:
        shelf.at_rest._resting.pop(group.key, None)


def _rest_without_deleting(shelf: Shelf, group: Group) -> None:
    if shelf.by_key.get(group.key) is group:
        Groups.rest(shelf, group)
        shelf.at_rest._resting.pop(group.key, None)
        if group.key in shelf.by_key:
            shelf.at_rest.rests(group.key)


def _read_and_take_out(shelves: Shelves, places: Sequence[bytes]) -> list[bytes | None]:
    """What was taken out of the buffer is in memory; but a deletion has to stay."""
    missing = [place for place in places if shelves._late.get(place) is None]
    found = dict(zip(missing, shelves._store.get(missing), strict=True)) if missing else {}
    return [found[place] if place in found else shelves._late.get(place) for place in places]


def _read_past_the_buffer(shelves: Shelves, places: Sequence[bytes]) -> list[bytes | None]:
    return shelves._store.get(places)


def _away_without_the_buffer(shelves: Shelves, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    yield from shelves.stored(first, end)


def _put_and_forget_the_rest(shelves: Shelves, places: Sequence[bytes]) -> None:
    shelves._store.put([(place, shelves._late[place]) for place in sorted(places)])
    shelves.written += len(places)
    shelves._late.clear()


def _evict_the_base(shelf: Shelf) -> None:
    """Write what lies before the elements, and not what they come to."""
    key, _ = shelf.at_rest.leave()
    group = shelf.by_key.pop(key)
    state = shelf._state(group, 0, shelf.pruned)
    if state is not NOTHING:
        shelf.put(group.unit, key, state)


def _fill_without_the_tick(shelf: Shelf, key: Key, unit: int, value: bytes) -> Group:
    group = Group(key, unit, None)
    shelf._fill(group, shelf._unpacked(key, value), shelf.pruned)
    group.touched = shelf.pruned
    return group


def _admit_for(ports: Sequence[int]) -> Callable[..., None]:
    """Admit what some ports ask for, and not the others."""
    admit = TableJoinNode._admit

    def some(node: TableJoinNode, shelf: Shelf, batches: Sequence[Batch | None]) -> None:
        admit(node, shelf, [batch if port in ports else None for port, batch in enumerate(batches)])

    return some


def _admit_without_dues(node: TimedScanNode, shelf: Shelf, batch: Batch | None, min_time: int) -> None:
    if batch is not None:
        shelf.admit(list(map(node._key, batch.rows)), batch.units)


def _admit_what_is_due_now(node: TimedScanNode, shelf: Shelf, batch: Batch | None, min_time: int) -> None:
    """Of the keys with timers only those of the last tick."""
    dues = [each for each in node._dues.before(min_time) if each not in node._dues.before(min_time - 1)]
    keys, units = ([], []) if batch is None else (list(map(node._key, batch.rows)), list(batch.units))
    shelf.admit(keys + [key for key, _ in dues], units + [unit for _, unit in dues])


def _closed_without_the_store(cold: ColdWindows, unit: int, span: Any) -> list[tuple[Key, Any]]:
    return []


def _put_and_stay_clean(cold: ColdWindows, span: Any, arrival: Any, state: Any) -> None:
    FixedWindows._put(cold, span, arrival, state)
    cold.at_rest._resting.pop((span, arrival.key), None)


def _put_and_stay_at_rest(cold: ColdWindows, span: Any, arrival: Any, state: Any) -> None:
    FixedWindows._put(cold, span, arrival, state)
    if (span, arrival.key) in cold.at_rest._stored:
        cold.at_rest._stored[span, arrival.key] = False


def _close_without_deleting(cold: ColdWindows, span: Any, key: Key, unit: int) -> None:
    found = cold._open[span].pop(key, None)
    if found is not None:
        cold._shut(found.state)
    cold.at_rest.gone((span, key))


def _rest_too_early(cold: ColdWindows, tick: int) -> None:
    """Of a window with notes of several ticks the first one counts."""
    cold.pruned = max(cold.pruned, tick)
    while cold._before and cold._before[0][0] < tick:
        _, span, key, _, _ = cold._before.popleft()
        if key in cold._open.get(span, {}):
            cold._open[span][key].changed = FIRST_TICK
            cold.at_rest.rests((span, key))
    cold._shelves.settle()


def _admit_nothing(cold: ColdWindows, keys: Any, units: Any, moments: Any) -> None:
    """Each record finds its windows as they are in memory."""


def _admit_one_side(node: JoinNode, ticks: Any, min_time: int) -> None:
    """Bring in the partners of records, and not what they lie beside."""
    admit, cold = JOIN_ADMITS, node._cold
    node._cold = cold[:1]
    admit(node, ticks, min_time)
    node._cold = cold


def _all_below(side: ColdSide, unit: int, key: Key, saved: Any, tick: int) -> list[Any]:
    return [(at, row, is_paired) for at, row, is_paired in saved if OrderKey.of(at).tick < tick]


def _change_and_stay_clean(side: ColdSide, key: Key, tick: int) -> None:
    side._changed[key] = tick
    side._recent.append((tick, key))
    side.at_rest._resting.pop(key, None)


def _pair_and_stay_clean(side: ColdSide, held: Any, tick: int) -> None:
    JoinSide.paired(side, held, tick)


def _close_what_is_in_memory(side: ColdSide, tick: int) -> None:
    """The units of records that end on disk count as unchanged."""
    while side._ticks and side._ticks[0] < tick:
        ends = heappop(side._ticks)
        side._touched.add([held.unit for held in side._here.get(ends, {}).values()], ends)


def _forget_what_is_in_memory(shelf: Shelf, ttl: int) -> None:
    for unit in shelf._units:
        for place, value in shelf._shelves.page(*shelf._packing.bounds(unit), 8):
            key, state = shelf._packing.unpack(value)
            if shelf.now(key, 0, state, shelf.pruned - 1) is NOTHING:
                shelf._shelves._late[place] = None


def _left_where_it_stood(away: AwayDues, key: Key, unit: int, tick: int | None) -> None:
    """A key with another moment leaves the entry of the one before."""
    stood = away._standing.get(key)
    DUES_LEFT(away, key, unit, tick if stood is None or tick is None else stood)


def _left_without_deleting(away: AwayDues, key: Key, unit: int, tick: int | None) -> None:
    if away._standing.get(key) != tick:
        away._standing.pop(key, None)
    DUES_LEFT(away, key, unit, tick)


def _near_but_for_the_first_tick(away: AwayDues, until: int) -> None:
    away._until += 1
    DUES_COME_NEAR(away, until)


def _near_but_for_the_last_tick(away: AwayDues, until: int) -> None:
    DUES_COME_NEAR(away, until - 1)
    away._until = until


def _near_and_still_there(away: AwayDues, until: int) -> None:
    late = dict(away._shelves._late)
    DUES_COME_NEAR(away, until)
    away._shelves._late = late


def _near_as_if_in_memory(away: AwayDues, until: int) -> None:
    """A key in memory is due a second time, by its entry."""
    away._far += len(away._standing)
    away._standing.clear()
    DUES_COME_NEAR(away, until)


def _restored_without_its_moment(dues: ColdKeyDues, key: Key, unit: int, state: Any, tick: int) -> bytes:
    due = dues._asks_again(key, unit, state, tick)
    return DUE.pack(*(due or NEVER))


def _restored_without_an_entry(dues: ColdKeyDues, key: Key, unit: int, state: Any, tick: int) -> bytes:
    return DUE.pack(*NEVER)


def _forgotten_with_its_entry_left(dues: ColdKeyDues, key: Key, unit: int, kept: bytes | None) -> None:
    if kept is None:
        DUES_GONE(dues, key, unit, kept)


def _clean_and_still_due(dues: ColdKeyDues, key: Key, unit: int) -> bytes:
    """A key leaves, and its moment stays in memory."""
    due = dues._due.get(key)
    return DUE.pack(*(due or NEVER))


def _first_as_all_that_is_not_near(away: AwayDues) -> int | None:
    found = [tick for tick, keys in away._near.items() if keys]
    return min(found) if found else away._until if away._far else None


def _change_and_stay_written(cold: ColdSessions, key: Key, unit: int, tick: int) -> None:
    clean = cold.at_rest._stored.get(key)
    SESSION_CHANGES(cold, key, unit, tick)
    if clean and key in cold._open:
        cold.at_rest._stored[key] = clean


def _change_and_stay_in_the_store(cold: ColdSessions, key: Key, unit: int, tick: int) -> None:
    if key not in cold._open:
        cold.at_rest.gone(key)
    SESSION_CHANGES(cold, key, unit, tick)


def _close_what_is_here(cold: ColdSessions, tick: int, unit: int, sessions: Any) -> Iterator[Any]:
    cold._away._near.get(tick, {}).clear()
    for due in SessionWindows._close_unit(cold, tick, unit, sessions):
        cold._change(due.key, unit, tick)
        yield due


def _rest_with_notes(cold: ColdSessions, tick: int) -> None:
    cold._changed = dict.fromkeys(cold._changed, FIRST_TICK)
    SESSION_PRUNE(cold, tick)


def _evict_and_stay_due(cold: ColdSessions) -> None:
    key = next(iter(cold.at_rest._resting))
    mine = cold._of(key)
    states = [each.state for each in mine]
    SESSION_EVICT(cold)
    cold._taken_in -= len(mine)
    for each, state in zip(mine, states, strict=True):
        each.state = state


def _closes_last(cold: ColdSessions, saved: Any) -> int:
    return cold.closes(max(end for (_, end), _ in saved))


def _due_last(side: ColdSide, records: Any) -> int | None:
    return max([held.ends for held in records if side._waits(held)], default=None)


def _waits_though_it_has_come_out(side: ColdSide, held: Held) -> bool:
    return side._dues is not None and held.paired is None


def _leaves_with_partners_still_there(side: ColdPartners, key: Key) -> list[Held]:
    return ColdSide._leaves(side, key)


def _beside_a_second_entry(dues: Dues, held: Held) -> None:
    """It is due in memory and out of it."""


def _evict_all(cold: ColdRecords) -> None:
    """Records above the prune time leave, too."""
    pruned, cold.pruned = cold.pruned, END
    RECORDS_EVICT(cold)
    cold.pruned = pruned


def _put_as_the_first(cold: ColdRecords, span: Any, arrival: Any, state: Any) -> None:
    """A window that is not in memory is noted as one that begins."""
    FixedWindows._put(cold, span, arrival, state)
    cold._recent.append((arrival.tick, (span, arrival.key)))


def _evict_and_keep(cold: ColdRecords) -> None:
    """What has left stays as well, where a window has newer records."""
    (span, key) = next(iter(cold.at_rest._resting))
    state = cold._open[span][key].state
    RECORDS_EVICT(cold)
    if key in cold._open[span]:
        cold._open[span][key].state = state


def _numbered_backwards(packing: RecordPacking, unit: int, span: Any, key: Key, number: int) -> bytes:
    return RECORD_AT(packing, unit, span, key, END - number)


def _numbered_alike(packing: RecordPacking, unit: int, span: Any, key: Key, number: int) -> bytes:
    return RECORD_AT(packing, unit, span, key, number % 2)


def _close_and_stay(cold: ColdRecords, span: Any, key: Key, unit: int, places: Sequence[bytes]) -> None:
    RECORDS_GONE(cold, span, key, unit, [])


def _none_away(cold: ColdRecords, unit: int, spans: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    return {}, {}


def _whole_in_pieces(node: WindowNode, unit: int, part: Any, tick: int) -> Any:
    return [*part, *node.away(unit, tick)]


RECORDS_EVICT, RECORDS_GONE, RECORD_AT = ColdRecords.evict, ColdRecords._gone, RecordPacking.record
IN_PARTS: tuple[type, ...] = (
    ColdWindows,
    ColdSide,
    ColdPartners,
    AsofNode,
    Dues,
    ColdRecords,
    RecordPacking,
    WindowNode,
)
"""Of these all leaves that is at rest."""
NO_PARTNERS = property(lambda _: None, lambda *_: None)
SESSION_CHANGES, SESSION_PRUNE, SESSION_EVICT = ColdSessions._change, ColdSessions.prune, ColdSessions.evict
DUES_LEFT, DUES_COME_NEAR, DUES_GONE = AwayDues.left, AwayDues._come_near, ColdKeyDues.gone


MUTATIONS: dict[str, tuple[str, type, str, Any]] = {
    "a group with elements leaves": ("scan", Shelf, "touch", _touch_without_leaving_the_order),
    "what changes counts as written": ("scan", Shelf, "touch", _touch_and_stay_clean),
    "a state that is none is not deleted": ("scan", Shelf, "rest", _rest_without_deleting),
    "a deletion is taken out of the buffer": ("scan", Shelves, "read", _read_and_take_out),
    "the buffer is not read": ("scan", Shelves, "read", _read_past_the_buffer),
    "more is taken for written than a portion": ("scan", Shelves, "_put", _put_and_forget_the_rest),
    "a snapshot is without the buffer": ("scan", Shelves, "walk", _away_without_the_buffer),
    "the state before the elements is written": ("last", Shelf, "evict", _evict_the_base),
    "the tick of the last record is lost": ("scan that forgets", Shelf, "_loaded", _fill_without_the_tick),
    "the tick of the last that went on is lost": ("deduplicate", Shelf, "_loaded", _fill_without_the_tick),
    "a record comes beside those on disk": ("join", JoinNode, "_admit", _admit_one_side),
    "what has ended on disk is in snapshots": ("join", ColdSide, "_below", _all_below),
    "a key with one more record counts as written": ("join", ColdSide, "_change", _change_and_stay_clean),
    "a first partner is not noted": ("join", ColdSide, "paired", _pair_and_stay_clean),
    "what ends on disk counts as unchanged": ("join", ColdSide, "close", _close_what_is_in_memory),
    "what is alone on disk does not come out": ("outer join", ColdSide, "away_before", lambda *_: []),
    "a record is due when the last of its key is": ("left join", ColdSide, "_due", _due_last),
    "what has come out alone does so again": ("left join", ColdSide, "_waits", _waits_though_it_has_come_out),
    "what has left is due in memory": ("outer join", Dues, "leave", _beside_a_second_entry),
    "what waits on disk comes out with no partner": ("join_asof", AsofNode, "_cold_partners", NO_PARTNERS),
    "partners that have left are still there": (
        "join_asof",
        ColdPartners,
        "_leaves",
        _leaves_with_partners_still_there,
    ),
    "of what comes out some is left on disk": ("inner join_asof", ColdSide, "away_before", lambda *_: []),
    "what is on disk does not close": ("tumbling", ColdWindows, "_away", _closed_without_the_store),
    "a window that changes counts as written": ("sliding", ColdWindows, "_put", _put_and_stay_clean),
    "a window leaves that has just changed": ("sliding", ColdWindows, "_put", _put_and_stay_at_rest),
    "a window that has closed stays on disk": ("tumbling", ColdWindows, "_gone", _close_without_deleting),
    "a window leaves before its notes": ("updates", ColdWindows, "prune", _rest_too_early),
    "a window begins again that is on disk": ("tumbling", ColdWindows, "admit", _admit_nothing),
    "time calls nobody who is on disk": ("timers", TimedScanNode, "_admit", _admit_without_dues),
    "of those whom time calls some are left on disk": ("timers", TimedScanNode, "_admit", _admit_what_is_due_now),
    "records above the prune time leave": ("records", ColdRecords, "evict", _evict_all),
    "records that have left stay in memory": ("records of sliding windows", ColdRecords, "evict", _evict_and_keep),
    "a window begins again": ("records of short windows", ColdRecords, "_put", _put_as_the_first),
    "records on disk stand in another order": ("records", RecordPacking, "record", _numbered_backwards),
    "a record takes another one's place": ("records", RecordPacking, "record", _numbered_alike),
    "records of a window that has closed stay": ("records", ColdRecords, "_gone", _close_and_stay),
    "records on disk are left out": ("records", ColdRecords, "_away", _none_away),
    "a window is in a snapshot in two pieces": ("records", WindowNode, "whole", _whole_in_pieces),
    "a session that changes counts as written": (
        "sessions that merge",
        ColdSessions,
        "_change",
        _change_and_stay_written,
    ),
    "a key without sessions stays on disk": ("sessions", ColdSessions, "_change", _change_and_stay_in_the_store),
    "sessions on disk do not close": ("sessions", ColdSessions, "_close_unit", _close_what_is_here),
    "a key leaves before its sessions' notes": ("sessions", ColdSessions, "prune", _rest_with_notes),
    "a session that has left is due in memory": ("sessions", ColdSessions, "evict", _evict_and_stay_due),
    "a key is due when its last session is": ("sessions that merge", ColdSessions, "_closes_first", _closes_last),
    "a record comes beside its session on disk": ("sessions", ColdSessions, "admit", lambda *_: None),
    "a new moment leaves the old entry in the store": ("timers", AwayDues, "left", _left_without_deleting),
    "a new moment counts for nothing on disk": ("timers", AwayDues, "left", _left_where_it_stood),
    "what is due at once is not brought near": ("timers", AwayDues, "_come_near", _near_but_for_the_first_tick),
    "what is due last is not brought near": ("timers", AwayDues, "_come_near", _near_but_for_the_last_tick),
    "an entry that has come near stays": ("timers", AwayDues, "_come_near", _near_and_still_there),
    "who is in memory is due by its entry, too": ("timers", AwayDues, "_come_near", _near_as_if_in_memory),
    "the entry of a key that is no more stays": ("timers", AwayDues, "gone", lambda *_: None),
    "the entry of a key that is forgotten stays": (
        "timers that forget",
        ColdKeyDues,
        "gone",
        _forgotten_with_its_entry_left,
    ),
    "what is due later sinks": ("timers far ahead", AwayDues, "first", property(_first_as_all_that_is_not_near)),
    "a moment stays in memory": ("timers", ColdKeyDues, "leaves", _clean_and_still_due),
    "who is called and is none then comes back": ("timers", Shelf, "rest", _rest_without_deleting),
    "a row that is on disk is not looked at": ("table", TableJoinNode, "_admit", _admit_for([ROWS])),
    "a row comes beside the one on disk": ("table", TableJoinNode, "_admit", _admit_for([RECORDS_PORT])),
    "a row that is gone comes back": ("table", Shelf, "rest", _rest_without_deleting),
    "the tick of the last row is lost": ("table that forgets", Shelf, "_loaded", _fill_without_the_tick),
    "what is in the buffer is forgotten": ("scan that forgets", Shelf, "_forget", _forget_what_is_in_memory),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mutation_is_found(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, changed, method, mutant = MUTATIONS[mutation]
    monkeypatch.setattr(changed, method, mutant, raising=changed is not AsofNode)
    with pytest.raises((AssertionError, LookupError, TypeError, ValueError)):
        run(Pair(PLANS[name](), 0 if changed in IN_PARTS else 4_000), often=0.5 if changed is ColdRecords else 0.05)


@pytest.mark.parametrize("mutant", [_restored_without_its_moment, _restored_without_an_entry])
def test_moments_that_a_life_does_not_get_back_are_missed(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two more."""
    monkeypatch.setattr(ColdKeyDues, "restored", mutant)
    with pytest.raises(AssertionError):
        live_twice(PLANS["timers"]())


@pytest.mark.parametrize("name", ["sessions", "left join", "join_asof"])
def test_dues_that_a_life_does_not_get_back_are_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more for each kind."""
    restore = Program.restore_unit

    def without(*given: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AwayDues, "left", lambda *_: None)
            restore(*given)

    monkeypatch.setattr(Program, "restore_unit", without)
    with pytest.raises(AssertionError):
        live_twice(PLANS[name]())


@pytest.mark.parametrize("name", ["scan", "timers"])
def test_the_order_in_which_a_store_is_walked_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = Shelves.walk
    monkeypatch.setattr(Shelves, "walk", lambda *given: iter(list(walk(*given))[::-1]))
    run(Pair(PLANS[name](), 4_000), records=1_000)


# -- the store -------------------------------------------------------------------------------------------------------


def test_nothing_is_written_while_the_store_is_held() -> None:
    pair, chosen = Pair(PLANS["scan that forgets"](), 0), Random(2)
    for index, act in enumerate(log_of(pair.plan, 2)):
        held = index // 40 % 2 == 1
        pair.shelves.held = pair.store.frozen = held
        pair.do(act)
        if act.batch is None and chosen.random() < 0.05:
            pair.compare(max(pair.shelf.pruned, act.tick + chosen.randrange(-LAG, LAG)), chosen)
    pair.shelves.held = True
    with pytest.raises(AssertionError, match="pins"):
        pair.shelves.flush()


def test_what_is_written_with_more_is_not_written_once_more() -> None:
    """A life that gets its state back has told the store what it writes next, and takes that over with the rest."""
    store = CruelStore()
    shelves = Shelves(store, 0, write_at=2)
    for place in (b"a", b"b", b"c"):
        shelves.write(place, b"late")
    shelves.settle()
    shelves.take([(b"d", b"taken")])
    shelves.settle()
    assert store.values == {b"a": b"late", b"b": b"late", b"c": b"late", b"d": b"taken"}
    assert shelves.written == 4


def test_a_store_that_fails_ends_the_life_and_gives_no_wrong_output() -> None:
    """Whichever call fails: all until then is right, and the failure comes out."""
    whole = Pair(PLANS["scan that forgets"](), 0)
    run(whole, records=400)
    chosen = Random(9)
    for fails_at in chosen.sample(range(1, whole.store.calls), 25):
        with pytest.raises(StoreFailed, match=f"call {fails_at}$"):
            run(Pair(whole.plan, 0, CruelStore(fails_at)), records=400)


@pytest.mark.parametrize(
    "name", ["scan that forgets", "table that forgets", "timers that forget", "tumbling", "sessions", "join"]
)
def test_what_is_too_old_is_deleted_from_the_store(name: str) -> None:
    pair = Pair(PLANS[name](), 0)
    for act in log_of(pair.plan, 4, 1_000):
        pair.do(act)
    assert len(pair.store.values) > 20
    for tick in range(act.tick, act.tick + 400):
        pair.do(Act(tick))
    pair.shelves.flush()
    assert not pair.store.values
    assert all(shelf_of(pair.shelved, name).kept.number == 0 for name in pair.names)


@pytest.mark.parametrize("limit_bytes", CACHES)
def test_a_key_that_is_forgotten_on_disk_has_no_timer_any_more(limit_bytes: int) -> None:
    """However far ahead it is, in memory or in the store."""
    pair = Pair(plan_of_timers(BRIEF, far=True), limit_bytes)
    for act in log_of(pair.plan, 4, 600):
        pair.do(act)
    (node,) = pair.shelved._besides
    assert isinstance(node, TimedScanNode)
    assert len(node._dues) > 20
    end = act.tick
    pair.shelved.advance(end)
    for tick in range(end, end + 200):
        pair.shelved.prune(tick)
    pair.shelved.prune(end + 1_000)
    assert len(node._dues) == 0
    node._dues.check()
    pair.shelves.flush()
    assert not pair.store.values


def test_a_timer_that_is_far_away_takes_no_memory() -> None:
    pair = Pair(plan_of_timers(far=True), 0)
    for act in log_of(pair.plan, 4, 1_000):
        pair.do(act)
    for each in (20, 40):
        pair.do(Act(act.tick + each))
    (node,) = pair.shelved._besides
    assert isinstance(node, TimedScanNode)
    assert isinstance(node._dues, ColdKeyDues)
    assert (len(node._dues) > 20, len(node._dues._due), node._dues._away.bytes) == (True, 0, 0)
    pair.compare(act.tick + 40, Random(1))
    assert pair.memory.kept["seen/timers"].number == pair.shelved.kept["seen/timers"].number
    pair.do(Act(END))
    assert len(node._dues) == 0


def test_a_window_that_a_life_got_back_may_leave_before_time_goes_on() -> None:
    """Another step of its process may need the memory first."""
    pair = Pair(PLANS["tumbling"](), 0)
    for act in log_of(pair.plan, 5, 500):
        pair.do(act)
    pair.do(Act(act.tick))
    pair.restart(act.tick, Random(1))
    unit, (key, saved) = next((unit, keys[0]) for unit, keys in pair.memory.capture(act.tick)["seen"].items() if keys)
    pair.shelf.admit([key], [unit], [saved[0][0][0]])
    assert (pair.shelf.at_rest.misses, pair.shelf.kept.number) == (1, 1)
    pair.shelves.settle()
    assert (pair.shelf.at_rest.evicted, pair.shelf.kept.number) == (1, 0)
    pair.compare(act.tick, Random(2))


@pytest.mark.parametrize(
    ("name", "leaves"), [("tumbling", False), ("records", False), ("sessions", False), ("sessions", True)]
)
def test_no_window_leaves_while_others_of_its_tick_close(
    name: str, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another step of its process may need the memory between two portions; as a mutation it is found."""
    pair = Pair(PLANS[name](), 1 << 30)
    for act in log_of(pair.plan, 6, 600):
        pair.do(act)
    pair.shelves._limit_bytes = 0
    if leaves:
        oldest = property(lambda at_rest: next(iter(at_rest._resting.values()), None))
        monkeypatch.setattr(AtRest, "oldest", oldest)
    expected = shown(pair.memory.advance(END))
    found: list[Any] = [[], []]
    reached, turns = 0, 0
    failures = (AssertionError, LookupError, ValueError)
    try:
        while reached < END:
            feed, reached = pair.shelved.go_on(END, pair.shelved.holding, Portion(1))
            pair.shelves.settle()
            delivers, faults = shown(feed)
            found[0] += delivers
            found[1] += faults
            turns += 1
        assert _joined(found) == _joined(expected)
    except failures:
        assert leaves
    else:
        assert not leaves
        assert turns > 20


def _joined(found: list[Any]) -> list[Any]:
    """What came of several calls as if of one."""
    delivers, faults = found
    return [[each for _, *parts, _ in delivers for each in zip(*parts, strict=True)], faults]


def test_memory_is_bounded_by_the_limit_once_groups_rest() -> None:
    pair = Pair(PLANS["scan"](), 20_000)
    run(pair)
    pair.do(Act(END))
    assert pair.shelf.all_bytes <= 20_000
    assert len(pair.shelf.by_key) > 5, "but it is used"
    assert pair.memory.kept["seen"].number > 5 * pair.shelf.kept.number


def test_the_group_goes_first_that_has_been_at_rest_for_longest() -> None:
    """Two steps share the memory: the one with the keys that come again keeps them."""
    store = CruelStore()
    shelves = Shelves(store, 20_000)
    hot, cold = Program(PLANS["reduce"](), 1), Program(PLANS["last"](), 1)
    for program in (hot, cold):
        program.shelve(shelves)
    entry = next(vertex.id for vertex in hot.plan.exchanges())
    for tick in range(100, 600):
        for program, key in ((hot, tick % 4), (cold, tick)):
            event = Event(f"user-{key:05d}", 0, 1)
            at = OrderKey(tick, 0, tick, (), 7).packed()
            program.feed(entry, Batch([at], [hash_unit([event.key, 0], UNITS)], [event]))
            program.prune(tick)
    assert shelf_of(hot).at_rest.misses <= 8
    assert shelf_of(cold).at_rest.evicted > 400


def test_a_row_that_is_looked_at_stays() -> None:
    """Nothing changes it, so it is at rest all the time."""
    plan = plan_of_table()
    pair = Pair(plan, 20_000)
    entries = {vertex.gives: vertex.id for vertex in plan.exchanges()}
    for tick in range(100, 500):
        # A row for a new key each time; the first one's is looked at.
        records: list[Any] = [Row(f"user-{tick:05d}", 0, 1), Event("user-00100", 0, 1)]
        for port, record in enumerate(records):
            at = OrderKey(tick, port, tick, (), 7).packed()
            pair.do(Act(tick, entries[type(record)], Batch([at], [hash_unit([record.key, 0], UNITS)], [record])))
        pair.do(Act(tick + 1))
    assert pair.shelf.at_rest.misses <= 402, "each key once, when its row comes"
    assert pair.shelf.at_rest.evicted > 300


def test_a_step_may_stay_in_memory() -> None:
    program = Program(PLANS["scan"](), 1)
    assert program.shelvable({"seen"}) == []


@dataclass
class MadeByCode:
    number: int = 0

    def __post_init__(self) -> None:
        self.hidden = self.number


def test_states_that_the_users_code_makes_stay_in_memory() -> None:
    def made(state: MadeByCode, event: Event) -> tuple[MadeByCode, Event]:
        return MadeByCode(event.number), event

    plan = plan_of(lambda keyed: keyed.scan("seen", made, MadeByCode()), gives=Event)
    assert Program(plan, 1).shelvable() == []


# -- packing ---------------------------------------------------------------------------------------------------------


def packing(key: Any = str, state: Any = Seen) -> Packing:
    return Packing('step "seen"', 3, UNITS, several=False, key=key, state=state)


def test_a_damaged_value_ends_the_life() -> None:
    packed = bytearray(packing().pack("ada", NONE))
    assert packing().unpack(packed) == ("ada", NONE)
    for index in range(len(packed)):
        packed[index] ^= 1
        with pytest.raises(ColdDamaged, match="checksum"):
            packing().unpack(packed)
        packed[index] ^= 1
    for length in range(len(packed)):
        with pytest.raises(ColdDamaged):
            packing().unpack(packed[:length])


def test_another_key_in_a_keys_place_ends_the_life() -> None:
    pair = Pair(PLANS["flat scan"](), 0)
    run(pair, records=200)
    pair.do(Act(END))
    pair.shelves.flush()
    places = list(pair.store.values)
    pair.store.values[places[0]] = pair.store.values[places[1]]
    key, _ = pair.shelf._packing.unpack(pair.store.values[places[1]])
    place, unit = pair.shelf._packing.place, places[0][1]
    (other,) = [each for each in map(name_of, range(KEYS)) if place(unit, each) == places[0]]
    assert other != key
    with pytest.raises(ColdDamaged, match="another key"):
        pair.shelved.look("seen", other, END)


def name_of(number: int) -> str:
    return f"user-{number:05d}"


def test_a_long_key_has_a_place_of_its_own() -> None:
    longs = ["x" * length + end for length in (383, 384, 500, 505, 506, 507, 5_000) for end in ("", "a", "b")]
    places = [packing().place(5, key) for key in longs]
    assert len(set(places)) == len(longs)
    assert max(map(len, places)) <= 511
    first, end = packing().bounds(5)
    assert all(first <= place < end for place in places)
    assert packing().bounds(4)[1] <= first < end <= packing().bounds(6)[0]


def test_keys_of_several_columns_do_not_meet() -> None:
    several = Packing('step "seen"', 3, UNITS, several=True, key=tuple[str, str], state=int)
    assert several.place(1, ("a", "bc")) != several.place(1, ("ab", "c"))
    assert several.unpack(several.pack(("a", "bc"), 4)) == (("a", "bc"), 4)
    assert several.unit_of(("a", "bc")) == hash_unit(["a", "bc"], UNITS)
