"""Reports on a job while it runs: its figures, and outages of Kafka."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from lowtide.driver.job import Job
from lowtide.errors import LifeEnded
from lowtide.jobs.figures import Figures
from lowtide.jobs.log import Log
from lowtide.jobs.progress import Progress

LOOK_EVERY_S = 1.0
OUTAGE_AFTER_S = 3.0


class Reporter:
    """Looks at a job now and then, and tells how it goes."""

    def __init__(self, progress: Progress, log: Log, kafka: str, note: Callable[[str], None]) -> None:
        """Set up where to report.

        Args:
            progress: The console.
            log: The job's log, which is kept within its limit.
            kafka: Where the brokers are, for people.
            note: Called with what the job waits for, for its state; empty when it continues.
        """
        self._progress = progress
        self._log = log
        self._kafka = kafka
        self._note = note
        self._outage = False
        self._due_s = 0.0

    def look(self, job: Job, now_s: float) -> None:
        """Tell how it goes, if the last time was long enough ago; `now_s` is a monotonic clock's."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + LOOK_EVERY_S
        self._log.limit()
        self._report_outage(job.outage_s)
        if self._progress.live:
            with suppress(LifeEnded):  # The cause is known in a moment, and says more.
                self._progress.figures(Figures.of(job.state()))

    def _report_outage(self, outage_s: float) -> None:
        """Say when Kafka has gone and when it is back; in between the job waits."""
        if outage_s >= OUTAGE_AFTER_S and not self._outage:
            self._outage = True
            what = f"no Kafka broker answers at {self._kafka}; the job waits"
            self._note(what)
            self._progress.say(what)
        elif outage_s == 0 and self._outage:
            self._outage = False
            self._note("")
            self._progress.say("a Kafka broker answers again")
