"""The rebuilding of a tracker whose process died, from what every worker knows (R10)."""

from collections.abc import Iterable

from lowtide_tracker.errors import FlushGap, UnknownWorker
from lowtide_tracker.messages import Absolute, Flush


class Rebuild:
    """Collects one `Absolute` of every worker, and the flushes that follow until the last has come.

    Nothing is applied before all have reported: a table that lacks one worker's sums shows zeros that are none.
    """

    def __init__(self, workers: Iterable[int]) -> None:
        self.workers = tuple(sorted(set(workers)))
        self.reports: dict[int, Absolute] = {}
        self.flushes: list[Flush] = []
        """Those that came after their worker's report, in the order they came."""
        self._numbers: dict[int, int] = {}

    @property
    def missing(self) -> tuple[int, ...]:
        """The workers that have not reported."""
        return tuple(worker for worker in self.workers if worker not in self.reports)

    def number(self, worker: int) -> int:
        """The last flush that a worker's report, or what it sent after it, covers; 0 before it has reported."""
        return self._numbers.get(worker, 0)

    def report(self, report: Absolute) -> None:
        """Take a worker's report; a second one is ignored, as what follows the first is kept."""
        if report.worker not in self.workers:
            raise UnknownWorker(report.worker, self.workers)
        if report.worker not in self.reports:
            self.reports[report.worker] = report
            self._numbers[report.worker] = report.number

    def follow(self, flush: Flush) -> None:
        """Take a flush that follows its worker's report."""
        if flush.worker not in self.workers:
            raise UnknownWorker(flush.worker, self.workers)
        number = self.number(flush.worker)
        if flush.worker not in self.reports or flush.number > number + 1:
            raise FlushGap(flush.worker, flush.number, number + 1)
        if flush.number == number + 1:
            self.flushes.append(flush)
            self._numbers[flush.worker] = flush.number

    def min_times(self) -> dict[int, int]:
        """The largest min time of each segment that any worker has received.

        Below it every sum is zero over all workers, but not in the reports: workers have received it at different
        times, and drop what is below when they do.
        """
        heard: dict[int, int] = {}
        for report in self.reports.values():
            for segment, tick in report.min_times:
                heard[segment] = max(tick, heard.get(segment, tick))
        return heard
