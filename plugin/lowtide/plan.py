"""The plan of a flow: what runs at which level, as a frozen value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowtide.connectors.spec import KafkaSink
from lowtide.steps import KeyBy, Read, Site, Step, Write


@dataclass(frozen=True, slots=True)
class Vertex:
    """One named step of a plan.

    Attributes:
        id: Its number in the plan, counted in topological order; the same in every life of an unchanged flow only.
        name: Its name, unique in the flow, the same as long as the user leaves it.
        level: Where it runs; of an exchange (`key_by`), the level that receives.
        parents: Ids of the vertices whose records it takes; none for a source.
        step: What it does.
        takes: The type of the records that come in; of a source, that come out.
        gives: The type of the records that come out; of a sink, that go in.
        site: Where the user wrote it.
    """

    id: int
    name: str
    level: int
    parents: tuple[int, ...]
    step: Step
    takes: type
    gives: type
    site: Site

    @property
    def is_exchange(self) -> bool:
        """Whether it is a keyed exchange: sent by the level before its own."""
        return isinstance(self.step, KeyBy)


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
    """

    name: str
    vertices: tuple[Vertex, ...]
    levels: int
    units: int
    lanes: int
    parallelism: int
    dead_letters: KafkaSink | None

    def children(self, vertex: int) -> tuple[Vertex, ...]:
        """The vertices that take the records of this one, in the order they were written."""
        return tuple(child for child in self.vertices if vertex in child.parents)

    def sources(self) -> Iterator[Vertex]:
        """All vertices that read."""
        return (vertex for vertex in self.vertices if isinstance(vertex.step, Read))

    def sinks(self) -> Iterator[Vertex]:
        """All vertices that write."""
        return (vertex for vertex in self.vertices if isinstance(vertex.step, Write))

    def exchanges(self) -> Iterator[Vertex]:
        """All keyed exchanges."""
        return (vertex for vertex in self.vertices if vertex.is_exchange)

    def lane_of_unit(self) -> npt.NDArray[np.int32]:
        """The lane of every hash unit, int32[units]. Every unit has one lane (R12)."""
        return (np.arange(self.units, dtype=np.int64) * self.lanes // self.units).astype(np.int32)

    def worker_of_unit(self) -> npt.NDArray[np.int32]:
        """The worker of every hash unit, int32[units], at levels from 1 on. Every lane has one owner (R12)."""
        return (self.lane_of_unit().astype(np.int64) * self.parallelism // self.lanes).astype(np.int32)
