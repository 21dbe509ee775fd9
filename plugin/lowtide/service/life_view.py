"""Shows a life: events in the log, a view made each second, and the control API over both."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from lowtide.events import EventLog
from lowtide.service.life import Life
from lowtide.service.rooms import Rooms
from lowtide.service.standbys import HAND_OVER
from lowtide.service.workers.register import Register
from lowtide.status.certificate import certificate_of
from lowtide.status.control import Commands, Control, Queries
from lowtide.status.gauges import WorkerState
from lowtide.status.history import History
from lowtide.status.job_view import JobView, SnapshotsView, SnapshotView
from lowtide.status.job_watch import JobWatch
from lowtide.status.log_tail import LogTail, log_of
from lowtide.status.metrics import JobMetrics
from lowtide.status.moment import Moment
from lowtide.status.page import job_answer, snapshot_lines
from lowtide_snapshots.job.life import Life as LifeReport
from lowtide_snapshots.job.log_tail import last_lines
from lowtide_snapshots.page.answers import JobAnswer, LifeLine, SnapshotLine
from lowtide_snapshots.page.lives import life_lines

HALTED_MS = 3_000
"""The time for which min time stands before an event reports it, and later that it goes on."""


class LifeView:
    """The control API of one life; belongs to the service's event loop.

    Args:
        life: The life.
        events: Its events.
        register: Its workers.
        history: The history of the lives before; continues with this one.

    Raises:
        ConfError: the conf's certificate cannot be used.
    """

    def __init__(self, life: Life, events: EventLog, register: Register, history: History) -> None:
        self.address = ""
        """The control API's address, `host:port`."""
        self.stop_asked = False
        """Whether somebody has asked it to stop the job."""
        self._life = life
        self._register = register
        self._events = events
        self._halted = False
        self._ended_ms: int | None = None
        setting = life.setting
        self._watch = JobWatch(setting.shape, events, history)
        self._rooms = Rooms(_folders("" if setting.snapshots is None else setting.snapshots.store.url))
        watch, said = self._watch, setting.control
        metrics = JobMetrics(
            setting.shape.job, watch.view, watch.histograms, watch.call_seconds, watch.delivery_seconds
        )
        certificate = certificate_of(said.tls_cert, said.tls_key, said.host)
        self.certificate = certificate.pem
        """The control API's certificate, in PEM."""
        queries = Queries(
            self._watch.view,
            metrics.exposition,
            history.view,
            self._page,
            snapshots=lambda: [] if life.snapshots is None else life.snapshots.views(),
            look=None if setting.snapshots is None else life.questions.look,
            look_around=None if setting.snapshots is None else life.questions.look_around,
            ended=life.labels.ended_ms,
            log=_log,
        )
        commands = Commands(
            stop=self._stop,
            take=None if setting.snapshots is None else self._take,
            hand_over=self._hand_over,
        )
        self._control = Control(
            said.token,
            certificate,
            queries=queries,
            commands=commands,
            hub=life.hub,
            host=said.host,
            port=said.port,
        )

    def _stop(self) -> None:
        self.stop_asked = True
        os.kill(self._life.setting.driver_pid, signal.SIGTERM)

    def _take(self, name: str | None, commit: bool, key: str | None) -> SnapshotView:
        assert self._life.snapshots is not None, "the API begins after the life"
        return self._life.snapshots.begin(name, commit=commit, key=key)

    async def _hand_over(self) -> None:
        """Have the driver program stop for a standby to continue the job.

        Raises:
            NoStandby: none is ready.
            SnapshotsError: ZooKeeper does not answer.
        """
        await self._life.standbys.ready(self._life.setting.shape.job)
        os.kill(self._life.setting.driver_pid, HAND_OVER)

    async def _page(self, since_ms: int) -> JobAnswer | None:
        """Return what the page shows; None before the first look."""
        life, view = self._life, self._watch.view()
        if view is None:
            return None
        await life.records.refresh(time.monotonic())
        snapshots: list[SnapshotLine] = []
        if life.snapshots is not None:
            snapshots = snapshot_lines(life.records.commits, life.snapshots.commits.known, life.snapshots.views())
        history = self._watch.history.view(since_ms)
        return job_answer(view, history, snapshots, self._lives(view), now_ms=time.time_ns() // 1_000_000)

    def _lives(self, view: JobView) -> list[LifeLine]:
        """Return all lives, this one from what is known here: its report is stored only when it is ready and over."""
        lives = [each for each in self._life.records.lives if each.incarnation < view.incarnation]
        reported = next((each for each in self._life.records.lives if each.incarnation == view.incarnation), None)
        this = self._begun(view) if reported is None else reported
        running = self._register.runs or self._register.finished
        if not running and this.phase != "failed":
            this = replace(this, phase="failed", cause=view.cause, at=_iso(self._ended_ms))
        return life_lines(
            [*lives, this], running=view.incarnation if running else None, delivered_ms=view.delivered_time_ms
        )

    def _begun(self, view: JobView) -> LifeReport:
        snapshots = self._life.snapshots
        return LifeReport(
            incarnation=view.incarnation,
            phase="running",
            driver=self._life.setting.driver,
            since=_iso(view.started_ms),
            commit=None if snapshots is None else snapshots.base,
        )

    async def start(self) -> None:
        """Start listening.

        Raises:
            OSError: the port is taken, or the host is not this machine's.
        """
        self.address = await self._control.start()

    async def close(self) -> None:
        """Stop listening, and tell subscribers how the life ended."""
        self._life.hub.end(self._register.last_word)
        await self._control.close()

    def look(self, workers: Sequence[WorkerState]) -> None:
        """Make a new view; call it each second with all workers of the life."""
        life, register = self._life, self._register
        phase = "ended" if register.cause else "stopping" if register.finished else "running"
        if register.cause:
            life.hub.end(register.cause)
        self._rooms.look(time.monotonic())
        moment = Moment(
            now_ms=life.fronts.now_ms(),
            phase=phase,
            cause=register.cause,
            control=self.address,
            workers=workers,
            fronts=life.fronts.names(),
            idle_fronts=life.fronts.promised(),
            tracker=life.report,
            restarts=life.restarts,
            spare=life.reach.spare(),
            delivered_time=life.published,
            snapshots=SnapshotsView() if life.snapshots is None else life.snapshots.summary(time.monotonic()),
            troubles=life.troubles,
            chain=[] if life.jobs is None else life.jobs.chain,
            clock_jump_ms=life.fronts.clock_jump_ms,
            staged=life.carriers.moment(),
            unanswered=life.fronts.unanswered(),
            unread=life.fronts.unread(),
            open_transactions=life.fronts.open_transactions(),
            rooms=self._rooms.found,
            standbys=life.standbys.found,
        )
        view = self._watch.look(time.monotonic(), moment)
        if phase == "ended" and self._ended_ms is None:
            self._ended_ms = view.seen_ms
        halted = (view.lag_ms or 0) > HALTED_MS and (view.held_s or 0) * 1000 > HALTED_MS
        if halted != self._halted:
            self._halted = halted
            self._events.event("stalled" if halted else "resumed", holder=view.holder, lag_ms=view.lag_ms)


def _iso(time_ms: int | None) -> str:
    return "" if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _folders(snapshots: str) -> dict[str, Path]:
    """Return the folders that this machine writes to: that of the log, and that of the snapshots' address."""
    found = {}
    log = log_of(os.getppid())
    if log is not None:
        found["log"] = log.parent
    url = urlsplit(snapshots)
    if snapshots and url.scheme in ("", "file"):
        found["snapshots"] = Path(url.path).absolute()
    return found


def _log(count: int) -> LogTail | None:
    """Return the end of the job's log: all of its processes' lines go where Spark's JVM, this one's parent, writes."""
    file = log_of(os.getppid())
    return None if file is None else LogTail(socket.gethostname(), str(file), last_lines(file, count))
