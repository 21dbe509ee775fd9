"""A control API as a service runs it: a real server in an event loop of its own, with a view that the test gives."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hanging import HANGS_S

from lowtide.events import EventLog
from lowtide.status.certificate import made_certificate
from lowtide.status.control import Commands, Control, Queries
from lowtide.status.control_client import ControlClient
from lowtide.status.job_view import SnapshotView
from lowtide.status.job_watch import JobWatch
from lowtide.status.log_tail import LogTail
from lowtide.status.metrics import JobMetrics
from lowtide.status.moment import JobShape, Moment
from lowtide.status.page import job_answer
from lowtide.status.subscriptions import Hub
from lowtide_snapshots.job.control_address import ControlAddress, fingerprint
from lowtide_snapshots.job.log_tail import last_lines
from lowtide_snapshots.page.answers import JobAnswer, LifeLine, SnapshotLine

TOKEN = "a-token-of-a-test"


@dataclass
class ControlledJob:
    """The job that a control API serves.

    Attributes:
        name: Its name.
        at: Where it is, as its life publishes it.
        certificate: What it shows, in PEM.
        taking: What is answered of the snapshot that is asked for, one answer after the other; the last one stays.
        asked: The names of the snapshots that were asked for, and whether they were to be committed.
        lines: What the page shows of the job's snapshots.
        lives: Likewise of its lives.
    """

    name: str
    watch: JobWatch
    hub: Hub
    at: ControlAddress = field(default_factory=lambda: ControlAddress("", 0, "", "", ""))
    certificate: str = ""
    stops: list[str] = field(default_factory=list)
    broken: bool = False
    taking: list[SnapshotView] = field(default_factory=list)
    asked: list[tuple[str | None, bool]] = field(default_factory=list)
    lines: list[SnapshotLine] = field(default_factory=list)
    lives: list[LifeLine] = field(default_factory=list)
    handing_over: Callable[[], None] = lambda: None
    """Called where it is to be handed over; may raise."""
    ended: dict[tuple[str, str], int] = field(default_factory=dict)
    """By step and label when it has ended."""
    states: dict[str, int] = field(default_factory=dict)
    """By user."""
    questions: list[object] = field(default_factory=list)
    """What was asked of them."""
    log_file: Path | None = None
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    @property
    def address(self) -> str:
        """Host and port."""
        return self.at.address

    def look(self, now_s: float, moment: Moment) -> None:
        """Have the service look at a moment, in its own thread, as it does each second."""

        async def looked() -> None:
            self.watch.look(now_s, moment)

        asyncio.run_coroutine_threadsafe(looked(), self.loop).result(30)

    def tell(self, change: Callable[[Hub], None]) -> None:
        """Have the service tell its hub something, in its own thread."""

        async def tell() -> None:
            change(self.hub)

        asyncio.run_coroutine_threadsafe(tell(), self.loop).result(30)

    def client(self, token: str = TOKEN) -> ControlClient:
        """The API, asked with this token; the address is one that was published with it."""
        at = self.at
        proved = ControlAddress.proved(
            token, job=at.job, incarnation=at.incarnation, address=at.address, certificate=at.certificate
        )
        return ControlClient(proved, token)

    def metrics(self, accept: str) -> tuple[bytes, str]:
        assert not self.broken, "the test breaks it"
        return JobMetrics(
            self.name, self.watch.view, self.watch.histograms, self.watch.call_seconds, self.watch.delivery_seconds
        ).exposition(accept)

    async def page(self, since_ms: int) -> JobAnswer | None:
        view = self.watch.view()
        if view is None:
            return None
        history = self.watch.history.view(since_ms)
        return job_answer(view, history, self.lines, self.lives, now_ms=time.time_ns() // 1_000_000)

    def take(self, name: str | None, commit: bool, key: str | None) -> SnapshotView:
        self.asked.append((name, commit))
        return self.taking[0]

    async def hand_over(self) -> None:
        self.handing_over()
        self.stops.append("hand over")

    async def look_at(self, _step: str, keys: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
        """Answer for the keys of `states`."""
        self.questions.append(keys)
        names = ["".join(key.values()) for key in keys]
        return [
            {"key": key, "min_time_ms": 4000, "rows": self._rows(name)} for key, name in zip(keys, names, strict=True)
        ]

    async def look_around(self, _step: str, unit: int | None, limit: int) -> dict[str, Any]:
        """Answer with the first of `states`."""
        self.questions.append((unit, limit))
        found = [{"rows": self._rows(name)} for name in list(self.states)[:limit]]
        return {"min_time_ms": 4000, "more": len(self.states) > limit, "keys": found}

    def _rows(self, name: str) -> list[dict[str, Any]]:
        return [{"key": {"user": name}, "state": self.states[name]}] if name in self.states else []

    def log(self, count: int) -> LogTail | None:
        file = self.log_file
        return None if file is None else LogTail("host-1", str(file), last_lines(file, count))

    async def ended_ms(self, step: str, label: str) -> int | None:
        return self.ended.get((step, label))

    def snapshots(self) -> list[SnapshotView]:
        return [self.taking.pop(0) if len(self.taking) > 1 else self.taking[0]] if self.taking else []


def hub_of(shape: JobShape) -> Hub:
    """A hub of a job that began with nothing."""
    return Hub(
        incarnation=shape.incarnation,
        slack_ms=shape.slack_ms,
        start_ms=None,
        segments=shape.segments,
        labels=shape.labels,
    )


@contextmanager
def controlled(shape: JobShape, events: EventLog) -> Iterator[ControlledJob]:
    """Serve the control API of a job of this shape until the block ends."""
    certificate = made_certificate("127.0.0.1")
    job = ControlledJob(shape.job, JobWatch(shape, events), hub_of(shape), certificate=certificate.pem)
    control = Control(
        TOKEN,
        certificate,
        queries=Queries(
            job.watch.view,
            job.metrics,
            job.watch.history.view,
            job.page,
            job.snapshots,
            look=job.look_at,
            look_around=job.look_around,
            ended=job.ended_ms,
            log=job.log,
        ),
        commands=Commands(stop=lambda: job.stops.append("stop"), take=job.take, hand_over=job.hand_over),
        hub=job.hub,
    )
    loop = job.loop
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        address = asyncio.run_coroutine_threadsafe(control.start(), loop).result(HANGS_S)
        shown = fingerprint(ssl.PEM_cert_to_DER_cert(certificate.pem))
        job.at = ControlAddress.proved(
            TOKEN, job=shape.job, incarnation=shape.incarnation, address=address, certificate=shown
        )
        yield job
    finally:
        asyncio.run_coroutine_threadsafe(control.close(), loop).result(HANGS_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(HANGS_S)
        loop.close()
