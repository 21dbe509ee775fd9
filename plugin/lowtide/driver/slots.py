"""Slots: Real-Time Mode runs all tasks of all levels at once, each in a slot of its own."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Any

from lowtide.errors import TooFewSlots
from lowtide.flow.plan import Plan

POLL_S = 0.1


def needed(plan: Plan, fronts: int) -> int:
    """Return how many slots a plan takes: one per source partition, then `parallelism` per level."""
    return fronts + (plan.levels - 1) * plan.parallelism


def offered(master: str) -> int | None:
    """Return how many slots a local master has; None where only the cluster knows."""
    if master == "local":
        return 1
    if match := re.fullmatch(r"local\[(\d+|\*)(?:,\s*\d+)?\]", master):
        return os.cpu_count() or 1 if match[1] == "*" else int(match[1])
    if match := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master):
        return int(match[1]) * int(match[2])
    return None


def check(plan: Plan, fronts: int, have: int | None, master: str) -> None:
    """Refuse a start that could never run all levels.

    Raises:
        TooFewSlots: with both figures and what to change.
    """
    need = needed(plan, fronts)
    if have is None or have >= need:
        return
    later = plan.levels - 1
    way_out = f"set spark.master to local[{need}] (slots are no cores, two cores carry many)"
    if not master.startswith("local["):
        way_out = f"give Spark {need} slots (executors times cores), or lower job.parallelism"
    raise TooFewSlots(
        f"the flow needs {need} slots at once, Spark has {have}: {fronts} for the source's partitions and "
        f"{later} x {plan.parallelism} for the later levels",
        where=f"spark.master = {master}",
        way_out=way_out,
    )


def wait(session: Any, need: int, limit_s: float, say: Callable[[str], None]) -> None:
    """Wait until executors have brought so many slots: Spark refuses a query that it cannot run at once.

    Those that do not come in time are not missed here but by Spark, which says what it has.

    Args:
        session: The SparkSession.
        need: How many slots.
        limit_s: How long, at most.
        say: Told that it waits, and for how many.
    """
    context = session.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    deadline = time.monotonic() + limit_s
    said = False
    while (have := context.maxNumConcurrentTasks(profile)) < need and time.monotonic() < deadline:
        if not said:
            say(f"waiting for executors, which have {have} of {need} slots")
            said = True
        time.sleep(POLL_S)
