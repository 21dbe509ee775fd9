"""The plan of a flow: what runs at which level, as a frozen value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeGuard

import numpy as np
import numpy.typing as npt
from typing_extensions import TypeVar

from lowtide.flow.formats.endpoints import KafkaSink
from lowtide.flow.site import Site
from lowtide.flow.steps.calls import S_co
from lowtide.flow.steps.steps import (
    Broadcast,
    Connect,
    Feedback,
    KeyBy,
    Late,
    Loop,
    Read,
    Relay,
    Sign,
    Step,
    Table,
    WhenDone,
    Write,
)

Grouping = Literal["optimistic", "ordered"]
"""How stateful steps come to the right order: by repair, or by waiting for min time; the output is the same."""

LOOP_MARK = 1 << 31
"""What a pass through a loop appends to the child path: this bit and the id of the loop's head."""


K = TypeVar("K", bound=Step)


@dataclass(frozen=True, slots=True)
class Vertex(Generic[S_co]):
    """One named step of a plan; `Vertex[Scan]` is one whose step is a scan.

    Attributes:
        id: Its number in the plan, counted in topological order; the same in every life of an unchanged flow only.
        name: Its name, the same as long as the user leaves it; unique in the flow, but a sink's may be that of a step
            that is no source.
        level: Where it runs; of an exchange, the level that receives.
        parents: Ids of the vertices whose records it takes, by port; none for a source. All of its own level, of an
            exchange of the level before, of a `Feedback` of its level or a later one. A scan with a broadcast takes it
            at port 1, and so does a join its table.
        step: What it does.
        takes: The type of the records that come in (at port 0); of a source, that come out.
        gives: The type of the records that come out; of a sink, that go in; of `last` the alias tuple[T, ...]; of a
            broadcast its records, not its state.
        site: Where the user wrote it.
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
        """Whether its records are sent by another level: the one before its own, or a loop's tail."""
        return self.step.exchange

    @property
    def loop_mark(self) -> int:
        """What a loop's head appends to the child path of every record that enters it; see `LoopNode`."""
        assert isinstance(self.step, Loop), "only loops have marks"
        return LOOP_MARK | self.id


def is_of(vertex: Vertex, kind: type[K]) -> TypeGuard[Vertex[K]]:
    """True if a vertex's step is of a kind."""
    return isinstance(vertex.step, kind)


