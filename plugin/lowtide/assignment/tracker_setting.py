"""What a tracker's process is told in the beginning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["TrackerSetting"]


@dataclass(frozen=True, slots=True)
class TrackerSetting:
    """What a tracker begins with.

    Attributes:
        incarnation: The life.
        graph: Every segment with what feeds it.
        fronts: Every registered front with its opening floor, a tick.
        start: The tick that all min times begin with.
        capacity_ticks: How far acks may lie ahead of min time.
    """

    incarnation: int
    graph: Mapping[int, Sequence[int]]
    fronts: Mapping[int, int]
    start: int
    capacity_ticks: int

    def to_json(self, fronts: Mapping[int, int]) -> dict[str, Any]:
        """Return it as JSON can carry it, with the fronts that are registered by now."""
        return {
            "incarnation": self.incarnation,
            "graph": [(segment, list(feeding)) for segment, feeding in self.graph.items()],
            "fronts": list(fronts.items()),
            "start": self.start,
            "capacity_ticks": self.capacity_ticks,
        }
