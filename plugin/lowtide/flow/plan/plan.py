"""The plan of a flow: what runs at which level, as a frozen value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeGuard

import numpy as np
import numpy.typing as npt
from typing_extensions import TypeVar

from lowtide.flow.formats.endpoints import KafkaSink
from lowtide.flow.parameters import Value
from lowtide.flow.site import Site
from lowtide.flow.steps.calls import S_co
from lowtide.flow.steps.hooks import Hooks
from lowtide.flow.steps.steps import (
    Answers,
    Ask,
    Broadcast,
    Feedback,
    KeyBy,
    Late,
    Loop,
    Read,
    Relay,
    Sign,
    Step,
    Write,
)
from lowtide_snapshots.job.record import units_of_lanes

Grouping = Literal["optimistic", "ordered"]
"""The way stateful steps come to the right order: by repair or by waiting for min time; the output is the same."""

LOOP_MARK = 1 << 31
"""A pass through a loop appends this bit and the id of the loop's head to the child path."""


K = TypeVar("K", bound=Step)


@dataclass(frozen=True, slots=True)
class Vertex(Generic[S_co]):
    """One named step of a plan; `Vertex[Scan]` is one whose step is a scan.

    Attributes:
        id: Its number in the plan, counted in topological order; the same in every life of an unchanged flow only.
        name: Its name, stable as long as the user keeps it; unique in the flow, except that a sink may share one with a
            step that is not a source.
        level: The level at which it runs; of an exchange, the level that receives.
        parents: Ids of the vertices whose records it takes, by port; none for a source. All are at its own level; an
            exchange's are at the level before, a `Feedback`'s at its level or a later one. A scan takes its broadcast,
            and a join its table, at port 1.
        step: What it does.
        takes: The type of the records that come in (at port 0); of a source, that come out.
        gives: The type of the records that come out; of a sink, that go in; of `last` the alias tuple[T, ...]; of a
            broadcast its records, not its state.
        site: The place in the user's code.
        depth: No record that comes in or out has a longer child path.
        back: Of a loop's tail and of its `Feedback`, the id of the head; else None. Not among the head's parents, so
            that parents come first.
    """

    id: int
    name: str
    level: int
    parents: tuple[int, ...]
    step: S_co
    takes: type
    gives: type
    site: Site
    depth: int = 0
    back: int | None = None

    @property
    def is_exchange(self) -> bool:
        """True if another level sends its records: the one before its own, or a loop's tail."""
        return self.step.exchange

    @property
    def loop_mark(self) -> int:
        """The element that a loop's head appends to the child path of every record that enters; see `LoopNode`."""
        assert isinstance(self.step, Loop), "only loops have marks"
        return LOOP_MARK | self.id


def is_of(vertex: Vertex, kind: type[K]) -> TypeGuard[Vertex[K]]:
    """True if a vertex's step is of a kind."""
    return isinstance(vertex.step, kind)


def side_of(join: Vertex, port: int) -> str:
    """Return the name of one side of a join in snapshots, which keep each side by itself."""
    return f"{join.name}/{('left', 'right')[port]}"


