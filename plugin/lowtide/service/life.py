"""One life in the service, besides its register of workers: tracker, fronts, snapshots.

It belongs to the service's event loop; what may block runs in threads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from lowtide.assignment.messages import Looked, Reached, WorkerNews, WorkerOrder
from lowtide.assignment.setting import LifeSetting
from lowtide.assignment.welcome import Welcome
from lowtide.events import EventLog
from lowtide.service.fronts.idle_fronts import SERVICE_WORKER
from lowtide.service.fronts.reach import Reach
from lowtide.service.fronts.source_fronts import SourceFronts
from lowtide.service.records import Records
from lowtide.service.snapshots.coordinator import Coordinator
from lowtide.service.snapshots.floor_tidier import FloorTidier
from lowtide.service.snapshots.participants import LifeParticipants
from lowtide.service.store_thread import StoreThread
from lowtide.service.tracker.messages import TrackerSetting
from lowtide.service.tracker.process import TrackerProcess
from lowtide.service.tracker.stall import Stall
from lowtide.service.workers.crew import Crew
from lowtide.service.workers.questions import Questions
from lowtide.service.workers.register import Register
from lowtide.service.workers.silence import Silence
from lowtide.status.gauges import WorkerState
from lowtide.status.teller import delivered_time
from lowtide.status.tracker_report import TrackerReport
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.commits.log import Commit, ZooKeeperCommitLog
from lowtide_snapshots.errors import Fenced, SnapshotsError, ZooKeeperUnavailable
from lowtide_snapshots.job.life import Life as LifeReport

__all__ = ["Life"]

LOG = logging.getLogger(__name__)


class Life:
    """One life of a job, as its service sees it.

    Args:
        setting: What the driver program said.
        secret: The job's.
        host: Where the tracker listens.
        register: The life's workers.
        events: Told what happens.
        on_end: Called with the cause when the life cannot go on.
        tell_worker: Sends a message to a worker, by name; one that is not there is left out.
    """

    def __init__(
        self,
        setting: LifeSetting,
        *,
        secret: bytes,
        host: str,
        register: Register,
        events: EventLog,
        on_end: Callable[[Cause], None],
        tell_worker: Callable[[str, WorkerOrder], None],
    ) -> None:
        self.setting = setting
        self.told = setting.told
        """The delivered time, a tick, that the outside may hear: it is stored (R18)."""
        self.restarts = 0
        """How often the tracker was restarted."""
        self._secret = secret
        self._events = events
        self._on_end = on_end
        self._telling: asyncio.Task[None] | None = None
        self._stall = Stall(setting.stall_limit_ms / 1000)
        self._silence = Silence(setting.silent_limit_s)
        self._crew = Crew(register, tell_worker, (setting.levels - 1) * setting.parallelism)
        self._place = StoreThread(setting.zookeeper.store(setting.job), events)
        self._commits = StoreThread(setting.zookeeper.store(setting.job))
        """For commits alone: their manifests are read meanwhile, from a store that may be slow."""
        self.fronts = SourceFronts(
            setting,
            secret=secret,
            ask=self._place.ask,
            store=self._place.store,
            told=lambda: self.told,
            events=events,
            on_end=on_end,
            crew=self._crew,
        )
        self.reach = Reach(setting.kafka, lambda: None if self.snapshots is None else self.snapshots.commits.last)
        self.snapshots: Coordinator | None = None
        """None where no snapshots are taken."""
        self.records = Records(self._read_records)
        self.questions = Questions(self._crew, setting.shape.slack_ms)
        self._tidier: FloorTidier | None = None
        if setting.snapshots is not None and setting.keeps_lasts:
            generation = setting.snapshots.generation
            self._tidier = FloorTidier(
                setting.kafka, setting.job, incarnation=setting.incarnation, generation=generation, events=events
            )
        self._address = ""
        openings = self.fronts.openings
        self._tracker = TrackerProcess(
            TrackerSetting(
                setting.incarnation,
                setting.graph,
                dict(openings),
                setting.start,
                setting.capacity_ticks,
                setting.dues,
            ),
            secret,
            host=host,
            workers=lambda: [*register.hosts(), SERVICE_WORKER],
            fronts=lambda: openings,
            on_fault=on_end,
            on_restart=self._restarted,
        )

    async def start(self) -> None:
        """Start all of it.

        Raises:
            LowtideError: what could not be started; nothing is left running.
        """
        try:
            await self._place.open()
            self._address = await self._tracker.start()
            self.fronts.start(self._address)
            if self.setting.snapshots is not None:
                await self._commits.open()
                participants = LifeParticipants(self._crew, self.fronts, self._tracker, self._tidier)
                self.snapshots = Coordinator(
                    self.setting.snapshots,
                    incarnation=self.setting.incarnation,
                    start=self.setting.start,
                    log=ZooKeeperCommitLog(self._commits.store),
                    ask=self._commits.ask,
                    participants=participants,
                    events=self._events,
                )
                await self.snapshots.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End all of it."""
        await self.records.close()
        if self.snapshots is not None:
            await self.snapshots.close()
        if self._tidier is not None:
            await self._tidier.close()
        await self.reach.close()
        await self.fronts.close()
        await self._tracker.close()
        if self._telling is not None:
            await asyncio.wait([self._telling])
        await self._commits.close()
        await self._place.close()

    @property
    def troubles(self) -> list[str]:
        """What is wrong though the life goes on, each with the time since when."""
        found = [] if self.snapshots is None else [self.snapshots.trouble]
        return [each for each in (self._place.away, self.fronts.trouble, self.reach.trouble, *found) if each]

    @property
    def report(self) -> TrackerReport | None:
        """The tracker's newest report."""
        return self._tracker.report

    async def welcome(self, worker: str) -> Welcome:
        """What a worker begins with; at level 0 it speaks for its front from now on.

        Raises:
            LifeEnded: the front cannot be handed over.
        """
        front = await self.fronts.hand_over(worker) if worker.startswith("0/") else None
        return Welcome(tracker=self._address, now_ms=self.fronts.now_ms(), fronts=self.fronts.names(), front=front)

    def hear(self, worker: str, news: WorkerNews) -> None:
        """Take what a worker reports of its front, of a snapshot or of a key that was asked for."""
        if isinstance(news, Looked):
            self.questions.hear(worker, news)
        elif isinstance(news, Reached):
            self.fronts.heard_from(worker, news)
        elif self.snapshots is not None:
            self.snapshots.hear(worker, news)

    async def current(self, worker: str) -> str:
        """Return why this life is not the job's newest any more; empty if it is, and then the worker may deliver (W10).

        ZooKeeper is asked.
        """
        while True:
            try:
                await self._place.ask(self._place.store.check, self.setting.incarnation)
                break
            except ZooKeeperUnavailable as error:
                LOG.warning("whether this life is the job's newest is asked again: %s", error)
            except SnapshotsError as error:
                return str(error)
        self._events.event("sink_claimed", worker=worker)
        return ""

    def look(self, workers: Sequence[WorkerState]) -> None:
        """Each second: see whether min time stands for no reason, and store what may be told of delivered time."""
        report = self.report
        if report is None:
            return
        self._tracker.end_if_silent()
        self.fronts.look(time.monotonic())
        now_s = time.monotonic()
        stalled = self._stall.look(report, workers, now_s) or self._stall.unread(self.fronts.unread(), workers, now_s)
        stalled = stalled or self._silence.look(workers, now_s)
        if stalled:
            self._on_end(stalled)
        if self.snapshots is not None:
            self.snapshots.look(time.monotonic())
        self.reach.look(time.monotonic())
        delivered = delivered_time(workers, self._crew.expected)
        telling = self._telling is not None and not self._telling.done()
        if not self.setting.keeps_lasts or delivered is None or telling:
            return
        if delivered > max(self.setting.start, self.told if self.told is not None else self.setting.start):
            self._telling = asyncio.get_running_loop().create_task(self._tell(delivered))

    async def _tell(self, tick: int) -> None:
        """Store a delivered time, then let it be told (R18)."""
        try:
            await self._place.ask(self._place.store.tell, self.setting.incarnation, tick)
        except Fenced as error:
            self._on_end(error.cause())
        except SnapshotsError as error:
            LOG.warning("the delivered time could not be stored, and is not told: %s", error)
        else:
            self.told = tick

    async def _read_records(self) -> tuple[list[LifeReport], list[Commit]]:
        """All lives and commits of the job (errors: SnapshotsError)."""
        # What workers wait for goes by the other one.
        thread = self._place if self.setting.snapshots is None else self._commits
        log = ZooKeeperCommitLog(thread.store)
        lives, commits = await thread.ask(lambda: (thread.store.lives(), log.commits()))
        return [LifeReport.of(node) for node in lives], commits

    def _restarted(self, era: int, how: str) -> None:
        self.restarts += 1
        if self.snapshots is not None:
            self.snapshots.tracker_restarted()
        self._events.event("tracker_restarted", era=era, how=how)
