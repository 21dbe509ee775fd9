"""How long records have been under way when they came to the windows of a flow: what `wait=` has to cover."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lowtide.flow.endpoints import KafkaSink
from lowtide.flow.formats import raw
from lowtide.flow.moments import micros
from lowtide.flow.plan import Plan
from lowtide.flow.steps import WindowBy
from lowtide.local.run import Message, run_log

__all__ = ["QUANTILES", "Lateness", "lateness_of"]

QUANTILES = (0.5, 0.99, 0.999, 1.0)


@dataclass(frozen=True, slots=True)
class Lateness:
    """What was seen at one window step.

    Attributes:
        step: Its name.
        time: Its column of event time.
        wait_ms: What it waits.
        records: How many came to it.
        behind_ms: Log time less event time, at `QUANTILES` of the records; empty where there was none.
        late: How many came more than `wait` after their time: a session's are late then, a window's at its end.
    """

    step: str
    time: str
    wait_ms: float
    records: int
    behind_ms: tuple[float, ...]
    late: int


def lateness_of(plan: Plan, log: Mapping[str, Iterable[Message]]) -> list[Lateness]:
    """Run messages through a plan here and now, and look at what comes to each window step that goes by event time.

    Records that fail are left out; functions with state begin without one.
    """
    # What fails is no matter here: only part of the log is there.
    plan = replace(plan, dead_letters=KafkaSink("dead-letters", raw(), None))
    seen: dict[str, list[int]] = {}
    run_log(plan, log, on_time=lambda step, behind: seen.setdefault(step, []).append(behind))
    found = []
    for vertex in plan.vertices:
        step = vertex.step
        if not isinstance(step, WindowBy) or step.time is None:
            continue
        behind, wait = sorted(seen.get(vertex.name, [])), micros(step.wait)
        at = tuple(behind[min(len(behind) - 1, int(each * len(behind)))] / 1_000 for each in QUANTILES if behind)
        late = sum(each > wait for each in behind)
        found.append(Lateness(vertex.name, step.time, wait / 1_000, len(behind), at, late))
    return found
