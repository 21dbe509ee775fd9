"""All that a state of the model holds, as numbers and small values, and what each question does to it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from lowtide.core.operators.order.bundle import Bundle
from lowtide.driver.recovery import StartFrom
from lowtide.sinks.contract import Mark, lane_name
from lowtide_snapshots.zookeeper.memory_nodes import _apply
from lowtide_snapshots.zookeeper.nodes import Create, Node, Operation

from .access import PATHS
from .machine import OUT, SINK, Begun, Log, Machine, encoder, plan
from .scripts import Question, Raised, Scripts

T = TypeVar("T", bound=Hashable)
NONE = -1

Nodes = frozenset[tuple[str, Node]]
Objects = frozenset[tuple[str, bytes]]
Record = tuple[str, bytes | None, bytes | None]
"""Topic, key, value."""


class Kafka(NamedTuple):
    """Kafka, as a reader of committed records sees it.

    Attributes:
        ids: By transactional id who has claimed it last, and which transaction of that one was committed last.
        records: All, in the order of their commits; output has its generation's lasts topic beside its own.
    """

    ids: tuple[tuple[str, str, int], ...] = ()
    records: tuple[Record, ...] = ()


class Life(NamedTuple):
    """How far a life is: the places of its scripts, and what has happened inside; `NONE` for what has not begun."""

    driver: int = NONE
    delivery: int = NONE
    snapshots: int = NONE
    inside: int = NONE
    expired: bool = False
    """True if the session has ended that its driver began with."""


class State(NamedTuple):
    """One state.

    Attributes:
        nodes: Of ZooKeeper, by their number.
        objects: In the store, likewise.
        kafka: Likewise.
        beside: Whether a life takes its first snapshot under a name, and overtakes it with the second.
        lost: How many answers of ZooKeeper may still be lost.
        slips: How many transactions may still fail, or lose their answer.
        sweeper: The place of one that sweeps from outside.
        lives: All that there will be, in the order they take the lease.
    """

    nodes: int
    objects: int
    kafka: int
    lost: int
    slips: int
    sweeper: int
    lives: tuple[Life, ...]


class Table(Generic[T]):
    """Values by numbers: equal ones have one."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        """Its number."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found

    def __getitem__(self, number: int) -> T:
        return self.values[number]


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the job.

    Attributes:
        name: What it is called.
        log: By front its records.
        floors: By life the tick of the floor that its idle front is granted; `NONE` for none.
        starts: By life where it begins; as many as there are lives.
        snapshots: By life how many it takes.
        keep: How many commits a life keeps when it prunes; 0 not to prune.
        swept: How many commits somebody keeps who sweeps from outside; 0 for nobody.
        lost: How many answers of ZooKeeper are lost.
        slips: How many transactions fail or lose their answer.
        before: What has happened when the model begins: the first life has begun, or even done all that it can do.
    """

    name: str
    log: Log
    floors: tuple[int, ...]
    starts: tuple[StartFrom, ...]
    snapshots: tuple[int, ...]
    keep: int = 0
    swept: int = 0
    beside: bool = False
    lost: int = 0
    slips: int = 0
    before: Literal["nothing", "begun", "done"] = "nothing"


@dataclass(frozen=True, slots=True)
class Inside:
    """What has happened inside a life, and what can be said of it then.

    Attributes:
        begun: What it went on from.
        happened: What has happened.
        open: What can happen now that no other life sees.
        packet: What the lane has in flight: messages, and what is written beside them; None if nothing.
        bundles: How many there have been.
        delivered: Delivered time.
        min_time: The global min time.
        requests: T of the snapshots that were asked for.
        captured: Those that all workers have captured: fronts, and state.
        lasts: What a snapshot's manifest says of the lane.
        floors: All that min time rests on.
        error: What a core has raised.
    """

    begun: Begun
    happened: tuple[str, ...]
    open: tuple[str, ...] = ()
    packet: tuple[Any, ...] | None = None
    bundles: int = 0
    delivered: int = 0
    min_time: int = 0
    requests: tuple[tuple[int, int], ...] = ()
    captured: tuple[Any, ...] = ()
    lasts: tuple[Any, ...] = ()
    floors: tuple[Any, ...] = ()
    error: Exception | None = None


class Insides:
    """All that can happen inside lives, each sequence once."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._numbers: dict[tuple[Begun, tuple[str, ...]], int] = {}
        self.all: list[Inside] = []

    def begin(self, begun: Begun) -> int:
        """A life in which nothing has happened."""
        return self._number(begun, ())

    def then(self, inside: int, happening: str) -> int:
        """What comes of it when one more thing happens."""
        before = self.all[inside]
        return self._number(before.begun, (*before.happened, happening))

    def _number(self, begun: Begun, happened: tuple[str, ...]) -> int:
        found = self._numbers.get((begun, happened))
        if found is None:
            found = self._numbers[begun, happened] = len(self.all)
            self.all.append(self._look(begun, happened))
        return found

    def _look(self, begun: Begun, happened: tuple[str, ...]) -> Inside:
        floor = self._size.floors[begun.number - 1]
        try:
            machine = Machine(begun, self._size.log)
            for happening in happened:
                machine.happen(happening, floor)
        except Exception as error:  # noqa: BLE001 - the laws say what is wrong with it
            return Inside(begun, happened, error=error)
        kept = machine.worker.barriers[SINK].kept()
        lasts = [(0, plan().vertices[SINK].name, lane, _json(key)) for lane, key in kept.items()]
        return Inside(
            begun,
            happened,
            tuple(machine.open(floor)),
            None if machine.bundle is None else packet(machine.bundle, machine.before),
            machine.bundles,
            machine.delivered_time,
            machine.tracker.global_min,
            tuple(machine.requests.items()),
            tuple(captured(machine, number) for number in sorted(machine.captured)),
            tuple(lasts),
            tuple(machine.floors),
        )


