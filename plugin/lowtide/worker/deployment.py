"""What the driver hands to every worker: the plan and the settings around it, pickled once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lowtide.plan import Plan

if TYPE_CHECKING:
    from lowtide.worker.stage import LevelStage


@dataclass(frozen=True)
class Deployment:
    """A plan and where it runs.

    Attributes:
        plan: What to run.
        fronts: The number of every source partition, by `topic-partition`.
        sink_partitions: How many partitions each sink's topic has.
        producer: librdkafka's settings for sinks.
        frame_bytes: About how much a frame holds.
        max_frame_bytes: Size limit of a record, and so of a frame that holds one alone.
        max_frame_rows: Records per frame at most.
        delivery_limit_ms: How long Kafka may take for one record of a sink.
        max_queued_bytes: Input and output that may wait in one worker before its source is held back.
    """

    plan: Plan
    fronts: Mapping[str, int]
    sink_partitions: Mapping[str, int]
    producer: Mapping[str, Any] = field(repr=False)
    frame_bytes: int
    max_frame_bytes: int
    max_frame_rows: int
    delivery_limit_ms: int
    max_queued_bytes: int

    def stage(self, level: int, name: str, number: int) -> LevelStage:
        """Make the stage of one worker, in that worker."""
        from lowtide.worker.stage import LevelStage

        return LevelStage(self, level, name, number)

    def front_name(self, front: int) -> str:
        """Return `topic-partition` of a front."""
        return next((name for name, number in self.fronts.items() if number == front), f"front {front}")