def state_names(vertex: Vertex) -> list[str]:
    """Return the names of what a step with state keeps, in snapshots: its own, or those of a join's sides."""
    sides = vertex.step.sides
    return [side_of(vertex, port) for port in range(sides)] if sides > 1 else [vertex.name]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that workers need to know about a flow.

    Attributes:
        name: The flow's name.
        vertices: All vertices; `vertices[i].id == i`, and parents come first.
        levels: Number of levels; level 0 has one worker per source partition, the others `parallelism` each.
        units: Number of hash units.
        lanes: Number of lanes of every sink; a lane is a contiguous range of hash units.
        parallelism: Number of workers at each level from 1 up.
        dead_letters: The sink for records that failed; None if they stop the job.
        slack_ms: Length of a tick in ms.
        grouping: The way stateful steps come to the right order.
        parameters: The value of each parameter that the flow has asked for.
        hooks: Functions that hear of commits, in the driver.
        early_keys: Whether the workers of a last level have a min time each, and none waits for the frames of another.
        grown: The numbers of lanes that the job had before, ascending.
    """

    name: str
    vertices: tuple[Vertex, ...]
    levels: int
    units: int
    lanes: int
    parallelism: int
    dead_letters: KafkaSink | None
    slack_ms: int = 2
    grouping: Grouping = "optimistic"
    parameters: Mapping[str, Value] = field(default_factory=dict, hash=False)
    hooks: Hooks = field(default_factory=Hooks, hash=False)
    early_keys: bool = False
    grown: tuple[int, ...] = ()

    @property
    def lane_counts(self) -> tuple[int, ...]:
        """The numbers of lanes that the job has had, the current one last; see `lane_partitions`."""
        return (*self.grown, self.lanes)

    def children(self, vertex: int) -> tuple[Vertex, ...]:
        """Return the vertices that take this one's records, in the order they were written.

        If there are several, a record's child path gets the child's number, counted from 1, on the way. Takers of late
        records, signs for clocks and the way back to a loop's head are not among them.
        """
        return tuple(each for each in self.vertices if vertex in each.parents and not each.step.silent)

    def signs_of(self, source: Vertex[Read]) -> tuple[Vertex[Sign], ...]:
        """Return the vertices that make a source's signs for clocks; none if it is preloaded, as that has no time."""
        if source.step.source.preload:
            return ()
        return tuple(each for each in self.those(Sign) if source.id in each.parents)

    def feedback_of(self, tail: Vertex) -> Vertex[Feedback] | None:
        """Return the exchange by which a loop's tail sends records back; None if they stay with their worker."""
        return next((each for each in self.those(Feedback) if tail.id in each.parents), None)

    def feedbacks(self) -> tuple[Vertex[Feedback], ...]:
        """Return all exchanges from the tail of a loop back to its head."""
        return tuple(self.those(Feedback))

    def crosses(self, head: Vertex) -> bool:
        """Return whether a loop's records go through an exchange on their way back to this head."""
        return any(each.back == head.id for each in self.feedbacks())

    def sender_level(self, exchange: Vertex) -> int:
        """Return the level whose workers send the records of an exchange."""
        return self.vertices[exchange.parents[0]].level

    def late_of(self, step: int, port: int = 0) -> Vertex[Late] | None:
        """Return the vertex that takes the late records of a window, or of a join's port; None if they are dropped."""
        return next((each for each in self.those(Late) if step in each.parents and each.step.port == port), None)

    def those(self, kind: type[K]) -> Iterator[Vertex[K]]:
        """Yield all vertices whose steps are of a kind, in topological order."""
        return (vertex for vertex in self.vertices if is_of(vertex, kind))

    def sources(self) -> Iterator[Vertex[Read]]:
        """Yield all vertices that read."""
        return self.those(Read)

    def branch_of(self, source: Vertex[Read]) -> int:
        """Return the element that a source appends to its messages' child path (R4).

        It is the source's number, from 1, among those of its topic; 0, and nothing appended, if it is the only one.
        """
        topic = source.step.source.topic
        readers = [each.id for each in self.sources() if each.step.source.topic == topic]
        return readers.index(source.id) + 1 if len(readers) > 1 else 0

    def sinks(self) -> Iterator[Vertex[Write]]:
        """Yield all vertices that write."""
        return self.those(Write)

    def delivering(self) -> Iterator[Vertex]:
        """Yield all vertices whose records go to a store: sinks, and the answers of calls."""
        return (vertex for vertex in self.vertices if vertex.step.delivers)

    def answers_of(self, ask: Vertex[Ask]) -> Vertex[Answers] | None:
        """Return the vertex that keeps the answers of a call; None if they are not kept."""
        return next((each for each in self.those(Answers) if ask.id in each.parents), None)

    def kafka_sinks(self) -> Iterator[tuple[Vertex[Write], KafkaSink]]:
        """Yield all vertices that write to Kafka, each with its sink."""
        for vertex in self.sinks():
            if isinstance(vertex.step.sink, KafkaSink):
                yield vertex, vertex.step.sink

    def exchanges(self) -> Iterator[Vertex]:
        """Yield all exchanges."""
        return (vertex for vertex in self.vertices if vertex.is_exchange)

    def keyed(self, vertex: Vertex, port: int = 0) -> Vertex[KeyBy]:
        """Return the `key_by` of a stateful step or a loop at a port; of connected streams the first one's."""
        while not is_of(vertex, KeyBy):
            assert vertex.parents, f"{vertex.name} has no key_by before it"
            vertex, port = self.vertices[vertex.parents[port]], 0
        return vertex

    def key_of(self, vertex: Vertex, port: int = 0) -> tuple[str, ...]:
        """Return the columns that key the records at a port of a stateful step or a loop; see `keyed`.

        Empty if they go by hash unit alone.
        """
        if vertex.step.by_unit:
            return ()
        return self.keyed(vertex, port).step.columns

    def connected(self, scan: Vertex) -> dict[type, tuple[str, ...]]:
        """Return the key's columns by type of record for a scan of connected streams; empty for any other."""
        connect = self.vertices[scan.parents[0]]
        if not connect.step.mixed:
            return {}
        ports = range(len(connect.parents))
        return {self.keyed(connect, port).gives: self.key_of(connect, port) for port in ports}

    def broadcast_of(self, scan: Vertex) -> Vertex[Broadcast] | None:
        """Return the broadcast that a scan looks at, at port 1 and perhaps through relays; None if there is none."""
        if len(scan.parents) == 1:
            return None
        vertex = self.vertices[scan.parents[1]]
        while not is_of(vertex, Broadcast):
            vertex = self.vertices[vertex.parents[0]]
        return vertex

    def may_end(self, vertex: Vertex) -> bool:
        """Return whether a record that fails at a step may end the life.

        Without dead letters every one does; at some steps it always does: in a batch the record at fault is unknown,
        and a state that cannot be saved is not a record's fault. Lowtide's own steps do not fail. Nor do calls that
        raise: the life ends at once, nothing is corrected, and the next one asks again.
        """
        if isinstance(vertex.step, Ask) and vertex.step.failed == "raise":
            return False
        is_signed = bool(vertex.parents) and isinstance(self.vertices[vertex.parents[0]].step, Sign)
        if is_signed or vertex.step.own:
            return False
        return self.dead_letters is None or vertex.step.ends_life

    @property
    def clocked(self) -> frozenset[int]:
        """The vertices that send records which time alone causes."""
        return frozenset(vertex.id for vertex in self.vertices if vertex.step.clocked)

    def needs_tracking(self) -> tuple[Vertex, ...]:
        """Return the vertices whose output is right only in order, and so needs min time; empty if a run needs none.

        They are those that keep state or loop, and the relays of merges across levels.
        """
        return tuple(each for each in self.vertices if each.step.stateful or isinstance(each.step, Relay))

    def lane_of_unit(self) -> npt.NDArray[np.int32]:
        """The lane of every hash unit, int32[units]. Every unit has one lane (R12)."""
        return self.partition_of_unit(self.lanes)

    def units_of_lanes(self, first: int, end: int) -> range:
        """Return the hash units of lanes `first` to `end`, without the latter."""
        return units_of_lanes(self.units, self.lanes, first, end)

    def partition_of_unit(self, partitions: int) -> npt.NDArray[np.int32]:
        """Return by hash unit its partition of a topic, int32[units]; the same however many lanes there are."""
        return (np.arange(self.units, dtype=np.int64) * partitions // self.units).astype(np.int32)

    def worker_of_unit(self) -> npt.NDArray[np.int32]:
        """The worker of every hash unit, int32[units], at levels from 1 on. Every lane has one owner (R12)."""
        return (self.lane_of_unit().astype(np.int64) * self.parallelism // self.lanes).astype(np.int32)

    def units_of_workers(self) -> tuple[range, ...]:
        """Return the hash units of each worker of a level from 1 on, those of its lanes."""
        counts = np.bincount(self.worker_of_unit(), minlength=self.parallelism)
        ends = np.cumsum(counts).tolist()
        return tuple(range(first, end) for first, end in zip([0, *ends], ends, strict=False))
