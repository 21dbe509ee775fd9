"""What the service looks at each second, and what the control API shows of it."""

from __future__ import annotations

from collections.abc import Mapping

from lowtide.events import EventLog
from lowtide.service.job_view import JobView
from lowtide.service.moment import JobShape, Moment
from lowtide.service.recent import Recent
from lowtide.service.teller import job_view

__all__ = ["JobWatch"]


class JobWatch:
    """The view of one life, made anew with each look: however many ask, it costs the service the same.

    Args:
        shape: What stays the same as long as the life goes on.
        events: The life's events.
    """

    def __init__(self, shape: JobShape, events: EventLog) -> None:
        self.shape = shape
        self.events = events
        self._recent = Recent()
        self._view: JobView | None = None

    def look(self, at_s: float, moment: Moment) -> JobView:
        """Take what the service knows now; to be called each second, and when the phase changes.

        Args:
            at_s: A monotonic clock's time.
            moment: All that is known.
        """
        self._recent.look(at_s, moment.workers, moment.tracker.global_min)
        self._view = job_view(self.shape, moment, self._recent, self.events.last)
        return self._view

    def view(self) -> JobView | None:
        """Return the view as of the last look; None before the first."""
        return self._view

    def histograms(self) -> Mapping[str, Mapping[int, int]]:
        """Return all durations since the life began by name, as of the last look: bucket to records."""
        return self._recent.histograms
