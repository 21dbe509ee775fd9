"""The traces of a simulated job: they see every worker's records, and change nothing. Their time is a count."""

from __future__ import annotations

from lowtide.flow.plan.plan import Plan
from lowtide.worker.exporting import Span
from lowtide.worker.traces import Sampling, Traces

from .verdict import Violation


class Tracing:
    """Takes the spans of all lives, and looks at each.

    Args:
        ratio: The share of records that are traced.

    Attributes:
        spans: How many there were.
    """

    def __init__(self, ratio: float) -> None:
        self.spans = 0
        self._sampling = Sampling("simulated", ratio)
        self._now_ns = 10**15
        self._ids: set[tuple[int, int]] = set()

    def watch(self, plan: Plan, level: int, place: int, worker: int, life: int) -> Traces:
        """What watches a worker; those of level 0 have no place of their own."""
        name = f"{level}/{place if level else worker}"
        return Traces(plan, name, level, life, self._sampling, self._take, self.tick)

    def tick(self) -> int:
        """The time."""
        self._now_ns += 1
        return self._now_ns

    def _take(self, span: Span) -> None:
        self.spans += 1
        if span.start_ns > span.end_ns:
            raise Violation("safety", f"{span} ends before it begins")
        if (span.trace, span.id) in self._ids:
            raise Violation("safety", f"{span} has been there before")
        self._ids.add((span.trace, span.id))

    def check_over(self, watching: list[Traces]) -> None:
        """See that nothing is kept of records that have left."""
        for number, traces in enumerate(watching):
            if traces._here or traces._delivering:
                raise Violation("liveness", f"worker {number} keeps spans of {traces._here}, {traces._delivering}")
