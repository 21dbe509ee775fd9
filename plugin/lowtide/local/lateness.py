"""The delay of records when they reach windows and joins, and the differences of the clocks that date them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import accumulate, chain

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


@dataclass(frozen=True, slots=True)
class Dating:
    """The differences of the clocks that date one partition's records, as far as its timestamps show them.

    Producers that write one partition and whose clocks differ by d make its timestamps go back by up to d, plus the
    time that a record is under way.

    Attributes:
        partition: Its name, as `orders-0`.
        dated_by: Who sets them, "producer" or "broker".
        records: The number of its records.
        older: The number of those with a smaller timestamp than one before them.
        back_ms: How much smaller, at `QUANTILES` of all records; empty if there were none.
        ahead_ms: How far the largest timestamp is ahead of this machine's clock; 0 if it is not.
    """

    partition: str
    dated_by: str
    records: int
    older: int
    back_ms: tuple[int, ...]
    ahead_ms: int


def datings_of(log: Mapping[str, Sequence[Message]], dated_by: Mapping[str, str], now_ms: int) -> list[Dating]:
    """Measure how far timestamps go back in each partition, and are ahead of a clock.

    Args:
        log: Messages by source, those of a partition in the order of the log.
        dated_by: By topic who sets their timestamps.
        now_ms: The clock's time after they were read.
    """
    read = {message.topic: messages for messages in log.values() for message in messages[:1]}
    stamps: dict[tuple[str, int], list[int]] = {}
    for message in chain.from_iterable(read.values()):
        stamps.setdefault((message.topic, message.partition), []).append(message.timestamp)
    found = []
    for (topic, partition), times in sorted(stamps.items()):
        back = sorted(newest - time for newest, time in zip(accumulate(times, max), times, strict=True))
        ahead_ms = max(0, max(times) - now_ms)
        older = sum(each > 0 for each in back)
        found.append(Dating(f"{topic}-{partition}", dated_by[topic], len(times), older, _quantiles(back), ahead_ms))
    return found


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
    at = tuple(each / 1_000 for each in _quantiles(behind))
    return Lateness(name, column, wait / 1_000, len(behind), at, sum(each > wait for each in behind))


def _quantiles(ascending: Sequence[int]) -> tuple[int, ...]:
    return tuple(ascending[min(len(ascending) - 1, int(each * len(ascending)))] for each in QUANTILES if ascending)
