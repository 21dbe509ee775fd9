"""The delay of records when they reach windows and joins: the time that `wait=` has to cover."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from lowtide.flow.formats.endpoints import KafkaSink
from lowtide.flow.formats.formats import raw
from lowtide.flow.plan.plan import Plan, Vertex, side_of
from lowtide.flow.steps.steps import Join, WindowBy
from lowtide.flow.time.moments import micros
from lowtide.local.run import Message, run_log

QUANTILES = (0.5, 0.99, 0.999, 1.0)


@dataclass(frozen=True, slots=True)
class Lateness:
    """The delays seen at one window step, or of one stream of a join.

    Attributes:
        step: The step's name; for a join, the side's.
        time: Its column of event time.
        wait_ms: Its wait.
        records: The number of its records.
        behind_ms: Log time less event time, at `QUANTILES` of the records; empty if there were none.
        late: The number of records that came more than `wait` after their time: a session's are late then, a window's
            at its end.
    """

    step: str
    time: str
    wait_ms: float
    records: int
    behind_ms: tuple[float, ...]
    late: int


def lateness_of(plan: Plan, log: Mapping[str, Iterable[Message]]) -> list[Lateness]:
    """Run messages through a plan locally, and measure what reaches each step that uses event time.

    Records that fail are left out; stateful functions begin without state.
    """
    # Failures do not matter here: only part of the log is there.
    plan = replace(plan, dead_letters=KafkaSink("dead-letters", raw(), None))
    seen: dict[str, list[int]] = {}
    run_log(plan, log, on_time=lambda step, behind: seen.setdefault(step, []).append(behind))
    return [
        _lateness(name, column, micros(wait), sorted(seen.get(name, [])))
        for vertex in plan.vertices
        for name, column, wait in _times(vertex)
    ]


def _times(vertex: Vertex) -> list[tuple[str, str, timedelta]]:
    """Return what is measured of a step, each with its column of event time and its wait."""
    step = vertex.step
    if not isinstance(step, WindowBy | Join) or step.time is None:
        return []
    if isinstance(step, WindowBy):
        return [(vertex.name, step.time, step.wait)]
    return [(side_of(vertex, port), step.time[port], step.wait[port]) for port in range(2)]


def _lateness(name: str, column: str, wait: int, behind: list[int]) -> Lateness:
    at = tuple(behind[min(len(behind) - 1, int(each * len(behind)))] / 1_000 for each in QUANTILES if behind)
    return Lateness(name, column, wait / 1_000, len(behind), at, sum(each > wait for each in behind))
