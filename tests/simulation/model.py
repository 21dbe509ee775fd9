"""What is really in flight, and so what min time may be: the definition, followed word for word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .verdict import Violation


class Model:
    """Min time of a segment passes nothing that is in flight in it, or in a segment from which it can be reached.

    Attributes:
        open: By segment: tick -> how many frames, held records and the like there are.
        labels: By segment: front that feeds it -> the least tick that it may still label.
    """

    def __init__(self, inbound: Mapping[int, Iterable[int]]) -> None:
        self.above = {s: {s} for s in inbound}
        for _ in inbound:
            self.above = {s: self.above[s].union(*(self.above[u] for u in inbound[s])) for s in inbound}
        self.open: dict[int, dict[int, int]] = {s: {} for s in inbound}
        self.labels: dict[int, dict[int, int]] = {s: {} for s in inbound}

    def least(self) -> dict[int, int | None]:
        """Per segment the largest min time that would be right; None where nothing bounds it."""
        own = {s: min([*self.open[s], *self.labels[s].values()], default=None) for s in self.open}
        return {
            s: min([t for u in above if (t := own[u]) is not None], default=None) for s, above in self.above.items()
        }

    def check(self, announced: Mapping[int, int]) -> None:
        """Safety: nothing that is in flight has been passed."""
        for segment, least in self.least().items():
            if least is not None and announced[segment] > least:
                raise Violation(
                    "safety", f"segment {segment} is at min time {announced[segment]}, tick {least} is open"
                )

    # -- what happens ----------------------------------------------------------------------------------------------

    def add(self, segment: int, ticks: Iterable[int]) -> None:
        """Something is in flight at these ticks."""
        known = self.open[segment]
        for tick in ticks:
            known[tick] = known.get(tick, 0) + 1

    def remove(self, segment: int, ticks: Iterable[int]) -> None:
        """It has arrived, and all that it caused has been added."""
        known = self.open[segment]
        for tick in ticks:
            known[tick] -= 1
            if not known[tick]:
                del known[tick]

    def label(self, front: int, tick: int, feeds: Iterable[int]) -> None:
        """A front may still label this tick."""
        for segment in feeds:
            self.labels[segment][front] = tick

    def close(self, front: int) -> None:
        """A front labels nothing any more."""
        for labels in self.labels.values():
            labels.pop(front, None)
