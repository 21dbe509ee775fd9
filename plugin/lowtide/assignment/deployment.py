"""The deployment: the plan and its settings, pickled once per life for every host of workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lowtide.connectors.loop_topics import LoopTopic
from lowtide.core.effects import LastKeys
from lowtide.core.fronts.front import Window
from lowtide.core.operators.faults.limits import Limits
from lowtide.core.operators.order.order import OrderKey
from lowtide.flow.plan.plan import Plan
from lowtide.sinks.contract import JobSinks, LaneName
from lowtide.sinks.kafka.versions import VersionTwo
from lowtide_snapshots.format.manifest import Part
from lowtide_snapshots.stores import StoreSetting


@dataclass(frozen=True, slots=True)
class DiskSetting:
    """The place of state that is not in memory.

    Attributes:
        folder: The folder for it on every machine.
        memory_bytes: About how much memory a host's groups at rest may take.
        max_bytes: How large a host's state on disk may become.
        copies_bytes: How much a machine's copies of parts may take; 0 for none.
        in_memory: The steps whose state is in memory anyway.
    """

    folder: str
    memory_bytes: int
    max_bytes: int
    in_memory: frozenset[str] = frozenset()
    copies_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TracesSetting:
    """The traces of sampled records.

    Attributes:
        endpoint: The URL to which spans are sent.
        ratio: The share of source records that are traced, 0 to 1.
    """

    endpoint: str
    ratio: float


Delivery = Literal["exactly_once", "at_least_once"]


@dataclass(frozen=True)
class Deployment:
    """A plan and where it runs.

    Attributes:
        plan: What to run.
        sink_partitions: How many partitions each sink's topic has.
        producer: librdkafka's settings for sinks.
        limits: How large records and frames may be.
        delivery: How sinks are written.
        window: How far a front may be ahead (R8).
        optimism: With how many ticks a worker's window of optimism begins (`Optimism` in `core/early_frames.py`); None
            for no limit, as in ordered mode.
        max_future_ms: A timestamp further ahead of the broker's clock is not believed.
        max_bundle_records: Limit of one bundle.
        delivery_limit_ms: How long Kafka may take for what a sink is given at once.
        max_queued_bytes: Input and output that may wait in one worker before its source is held back.
        call_limit_s: How long a call of the flow's functions may take.
        sealed: Whether frames are sealed on their way through Spark.
        version_two: For transactions of version 2 in Kafka; None for version 1.
        pace_ms: The least time between the beginnings of two transactions of one process while little waits.
        flush_ms: For how long a host gathers what it tells the tracker.
        relay: Whether the hosts of an executor have one connection to the tracker, by a relay.
        lasts_topic: The topic in which Kafka's lanes keep their `last`; empty if they do not.
        stores: The sinks in other stores, by store.
        loops: By the way back to a loop's head the topic it goes through.
        job_id: What the job is called for good.
        start: The tick at which the life's min time begins.
        last: What the lanes' `last` was when the life began (R13).
        strands: What the stores besides Kafka had as the `last` of this life's strands, by name (R19).
        floors: By front the floors that were durable then, packed.
        unreported: The floors that only commits knew.
        relied_on: The largest tick that anything relies on; see `KnownFloors`.
        highest_floor: The largest tick of all floors, those that commits alone know too.
        store: Where snapshots go; None where none are taken.
        restored: The parts that the life begins from, all of the T that it starts at.
        forgot: By step, after how many ticks keys were forgotten in the life that wrote them.
        recovered: Whether it begins from a snapshot at all.
        max_call_bytes: What the records of open calls may take that one host has given to the process that asks.
        calls: The settings of the plan's calls, pickled; empty if there are none.
        disk: Where state lies that is not in memory; None if all of it is.
        traces: Of sampled records; None for none.
        shares: Whether later snapshots may share parts with that one: not where a state has another type or ttl by now.
    """

    plan: Plan
    sink_partitions: Mapping[str, int]
    producer: Mapping[str, Any] = field(repr=False)
    limits: Limits
    delivery: Delivery
    window: Window
    optimism: int | None
    max_future_ms: int
    max_bundle_records: int
    delivery_limit_ms: int
    max_queued_bytes: int
    call_limit_s: float = 300.0
    sealed: bool = False
    pace_ms: int = 0
    flush_ms: float = 2.0
    relay: bool = False
    version_two: VersionTwo | None = None
    lasts_topic: str = ""
    stores: Mapping[str, JobSinks] = field(default_factory=dict)
    loops: Mapping[int, LoopTopic] = field(default_factory=dict)
    job_id: str = ""
    start: int = 0
    last: LastKeys = field(default_factory=dict)
    strands: Mapping[LaneName, OrderKey] = field(default_factory=dict)
    floors: Mapping[int, bytes] = field(default_factory=dict, repr=False)
    unreported: Mapping[int, bytes] = field(default_factory=dict, repr=False)
    relied_on: int = 0
    highest_floor: int = 0
    store: StoreSetting | None = None
    restored: tuple[Part, ...] = ()
    forgot: Mapping[str, int] = field(default_factory=dict)
    recovered: bool = False
    max_call_bytes: int = 32 << 20
    calls: bytes = field(default=b"", repr=False)
    shares: bool = False
    disk: DiskSetting | None = None
    traces: TracesSetting | None = None
