"""The view of a small job's service at one moment."""

from __future__ import annotations

from typing import Any

import msgspec

from lowtide.status.gauges import WorkerGauges, WorkerState
from lowtide.status.moment import JobShape, Moment, StepShape
from lowtide.status.tracker_report import TrackerReport
from lowtide_tracker import Holder, Traffic

MIN_TIME = 883_661_550_000
"""2026-01-02 03:05:00 UTC, as a tick of 2 ms."""

STEPS = (
    StepShape(name="documents", word="read", level=0),
    StepShape(name="last", word="last", level=1, after=(0,), segments=(1,)),
    StepShape(name="changes", word="flat_map", level=1, after=(1,)),
    StepShape(name="index", word="scan", level=2, after=(2,), segments=(2,)),
    StepShape(name="index", word="write", level=2, after=(3,)),
)
SHAPE = JobShape(
    job="index",
    incarnation=3,
    started_ms=2 * MIN_TIME - 60_000,
    slack_ms=2,
    segments={1: "last, changes", 2: "index"},
    sinks={"index": (2, 4)},
    steps=STEPS,
    connections={"frames": "sealed", "Kafka": "SASL_SSL", "ZooKeeper": "nodes of one user, in the clear"},
)
PARTITIONS = {0: "documents-0", 3: "documents-1", 4: "documents-2"}


def worker(name: str, **gauges: Any) -> WorkerState:
    """A worker that has reported, with its gauges as JSON brings them; none if there are none."""
    level = int(name.partition("/")[0])
    return WorkerState(
        worker=name,
        level=level,
        number=level,
        executor="0",
        pid=100 + level,
        address="127.0.0.1:9",
        attached=True,
        gauges=msgspec.json.decode(msgspec.json.encode(gauges), type=WorkerGauges) if gauges else None,
    )


def reader(name: str, front: int, records_in: int = 0, **said: Any) -> WorkerState:
    """A worker of level 0."""
    gauge = {"front": front, "heartbeat": MIN_TIME, "next_offset": 7, "parked": 0, "pulling": True}
    return worker(name, records_in=records_in, front=gauge | said)


def report(held: Holder | None = None, **changes: Any) -> TrackerReport:
    """What a tracker says that stands at `MIN_TIME`."""
    held = held or Holder(MIN_TIME, 1, 3, at_front=True)
    usual: dict[str, Any] = {"era": 1, "pid": 77, "min_times": {1: MIN_TIME, 2: MIN_TIME}, "global_min": MIN_TIME}
    usual |= {"holder": str(held), "held": held, "missing": (), "floors": 5, "workers": 4}
    usual |= {"traffic": Traffic(5_000, 600_000, 4_000, 120_000, flushes=4_000, acks=16_000, notices=3_000)}
    return TrackerReport(**(usual | changes))


def moment(lag_ms: int = 4, **changes: Any) -> Moment:
    """A moment at which min time is so far behind, held by front 3."""
    usual: dict[str, Any] = {"now_ms": 2 * MIN_TIME + lag_ms, "phase": "running", "fronts": PARTITIONS}
    return Moment(**(usual | {"tracker": report()} | changes))