def _json(key: Any) -> str:
    import json

    return json.dumps([key.tick, key.front, key.sequence, list(key.child), key.trace])


def packet(bundle: Bundle, before: bytes) -> tuple[Any, ...]:
    """A bundle as it goes to Kafka."""
    messages = encoder().encode(bundle.lane, bundle.pieces) if len(bundle) else []
    name = lane_name(plan().vertices[SINK], 1, bundle.lane)
    mark = Mark(name, bundle.last, before, tuple(bundle.floors), tuple(bundle.covered))
    return tuple((*each[:5], None) for each in messages), mark


def captured(machine: Machine, number: int) -> tuple[Any, ...]:
    """What a snapshot has of all workers: fronts with where they are read again, and state by vertex and unit."""
    fronts, state = [], []
    for place, snapshot in enumerate(machine.captured[number]):
        if snapshot.start is not None:
            fronts.append((place, *snapshot.start))
        for vertex, units in snapshot.state.items():
            state += [(vertex, unit, tuple(keys)) for unit, keys in units.items()]
    return tuple(fronts), tuple(state)


class Done(NamedTuple):
    """One way in which a question is answered.

    Attributes:
        answer: What the one that asks gets.
        state: The state, but for the place of the one that asks.
        note: What a trace says beside the question.
    """

    answer: Any
    state: State
    note: str = ""


