"""A control API as a service runs it: a real server in an event loop of its own, with a view that the test gives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lowtide.events import EventLog
from lowtide.service.control import Control
from lowtide.service.job_watch import JobWatch
from lowtide.service.metrics import JobMetrics
from lowtide.service.moment import JobShape

TOKEN = "a token of a test"


@dataclass
class ControlledJob:
    """What stands behind a control API."""

    watch: JobWatch
    address: str = ""
    stops: list[str] = field(default_factory=list)
    broken: bool = False

    def metrics(self, accept: str) -> tuple[bytes, str]:
        assert not self.broken, "the test breaks it"
        return JobMetrics(self.watch.view, self.watch.histograms).exposition(accept)


@contextmanager
def controlled(shape: JobShape, events: EventLog) -> Iterator[ControlledJob]:
    """Serve the control API of a job of this shape until the block ends."""
    job = ControlledJob(JobWatch(shape, events))
    control = Control(job.watch.view, TOKEN, metrics=job.metrics, stop=lambda: job.stops.append("stop"))
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
