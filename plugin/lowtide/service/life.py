"""One life in the service, besides its register of workers: tracker, fronts, snapshots.

It belongs to the service's event loop; what may block runs in threads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from lowtide.assignment.messages import Delivered, LabelsEnded, Listened, Looked, Reached, WorkerNews, WorkerOrder
from lowtide.assignment.setting import LifeSetting
from lowtide.assignment.welcome import Welcome
from lowtide.events import EventLog
from lowtide.service.ending import EndOfTime
from lowtide.service.fronts.idle_fronts import SERVICE_WORKER
from lowtide.service.fronts.large_ticks import LargeTicks
from lowtide.service.fronts.reach import Reach
from lowtide.service.fronts.source_fronts import SourceFronts
from lowtide.service.graph.line import GraphLine
from lowtide.service.records import Records
from lowtide.service.snapshots.coordinator import Coordinator
from lowtide.service.snapshots.floor_tidier import FloorTidier
from lowtide.service.snapshots.participants import LifeParticipants
from lowtide.service.store_thread import StoreThread
from lowtide.service.tracker.messages import TrackerSetting
from lowtide.service.tracker.process import TrackerProcess
from lowtide.service.tracker.sharded import LifeTracker, ShardedTracker
from lowtide.service.tracker.stall import Stall
from lowtide.service.workers.crew import Crew
from lowtide.service.workers.ended_labels import EndedLabels
from lowtide.service.workers.questions import Questions
from lowtide.service.workers.register import Register
from lowtide.service.workers.silence import Silence
from lowtide.status.gauges import WorkerState
from lowtide.status.subscriptions import Hub
from lowtide.status.teller import delivered_time
from lowtide.status.tracker_report import TrackerReport
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.commits.log import Commit, ZooKeeperCommitLog
from lowtide_snapshots.errors import Fenced, SnapshotsError, ZooKeeperUnavailable
from lowtide_snapshots.job.life import Life as LifeReport
from lowtide_snapshots.job.news import DELIVERED

__all__ = ["Life"]

LOG = logging.getLogger(__name__)
COMMITS_AGAIN_S = 0.5
LISTENED_S = 3.0
"""Seconds for which workers assume a listener; the service renews them each second."""


class Life:
    """One life of a job, as its service sees it.

    Args:
        setting: The driver program's setting.
        secret: The job's secret.
        host: The host on which the tracker listens.
        register: The life's workers.
        events: Receives events.
        on_end: Called with the cause when the life cannot go on.
        tell_worker: Sends a message to a worker, by name; does nothing if it is not connected.
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
        """The published delivered time, a tick: it is stored (R18)."""
        self.told_again = setting.told_again
        """The same for this output generation: smaller while earlier deliveries are repeated."""
        shape = setting.shape
        self.hub = Hub(
            incarnation=setting.incarnation,
            slack_ms=shape.slack_ms,
            start_ms=setting.start * shape.slack_ms if setting.start > 0 else None,
            segments=shape.segments,
            labels=shape.labels,
        )
        """The news for subscribers."""
        if self.told is not None:
            self.hub.reached(DELIVERED, self.told)
        self.hub.on_listener = self._listen
        self._reading: asyncio.Task[None] | None = None
        self._reading_again = False
        self._closing = False
        self.restarts = 0
        """The number of restarts of the tracker."""
        self._slack_ms = setting.shape.slack_ms
        self._secret = secret
        self._events = events
        self._on_end = on_end
        self._telling: asyncio.Task[None] | None = None
        self._delivered: int | None = None
        """The newest delivered time that may be stored."""
        self._stall = Stall(setting.stall_limit_ms / 1000)
        self._silence = Silence(setting.silent_limit_s)
        self._large_ticks = LargeTicks()
        self._crew = Crew(register, tell_worker, (setting.levels - 1) * setting.parallelism)
        self._place = StoreThread(setting.zookeeper.store(setting.job), events)
        self._commits = StoreThread(setting.zookeeper.store(setting.job))
        """For commits only: their manifests are read meanwhile, from a store that may be slow."""
        self.jobs: GraphLine | None = None
        """Its place among other jobs; None for a job by itself."""
        if setting.jobs is not None:
            self.jobs = GraphLine(setting.jobs, job=setting.job, life=setting.incarnation, on_refused=on_end)
        self.fronts = SourceFronts(
            setting,
            secret=secret,
            ask=self._place.ask,
            store=self._place.store,
            told=lambda: self.told,
            events=events,
            on_end=on_end,
            crew=self._crew,
            promises=lambda: {} if self.jobs is None else self.jobs.promises,
        )
        self.reach = Reach(setting.kafka, lambda: None if self.snapshots is None else self.snapshots.commits.last)
        self.snapshots: Coordinator | None = None
        """The coordinator; None if no snapshots are taken."""
        self.end = EndOfTime(
            setting.shape.slack_ms, lambda: self.snapshots, takes=setting.snapshots is not None, events=events
        )
        self.records = Records(self._read_records)
        self.labels = EndedLabels(self._crew, self.hub, lambda: self.told, setting.shape.slack_ms)
        self.questions = Questions(self._crew, setting.shape.slack_ms)
        self._tidier: FloorTidier | None = None
        if setting.snapshots is not None and setting.keeps_lasts:
            generation = setting.snapshots.generation
            self._tidier = FloorTidier(
                setting.kafka, setting.job, incarnation=setting.incarnation, generation=generation, events=events
            )
        self._address = ""
        self._tracker = self._make_tracker(host, register)

    async def start(self) -> None:
        """Start all of it.

        Raises:
            LowtideError: what could not be started; nothing is left running.
        """
        try:
            await self._place.open()
            self._address = await self._tracker.start()
            if self.jobs is not None:
                self.jobs.start()
            self.fronts.start(self._address, self._tracker.shards)
            if self.setting.snapshots is not None:
                await self._commits.open()
                participants = LifeParticipants(self._crew, self.fronts, self._tracker, self._tidier)
                lives = await self._commits.ask(self._commits.store.lives)
                self.snapshots = Coordinator(
                    self.setting.snapshots,
                    incarnation=self.setting.incarnation,
                    start=self.setting.start,
                    log=ZooKeeperCommitLog(self._commits.store),
                    ask=self._commits.ask,
                    participants=participants,
                    events=self._events,
                    since=LifeReport.of(lives[0]).since if lives else None,
                    on_commit=self._read_commits_soon,
                )
                await self.snapshots.start()
                # Before the first subscriber comes: it may need to learn that commits were dropped.
                self.hub.committed(await self._commits.ask(ZooKeeperCommitLog(self._commits.store).commits))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End all of it."""
        self._closing = True
        await self.labels.close()
        await self.records.close()
        if self._reading is not None:
            await asyncio.wait([self._reading])
        if self.jobs is not None:
            await self.jobs.close()
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
        """Return the faults that do not stop the life, each with the time since when."""
        found = [] if self.snapshots is None else [self.snapshots.trouble]
        found += [] if self.jobs is None else [self.jobs.trouble]
        found += [*self._tracker.troubles, self._large_ticks.trouble]
        return [each for each in (self._place.away, self.fronts.trouble, self.reach.trouble, *found) if each]

    @property
    def report(self) -> TrackerReport | None:
        """The tracker's newest report."""
        return self._tracker.report

    async def welcome(self, worker: str) -> Welcome:
        """Return a worker's welcome; at level 0 it acts for its front from now on.

        Raises:
            LifeEnded: the front cannot be handed over.
        """
        front = await self.fronts.hand_over(worker) if worker.startswith("0/") else None
        return Welcome(
            tracker=self._address,
            now_ms=self.fronts.now_ms(),
            fronts=self.fronts.names(),
            front=front,
            shards=self._tracker.shards,
        )

    def hear(self, worker: str, news: WorkerNews) -> None:
        """Take a worker's report of its front, of a snapshot or of a requested key."""
        if isinstance(news, Looked):
            self.questions.hear(worker, news)
        elif isinstance(news, LabelsEnded):
            self.labels.hear(worker, news)
        elif isinstance(news, Reached):
            self.fronts.heard_from(worker, news)
        elif self.snapshots is not None and not isinstance(news, Delivered):
            self.snapshots.hear(worker, news)

    async def current(self, worker: str) -> str:
        """Return why this life is no longer the job's newest; empty if it is, and then the worker may deliver (W10).

        It asks ZooKeeper.
        """
        while True:
            try:
                await self._place.ask(self._place.store.check, self.setting.incarnation)
                break
            except ZooKeeperUnavailable as error:
                LOG.warning("retrying the check that this life is still the newest: %s", error)
            except SnapshotsError as error:
                return str(error)
        self._events.event("sink_claimed", worker=worker)
        return ""

    def look(self, workers: Sequence[WorkerState]) -> None:
        """Check for stalls of min time, and store delivered time for publication; call it each second."""
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
        if self._large_ticks.look(workers, self.fronts.names()):
            self._events.event("ticks_too_large", why=self._large_ticks.trouble)
        if self.snapshots is not None:
            self.snapshots.look(time.monotonic(), report.global_min)
        self.reach.look(time.monotonic())
        delivered = delivered_time(workers, self._crew.expected)
        if self.end.has_come(delivered) and not self.labels.all_told():
            return  # Labels that subscribers wait for are published before the job ends itself.
        self.labels.soon()
        self._listen()
        if self.end.look(delivered, time.monotonic()):
            return
        if self.jobs is not None:
            self._say(self.jobs, report)
        self._store_delivered(delivered)

    def look_at_delivered(self, workers: Sequence[WorkerState]) -> None:
        """Store that more is durable, as workers report while somebody listens, so that it can be published (R18)."""
        delivered = delivered_time(workers, self._crew.expected)
        if delivered is None or self.end.has_come(delivered):
            return  # The next second's look handles the end of the job.
        if self.hub.listens(delivered * self._slack_ms):
            self._store_delivered(delivered)

    def _listen(self) -> None:
        """Have workers report at once what is durable, while somebody waits for it or soon will."""
        if self.hub.listens(self.fronts.now_ms() + round(LISTENED_S * 1000)):
            self._crew.tell_all(Listened(LISTENED_S))

    def _store_delivered(self, delivered: int | None) -> None:
        """Store a delivered time and then publish it; while one is being stored, the newest waits."""
        if self.jobs is not None:
            delivered = self._through(self.jobs, delivered)
        if not self.setting.keeps_lasts or delivered is None:
            return
        if delivered > max(self.setting.start, -1 if self.told_again is None else self.told_again):
            self._delivered = delivered
            if self._telling is None or self._telling.done():
                self._telling = asyncio.get_running_loop().create_task(self._tell_all())

    async def _tell_all(self) -> None:
        """Store and publish what waits, until nothing does."""
        while self._delivered is not None and not self._closing:
            delivered, self._delivered = self._delivered, None
            await self._tell(delivered)

    def _make_tracker(self, host: str, register: Register) -> LifeTracker:
        """Make the life's tracker, in shards if the conf has some (R9)."""
        setting, openings, feeds = self.setting, self.fronts.openings, self.fronts.feeds
        begins = TrackerSetting(
            setting.incarnation,
            setting.graph,
            dict(openings),
            setting.start,
            setting.capacity_ticks,
            setting.dues,
            dict(feeds),
        )

        def workers() -> list[int]:
            return [*register.hosts(), SERVICE_WORKER]

        def reported(report: TrackerReport) -> None:
            self.hub.segments_reached(report.min_times, report.global_min)

        if setting.shards == 1:
            return TrackerProcess(
                begins,
                self._secret,
                host=host,
                workers=workers,
                fronts=lambda: openings,
                feeds=lambda: feeds,
                on_fault=self._on_end,
                on_restart=self._restarted,
                on_report=reported,
            )
        return ShardedTracker(
            begins,
            self._secret,
            host=host,
            shards=setting.shards,
            workers=workers,
            fronts=lambda: openings,
            feeds=lambda: feeds,
            on_fault=self._on_end,
            on_restart=self._restarted,
            on_shard_restart=self._shard_restarted,
            on_report=reported,
        )

    def _through(self, jobs: GraphLine, delivered: int | None) -> int | None:
        """Limit a delivered time by those of the jobs before this one: so the last job's implies all."""
        through_ms = jobs.through_ms
        return None if delivered is None or through_ms is None else min(delivered, through_ms // self._slack_ms)

    def _say(self, jobs: GraphLine, report: TrackerReport) -> None:
        """Send the graph this job's progress: of what this generation has delivered only what is stored (R18)."""
        held, names = report.held, self.fronts.names()
        front = names.get(held.front, "") if held is not None and held.at_front and held.front is not None else ""
        jobs.say(
            delivered_ms=None if self.told_again is None else self.told_again * self._slack_ms,
            min_time_ms=report.global_min * self._slack_ms,
            holder=f"front {front}" if front else report.holder,
            held_topic=front.rpartition("-")[0],
        )

    async def _tell(self, tick: int) -> None:
        """Store a delivered time, then publish it (R18)."""
        try:
            await self._place.ask(self._place.store.tell, self.setting.incarnation, tick, self.setting.generation)
        except Fenced as error:
            self._on_end(error.cause())
        except SnapshotsError as error:
            LOG.warning("could not store delivered time; not publishing it yet: %s", error)
        else:
            self.told_again = tick
            if self.told is None or tick > self.told:
                self.told = tick
                self.hub.reached(DELIVERED, tick)
            self.labels.soon()
            if self.jobs is not None and self.report is not None:
                self._say(self.jobs, self.report)

    def _read_commits_soon(self) -> None:
        """Read commits that subscribers may have missed (C16); of two at once ZooKeeper may announce one."""
        if self._reading is not None and not self._reading.done():
            self._reading_again = True
        else:
            self._reading = asyncio.get_running_loop().create_task(self._read_commits())

    async def _read_commits(self) -> None:
        log = ZooKeeperCommitLog(self._commits.store)
        self._reading_again = True
        while self._reading_again:
            self._reading_again = False
            try:
                self.hub.committed(await self._commits.ask(log.commits))
            except ZooKeeperUnavailable as error:
                LOG.warning("re-reading commits for subscribers: %s", error)
                self._reading_again = not self._closing
                await asyncio.sleep(COMMITS_AGAIN_S)
            except SnapshotsError as error:
                LOG.warning("could not publish a commit to subscribers: %s", error)

    async def _read_records(self) -> tuple[list[LifeReport], list[Commit]]:
        """Read all lives and commits of the job (errors: SnapshotsError)."""
        # What workers wait for uses the other one.
        thread = self._place if self.setting.snapshots is None else self._commits
        log = ZooKeeperCommitLog(thread.store)
        lives, commits = await thread.ask(lambda: (thread.store.lives(), log.commits()))
        return [LifeReport.of(node) for node in lives], commits

    def _restarted(self, era: int, how: str) -> None:
        self.restarts += 1
        if self.snapshots is not None:
            self.snapshots.tracker_restarted()
        self._events.event("tracker_restarted", era=era, how=how)

    def _shard_restarted(self, shard: int, era: int, how: str) -> None:
        """Note a shard's restart. A snapshot request goes on: the merge repeats it to workers that reconnect."""
        self.restarts += 1
        self._events.event("tracker_restarted", shard=shard, era=era, how=how)