class World:
    """ZooKeeper, the store, Kafka and the insides of lives; each answer is one step.

    Args:
        size: Of the job.
        scripts: All places.
        laws: Called with what a step has done: its name, the states before and after, and what was asked.
    """

    def __init__(
        self, size: Size, scripts: Scripts, laws: Callable[[str, State, State, tuple[Any, ...]], None]
    ) -> None:
        self.size = size
        self.scripts = scripts
        self.nodes: Table[Nodes] = Table()
        self.objects: Table[Objects] = Table()
        self.kafka: Table[Kafka] = Table()
        self.insides = Insides(size)
        self._laws = laws
        self._read: dict[int, dict[str, Node]] = {}
        self._stored: dict[int, dict[str, bytes]] = {}

    def first(self) -> State:
        """Nothing has happened yet."""
        size = self.size
        return State(
            self.nodes.number(frozenset()),
            self.objects.number(frozenset()),
            self.kafka.number(Kafka()),
            size.lost,
            size.slips,
            self.scripts.first("sweeper", size.swept) if size.swept else NONE,
            tuple(Life() for _ in size.starts),
        )

    def tree(self, state: State) -> dict[str, Node]:
        """ZooKeeper's nodes."""
        found = self._read.get(state.nodes)
        if found is None:
            found = self._read[state.nodes] = dict(self.nodes[state.nodes])
        return found

    def stored(self, state: State) -> dict[str, bytes]:
        """The store's objects."""
        found = self._stored.get(state.objects)
        if found is None:
            found = self._stored[state.objects] = dict(self.objects[state.objects])
        return found

    def answers(self, state: State, life: int, question: Question) -> Iterator[Done]:
        """All ways in which a question can be answered now; none if it has to wait.

        Args:
            state: Before.
            life: Whose question it is, by its place; `NONE` for a sweeper.
            question: The question.
        """
        made = getattr(self, "_" + question.what.replace(" ", "_"))
        yield from made(state, life, *question.given)

    # -- ZooKeeper -------------------------------------------------------------------------------------------------

    def _read_node(self, state: State, _life: int, session: int, path: str) -> Iterator[Done]:
        if self._ended(state, session):
            yield Done(Raised("expired"), state, "its session has ended")
            return
        yield Done(self.tree(state).get(path), state)

    def _ended(self, state: State, session: int) -> bool:
        return session <= len(state.lives) and state.lives[session - 1].expired

    def _list(self, state: State, _life: int, session: int, path: str) -> Iterator[Done]:
        if self._ended(state, session):
            yield Done(Raised("expired"), state, "its session has ended")
            return
        below = path + "/"
        yield Done(tuple(sorted(p.removeprefix(below) for p in self.tree(state) if p.startswith(below))), state)

    def _write(self, state: State, _life: int, session: int, operations: tuple[Operation, ...]) -> Iterator[Done]:
        if self._ended(state, session):
            yield Done(Raised("expired"), state, "its session has ended")
            return
        changed = dict(self.tree(state))
        for operation in operations:
            if not _apply(changed, operation):
                yield Done("a condition did not hold", state, "refused")
                return
            if isinstance(operation, Create) and operation.ephemeral:
                changed[operation.path] = Node(operation.data, 0, session)
        after = state._replace(nodes=self.nodes.number(frozenset(changed.items())))
        self._laws("write", state, after, operations)
        yield Done("done", after)
        if state.lost:
            yield Done("the answer was lost", after._replace(lost=state.lost - 1), "its answer is lost")

    def expire(self, state: State, life: int) -> State:
        """The session comes to its end that a life's driver holds the lease with, whatever the life believes."""
        kept = frozenset(pair for pair in self.nodes[state.nodes] if pair[0] != PATHS.lease)
        lives = list(state.lives)
        lives[life] = lives[life]._replace(expired=True)
        return state._replace(nodes=self.nodes.number(kept), lives=tuple(lives))

    # -- the store -------------------------------------------------------------------------------------------------

    def _put(self, state: State, _life: int, name: str, data: bytes) -> Iterator[Done]:
        after = self.objects[state.objects] | {(name, data)}
        yield Done(None, state._replace(objects=self.objects.number(after)))

    def _get(self, state: State, _life: int, name: str) -> Iterator[Done]:
        yield Done(self.stored(state).get(name), state)

    def _names(self, state: State, _life: int, prefix: str) -> Iterator[Done]:
        found = sorted((name, len(data)) for name, data in self.stored(state).items() if name.startswith(prefix))
        yield Done(tuple(found), state)

    def _delete(self, state: State, _life: int, name: str) -> Iterator[Done]:
        kept = frozenset(pair for pair in self.objects[state.objects] if pair[0] != name)
        after = state._replace(objects=self.objects.number(kept))
        self._laws("delete", state, after, (name,))
        yield Done(None, after)

    # -- Kafka -----------------------------------------------------------------------------------------------------

    def _claim(self, state: State, _life: int, name: str, claimer: str) -> Iterator[Done]:
        kafka = self.kafka[state.kafka]
        # Kafka counts claims; who was the last is all that anybody can tell from it.
        claims = {each: (holder, last) for each, holder, last in kafka.ids} | {name: (claimer, 0)}
        yield Done(None, self._with(state, claims, kafka.records))

    def _deliver(
        self, state: State, life: int, name: str, claimer: str, number: int, produced: tuple[Record, ...]
    ) -> Iterator[Done]:
        kafka = self.kafka[state.kafka]
        claims = {each: (holder, last) for each, holder, last in kafka.ids}
        if claims[name][0] != claimer:
            yield Done(Raised("fenced"), state, "fenced")
            return
        if claims[name][1] == number:
            yield Done(None, state, "it was committed")
            return
        topic = self.inside(state, life).begun.topic
        claims[name] = (claimer, number)
        records = [(f"{OUT} beside {topic}" if each[0] == OUT else each[0], *each[1:]) for each in produced]
        after = self._with(state, claims, (*kafka.records, *records))
        self._laws("deliver", state, after, (topic, life))
        yield Done(None, after)
        if state.slips:
            yield Done(Raised("no answer"), after._replace(slips=state.slips - 1), "its answer is late")
            yield Done(Raised("aborted"), state._replace(slips=state.slips - 1), "it is aborted")

    def _read_lasts(self, state: State, _life: int, topic: str) -> Iterator[Done]:
        yield Done(tuple((key, value) for each, key, value in self.kafka[state.kafka].records if each == topic), state)

    def _keep_floors(self, state: State, _life: int, topic: str, records: tuple[Any, ...]) -> Iterator[Done]:
        kafka = self.kafka[state.kafka]
        added = tuple((topic, key, value) for key, value in records)
        yield Done(None, state._replace(kafka=self.kafka.number(kafka._replace(records=kafka.records + added))))

    def _with(self, state: State, claims: dict[str, tuple[str, int]], records: tuple[Record, ...]) -> State:
        ids = tuple(sorted((name, *each) for name, each in claims.items()))
        return state._replace(kafka=self.kafka.number(Kafka(ids, records)))

    # -- inside a life ---------------------------------------------------------------------------------------------

    def inside(self, state: State, life: int) -> Inside:
        """What has happened inside a life that has begun."""
        return self.insides.all[state.lives[life].inside]

    def happen(self, state: State, life: int, happening: str) -> State:
        """Something happens inside a life."""
        was = state.lives[life]
        lives = list(state.lives)
        lives[life] = was._replace(inside=self.insides.then(was.inside, happening))
        return state._replace(lives=tuple(lives))

    def _take_bundle(self, state: State, life: int) -> Iterator[Done]:
        found = self.inside(state, life).packet
        if found is not None:
            yield Done(found, state)

    def _is_durable(self, state: State, life: int) -> Iterator[Done]:
        yield Done(None, self.happen(state, life, "d"))

    def _request_snapshot(self, state: State, life: int, number: int) -> Iterator[Done]:
        inside = self.inside(state, life)
        asked = [tick for _, tick in inside.requests]
        if inside.min_time > max([inside.begun.start, *asked]):
            after = self.happen(state, life, f"q{number}")
            yield Done(dict(self.inside(after, life).requests).get(number, 0), after)

    def _capture(self, state: State, life: int, number: int, since: int | None) -> Iterator[Done]:
        after = self.happen(state, life, f"c{number}" + ("" if since is None else f":{since}"))
        inside = self.inside(after, life)
        if inside.error is None:
            yield Done(inside.captured[number - 1], after)
        else:
            yield Done(None, after)

    def _await_durable(self, state: State, life: int, number: int) -> Iterator[Done]:
        inside = self.inside(state, life)
        if inside.delivered >= dict(inside.requests)[number]:
            yield Done(inside.lasts, state)

    def _floors(self, state: State, life: int) -> Iterator[Done]:
        yield Done(self.inside(state, life).floors, state)
