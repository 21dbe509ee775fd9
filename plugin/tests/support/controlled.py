"""A control API as a service runs it: a real server in an event loop of its own, with a view that the test gives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lowtide.events import EventLog
from lowtide.service.control import Control
from lowtide.service.job_view import SnapshotView
from lowtide.service.job_watch import JobWatch
from lowtide.service.metrics import JobMetrics
from lowtide.service.moment import JobShape

TOKEN = "a token of a test"


@dataclass
class ControlledJob:
    """What stands behind a control API.

    Attributes:
        taking: What is answered of the snapshot that is asked for, one answer after the other; the last one stays.
        asked: The names of the snapshots that were asked for, and whether they were to be committed.
    """

    watch: JobWatch
    address: str = ""
    stops: list[str] = field(default_factory=list)
    broken: bool = False
    taking: list[SnapshotView] = field(default_factory=list)
    asked: list[tuple[str | None, bool]] = field(default_factory=list)

    def metrics(self, accept: str) -> tuple[bytes, str]:
        assert not self.broken, "the test breaks it"
        return JobMetrics(self.watch.view, self.watch.histograms).exposition(accept)

    def take(self, name: str | None, commit: bool, key: str | None) -> SnapshotView:
        self.asked.append((name, commit))
        return self.taking[0]

    def snapshots(self) -> list[SnapshotView]:
        return [self.taking.pop(0) if len(self.taking) > 1 else self.taking[0]] if self.taking else []


@contextmanager
def controlled(shape: JobShape, events: EventLog) -> Iterator[ControlledJob]:
    """Serve the control API of a job of this shape until the block ends."""
    job = ControlledJob(JobWatch(shape, events))
    control = Control(
        job.watch.view,
        TOKEN,
        metrics=job.metrics,
        history=job.watch.history.view,
        stop=lambda: job.stops.append("stop"),
        take=job.take,
        snapshots=job.snapshots,
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        job.address = asyncio.run_coroutine_threadsafe(control.start(), loop).result(10)
        yield job
    finally:
        asyncio.run_coroutine_threadsafe(control.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
