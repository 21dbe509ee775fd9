"""A function that is wrong about some records, until somebody corrects it: a job without dead letters ends there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from zlib import crc32

from call_flows import DRAWN
from state_flows import Count

from lowtide.core.operators.faults.failure import AtRecord
from lowtide.flow.formats.endpoints import KafkaSink
from lowtide.flow.formats.formats import Format
from lowtide.flow.formats.reading import Decoded
from lowtide.flow.formats.writable import Rule, Writable
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.schema.columns import Messages
from lowtide.flow.steps.steps import Ask, FlatMap, Scan, Write

from .verdict import Violation

POISON = -(10**6)
"""A count that scans raise at, or sinks cannot write, where the step before was wrong."""
SUMMED = {"diamond", "keyed_diamond", "across_levels", "two_sources", "two_levels_of_sinks"}
"""Flows whose sinks get a sum for each count of step `words`."""
RARE = (3, 10, 40)

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Narrow:
    """A format that has no room for poison."""

    whole: Format[Any]

    @property
    def record(self) -> Any:
        """As the whole one's."""
        return self.whole.record

    def decode(self, messages: Messages) -> Decoded[Any]:
        """As the whole one."""
        return self.whole.decode(messages)

    def encode(self, rows: Sequence[Any]) -> list[bytes | None]:
        """As the whole one, of what fits."""
        assert all(map(_ROOM.fits, rows)), "what does not fit comes through no barrier"
        return self.whole.encode(rows)

    @property
    def writable(self) -> Writable:
        """All but poison, and sums of it."""
        return Writable("Count", _ROOM)


_ROOM = Rule(lambda count: count.count > POISON // 2, lambda count: (".count", f"{count.count} is poison"))


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is wrong.

    Attributes:
        step: The name of the step whose function it is.
        poisons: Whether it gives what the scans behind it raise at, to a key that has nothing to do with it; else it
            raises.
        at_sinks: Whether it is not the scans that refuse it, but the sinks, whose format cannot write what comes of it.
        rare: It is wrong about one record in so many.
        salt: Says which.
    """

    step: str
    poisons: bool
    rare: int
    salt: int
    at_sinks: bool = False

    def hits(self, record: object) -> bool:
        """Whether it is wrong about a record; the same in every life."""
        return crc32(repr(record).encode(), self.salt) % self.rare == 0

    def put_into(self, plan: Plan) -> Plan:
        """The plan with the wrong function."""
        return replace(plan, vertices=tuple(self._vertex(vertex) for vertex in plan.vertices))

    def found_by(self, error: AtRecord) -> None:
        """See that this is what a life has ended with."""
        if not self.poisons and error.vertex != self.step:
            raise Violation("error", f"{error.vertex} failed, and {self.step} is wrong: {error}")

    def _vertex(self, vertex: Vertex) -> Vertex:
        if vertex.name == self.step:
            return _with(vertex, self._poisoning if self.poisons else self._raising)
        if self.at_sinks and isinstance(vertex.step, Write) and isinstance(vertex.step.sink, KafkaSink):
            sink = replace(vertex.step.sink, format=Narrow(vertex.step.sink.format))
            return replace(vertex, step=replace(vertex.step, sink=sink))
        refuses = self.poisons and not self.at_sinks and isinstance(vertex.step, Scan)
        return _with(vertex, _refusing) if refuses else vertex

    def _raising(self, function: Function) -> Function:
        def wrong(*given: Any) -> Any:
            if self.hits(_record(given)):
                raise ValueError(f"nobody thought of {_record(given)}")
            return function(*given)

        return wrong

    def _poisoning(self, function: Function) -> Function:
        def wrong(*given: Any) -> Any:
            return [Count("z", POISON)] if self.hits(_record(given)) else function(*given)

        return wrong


def draw_wrong(rng: Random, plan: Plan, at_sinks: float) -> Wrong:
    """Something that is wrong with a plan.

    Args:
        rng: Chance.
        plan: The plan.
        at_sinks: How likely it is found at the sinks, in a flow in which it can be.
    """
    if plan.name in SUMMED and rng.random() < at_sinks:
        return Wrong("words", True, rng.choice(RARE), rng.randrange(1 << 20), at_sinks=True)
    users = (vertex for vertex in plan.vertices if not vertex.step.own and not vertex.step.outside)
    vertex = rng.choice([vertex for vertex in users if hasattr(vertex.step, "function")])
    counts = {Count, *(each.takes for each in plan.vertices if isinstance(each.step, Scan))} == {Count}
    # Behind a step of a random flow there may be no scan that refuses poison.
    counts = counts and not plan.name.startswith(DRAWN)
    poisons = counts and isinstance(vertex.step, FlatMap) and vertex.gives is Count and not _is_answered(plan, vertex)
    return Wrong(vertex.name, poisons and rng.random() < 0.7, rng.choice(RARE), rng.randrange(1 << 20))


def _is_answered(plan: Plan, vertex: Vertex) -> bool:
    """Whether a step's records come to a call before they come to a scan: a service does not know poison."""
    children = [child for child in plan.children(vertex.id) if not isinstance(child.step, Scan)]
    return any(isinstance(child.step, Ask) or _is_answered(plan, child) for child in children)


def _refusing(function: Function) -> Function:
    def refuses(*given: Any) -> Any:
        if _record(given).count == POISON:
            raise ValueError("poison")
        return function(*given)

    return refuses


def _record(given: tuple[Any, ...]) -> Any:
    """What a step's function is called about: its first argument, or the second behind a state."""
    return given[min(1, len(given) - 1)]


def _with(vertex: Vertex, change: Callable[[Function], Function]) -> Vertex:
    step: Any = vertex.step
    return replace(vertex, step=replace(step, function=change(step.function)))
