"""Delivered time of a job that does not run, as far as its drained sinks tell."""

from __future__ import annotations

from collections.abc import Mapping

from lowtide.assignment.setting import StagedSetting
from lowtide.core.fronts.end import end_tick
from lowtide.flow.plan.plan import Plan


def drained_tick(plan: Plan, sinks: Mapping[StagedSetting, int | None], committed: int | None) -> int | None:
    """Return the tick below which all of a job's output is durable, and visible (R21).

    A lane's mark says that its records below it are all staged, and it is staged with the floors that it rests on. Of
    sinks that are not staged, and of dead letters, the last commit says it (R15).

    Args:
        plan: The plan.
        sinks: By staged sink the log time below which its readers see everything; None while unknown.
        committed: The tick of the last commit; None for none.

    Returns:
        None if it is unknown, or if the job is finished, which has no delivered time of its own.
    """
    ticks = [None if visible is None else visible // plan.slack_ms for visible in sinks.values()]
    # After its last mark a sink has nothing to wait for.
    ends = [each.last_mark for each in sinks]
    open_ = [tick for tick, end in zip(ticks, ends, strict=True) if tick is None or tick < end]
    if len(sinks) < len(list(plan.sinks())) or plan.dead_letters is not None:
        open_.append(committed)
    known = [tick for tick in open_ if tick is not None]
    if not known or len(known) < len(open_):
        return None
    tick = min(known)
    return None if tick >= end_tick(plan.slack_ms) else tick