def side_of(join: Vertex, port: int) -> str:
    """What one side of a join is called in snapshots, where each is kept by itself."""
    return f"{join.name}/{('left', 'right')[port]}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that the workers of a flow have to know about it.

    Attributes:
        name: The flow's name.
        vertices: All vertices; `vertices[i].id == i`, and parents come first.
        levels: Number of levels; level 0 has one worker per source partition, the others `parallelism` each.
        units: Number of hash units.
        lanes: Number of lanes of every sink; a lane is a contiguous range of hash units.
        parallelism: Number of workers of each level from 1 on.
        dead_letters: Where records go that failed; None if they stop the job.
        slack_ms: How many milliseconds one tick is long.
        grouping: How stateful steps come to the right order.
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

    def children(self, vertex: int) -> tuple[Vertex, ...]:
        """The vertices that take the records of this one, in the order they were written; not back to a loop's head.

        Where there are several, a record's child path gets the child's number, counted from 1, on the way. Who takes
        what is late, or signs for a clock, is not among them, nor is the way back to a loop's head.
        """
        return tuple(each for each in self.vertices if vertex in each.parents and not each.step.silent)

    def signs_of(self, source: Vertex[Read]) -> tuple[Vertex[Sign], ...]:
        """What makes signs for clocks of a source's records; of what is preloaded none are made, as it has no time."""
        if source.step.source.preload:
            return ()
        return tuple(each for each in self.those(Sign) if source.id in each.parents)

    def feedback_of(self, tail: Vertex) -> Vertex[Feedback] | None:
        """The exchange by which a loop's tail sends records back; None where they stay with their worker."""
        return next((each for each in self.those(Feedback) if tail.id in each.parents), None)

    def feedbacks(self) -> tuple[Vertex[Feedback], ...]:
        """All exchanges from the tail of a loop back to its head."""
        return tuple(self.those(Feedback))

    def crosses(self, head: Vertex) -> bool:
        """Whether what goes round a loop goes through an exchange on its way back to this head."""
        return any(each.back == head.id for each in self.feedbacks())

    def sender_level(self, exchange: Vertex) -> int:
        """The level whose workers send the records of an exchange."""
        return self.vertices[exchange.parents[0]].level

    def late_of(self, step: int, port: int = 0) -> Vertex[Late] | None:
        """The vertex that takes what is late for a window, or for a join at a port; None where it is dropped."""
        return next((each for each in self.those(Late) if step in each.parents and each.step.port == port), None)

    def those(self, kind: type[K]) -> Iterator[Vertex[K]]:
        """All vertices whose steps are of a kind, in topological order."""
        return (vertex for vertex in self.vertices if is_of(vertex, kind))

    def sources(self) -> Iterator[Vertex[Read]]:
        """All vertices that read."""
        return self.those(Read)

    def branch_of(self, source: Vertex[Read]) -> int:
        """What a source appends to the child path of its messages (R4): its number, from 1, among those of its topic.

        0 where it is the only one: it appends nothing.
        """
        topic = source.step.source.topic
        readers = [each.id for each in self.sources() if each.step.source.topic == topic]
        return readers.index(source.id) + 1 if len(readers) > 1 else 0

    def sinks(self) -> Iterator[Vertex[Write]]:
        """All vertices that write."""
        return self.those(Write)

    def exchanges(self) -> Iterator[Vertex]:
        """All exchanges."""
        return (vertex for vertex in self.vertices if vertex.is_exchange)

    def keyed(self, vertex: Vertex, port: int = 0) -> Vertex[KeyBy]:
        """The `key_by` that a stateful step or a loop has at a port; of several connected streams the first one's."""
        while not is_of(vertex, KeyBy):
            assert vertex.parents, f"{vertex.name} stands behind no key_by"
            vertex, port = self.vertices[vertex.parents[port]], 0
        return vertex

    def key_of(self, vertex: Vertex, port: int = 0) -> tuple[str, ...]:
        """The columns by which the records are keyed that reach a stateful step or a loop at a port; see `keyed`.

        None where they go by hash unit alone.
        """
        if isinstance(vertex.step, WhenDone) and vertex.step.label is None:
            return ()
        return self.keyed(vertex, port).step.columns

    def connected(self, scan: Vertex) -> dict[type, tuple[str, ...]]:
        """By type of record the columns it is keyed by, for a scan of connected streams; empty for any other."""
        connect = self.vertices[scan.parents[0]]
        if not isinstance(connect.step, Connect):
            return {}
        ports = range(len(connect.parents))
        return {self.keyed(connect, port).gives: self.key_of(connect, port) for port in ports}

    def broadcast_of(self, scan: Vertex) -> Vertex[Broadcast] | None:
        """The broadcast that a scan looks at, at port 1 and perhaps through relays; None if it does not."""
        if len(scan.parents) == 1:
            return None
        vertex = self.vertices[scan.parents[1]]
        while not is_of(vertex, Broadcast):
            vertex = self.vertices[vertex.parents[0]]
        return vertex

    def table_of(self, join: Vertex) -> Vertex[Table]:
        """The table that a `join_table` looks at, at port 1 and perhaps through relays."""
        vertex = self.vertices[join.parents[1]]
        while not is_of(vertex, Table):
            vertex = self.vertices[vertex.parents[0]]
        return vertex

    def may_end(self, vertex: Vertex) -> bool:
        """Whether a record that fails at a step may end the life: without dead letters each, at some steps in any case.

        Of a batch nobody can say which record it was, and a state that cannot be saved is no record's fault. What
        Lowtide does by itself does not fail.
        """
        is_signed = bool(vertex.parents) and isinstance(self.vertices[vertex.parents[0]].step, Sign)
        if is_signed or vertex.step.own:
            return False
        return self.dead_letters is None or vertex.step.whole

    @property
    def clocked(self) -> frozenset[int]:
        """The vertices that send what time alone brings."""
        return frozenset(vertex.id for vertex in self.vertices if vertex.step.clocked)

    def needs_tracking(self) -> tuple[Vertex, ...]:
        """The vertices whose output is right only in order, and so with min time; none where a run may do without.

        All that keep state or loop, and the relays of merges across levels.
        """
        return tuple(each for each in self.vertices if each.step.stateful or isinstance(each.step, Relay))

    def lane_of_unit(self) -> npt.NDArray[np.int32]:
        """The lane of every hash unit, int32[units]. Every unit has one lane (R12)."""
        return (np.arange(self.units, dtype=np.int64) * self.lanes // self.units).astype(np.int32)

    def worker_of_unit(self) -> npt.NDArray[np.int32]:
        """The worker of every hash unit, int32[units], at levels from 1 on. Every lane has one owner (R12)."""
        return (self.lane_of_unit().astype(np.int64) * self.parallelism // self.lanes).astype(np.int32)
