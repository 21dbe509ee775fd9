"""The service's view of its job, made each second, and what the control API shows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lowtide.core.fronts.floors import NO_TICK
from lowtide.events import EventLog
from lowtide.status.history import History
from lowtide.status.job_view import JobView
from lowtide.status.moment import JobShape, Moment
from lowtide.status.recent import Recent
from lowtide.status.teller import job_view
from lowtide.status.tracker_report import TrackerReport


class JobWatch:
    """The view of one life, recreated with each look: however many ask, it costs the service the same.

    Args:
        shape: The facts that stay the same during the life.
        events: The life's events.
        history: Of the lives before, to be continued; by default of none.
    """

    def __init__(self, shape: JobShape, events: EventLog, history: History | None = None) -> None:
        self.shape = shape
        self.events = events
        self.history = History() if history is None else history
        self._recent = Recent()
        self._tracker: TrackerReport | None = None
        self._view: JobView | None = None
        self._since: dict[tuple[str, str], int] = {}
        """By kind and name of a trouble that is found, since when."""
        self._late_minutes: dict[str, int] = {}
        """By step, the last minute for which an event has reported the first late record."""

    def look(self, at_s: float, moment: Moment) -> JobView:
        """Take what the service knows now; to be called each second, and when the phase changes.

        Args:
            at_s: A monotonic clock's time.
            moment: All that is known.
        """
        tracker = moment.tracker
        if tracker is not None:
            tracker = self._tracker = _as_known(tracker, self._tracker)
            moment = replace(moment, tracker=tracker)
        self._recent.look(at_s, moment.workers, None if tracker is None else tracker.global_min)
        self._log_late()
        view = job_view(self.shape, moment, self._recent, self.events.last, self._since)
        self._since = {(each.kind, each.name): each.since_ms for each in view.found}
        self._view = view
        self.history.look(self._view)
        return self._view

    def _log_late(self) -> None:
        """Write down the first late record of each minute of log time, for each step that has one."""
        for step, seen in self._recent.totals.late.items():
            if seen.minute > self._late_minutes.get(step, -1):
                self._late_minutes[step] = seen.minute
                self.events.event(
                    "records_late", step=step, first=seen.first, late_ms=seen.first_ms, late=seen.late, of=seen.records
                )

    def view(self) -> JobView | None:
        """Return the view as of the last look; None before the first."""
        return self._view

    def histograms(self) -> Mapping[str, Mapping[int, int]]:
        """Return all durations since the life began by name, as of the last look: bucket to records."""
        return self._recent.histograms

    def call_seconds(self) -> Mapping[str, Mapping[int, int]]:
        """Return the durations of calls since the life began by step, likewise."""
        return {step: seen.seconds for step, seen in self._recent.callers.items()}

    def delivery_seconds(self) -> Mapping[str, Mapping[int, int]]:
        """Return the durations of deliveries since the life began by store, likewise."""
        return self._recent.deliveries


def _as_known(report: TrackerReport, before: TrackerReport | None) -> TrackerReport:
    """Return the report, with the min times known before if its tracker is being rebuilt.

    Such a tracker reports those that the life began with, but no published time goes back.
    """
    if not report.missing:
        return report
    if before is None:
        return replace(report, min_times={}, global_min=NO_TICK)
    return replace(report, min_times=before.min_times, global_min=before.global_min)
