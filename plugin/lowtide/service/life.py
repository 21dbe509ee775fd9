"""One life in the service, besides its register of workers: tracker, fronts, snapshots.

It belongs to the service's event loop; what may block runs in threads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from lowtide.assignment.messages import Delivered, LabelsEnded, Listened, Looked, Reached, Rest, WorkerNews, WorkerOrder
from lowtide.assignment.setting import LifeSetting
from lowtide.assignment.welcome import Welcome
from lowtide.events import EventLog
from lowtide.process.doors import Doors
from lowtide.service.carriers.carriers import Carriers
from lowtide.service.ending import EndOfTime
from lowtide.service.fronts.idle_fronts import SERVICE_WORKER
from lowtide.service.fronts.large_ticks import LargeTicks
from lowtide.service.fronts.reach import Reach
from lowtide.service.fronts.source_fronts import SourceFronts
from lowtide.service.graph.line import GraphLine
from lowtide.service.records import Records
from lowtide.service.snapshots.answers_cutter import AnswersCutter
from lowtide.service.snapshots.coordinator import Coordinator
from lowtide.service.snapshots.floor_tidier import FloorTidier
from lowtide.service.snapshots.participants import LifeParticipants
from lowtide.service.standbys import Standbys
from lowtide.service.store_thread import StoreThread
from lowtide.service.tracker.messages import TrackerSetting
from lowtide.service.tracker.process import Part, TrackerHooks, TrackerProcess
from lowtide.service.tracker.sharded import LifeTracker, ShardedTracker
from lowtide.service.tracker.stall import Stall
from lowtide.service.workers.crew import Crew
from lowtide.service.workers.ended_labels import EndedLabels
from lowtide.service.workers.full_disks import FullDisks
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

LOG = logging.getLogger(__name__)
COMMITS_AGAIN_S = 0.5
DRAIN_LIMIT_S = 10.0
"""The time that carriers have for what is staged when the job stops; the rest stays staged for the next life."""
LISTENED_S = 3.0
"""Seconds for which workers assume a listener; the service renews them each second."""


class Life:
    """One life of a job, as its service sees it.

    Args:
        setting: The driver program's setting.
        secret: The job's secret.
        doors: Opens the tracker's.
        register: The life's workers.
        events: Receives events.
        on_end: Called with the cause when the life cannot go on.
        send: Sends a message to a worker, by name; does nothing if it is not connected.
    """

    def __init__(
        self,
        setting: LifeSetting,
        *,
        secret: bytes,
        doors: Doors,
        register: Register,
        events: EventLog,
        on_end: Callable[[Cause], None],
        send: Callable[[str, WorkerOrder], None],
    ) -> None:
        self.setting = setting
        self.published = setting.published
        """The published delivered time, a tick: it is stored (R18)."""
        self.published_again = setting.published_again
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
        if self.published is not None:
            self.hub.reached(DELIVERED, self.published)
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
        self._publishing: asyncio.Task[None] | None = None
        self._delivered: int | None = None
        """The newest delivered time that may be stored."""
        self._durable: int | None = None
        """The newest tick below which all is durable, published or not."""
        self._stall = Stall(setting.stall_limit_ms / 1000)
        self._silence = Silence(setting.silent_limit_s)
        self._large_ticks, self._full_disks = LargeTicks(), FullDisks()
        self._crew = Crew(register, send, (setting.levels - 1) * setting.parallelism)
        self.carriers = Carriers(setting, events=events, moved=self._look_at_visible)
        """Take what staged sinks were given on into their stores."""
        self._store = StoreThread(setting.zookeeper.store(setting.job), events)
        self._commits = StoreThread(setting.zookeeper.store(setting.job))
        """For commits only: their manifests are read meanwhile, from a store that may be slow."""
        self.jobs = (
            None
            if setting.jobs is None
            else GraphLine(setting.jobs, job=setting.job, life=setting.incarnation, on_refused=on_end)
        )
        """Its place among other jobs; None for a job by itself."""
        self.fronts = SourceFronts(
            setting,
            secret=secret,
            ask=self._store.ask,
            store=self._store.store,
            published=lambda: self.published,
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
        self.standbys = Standbys(partial(self._store.ask, self._store.store.standbys))
        self.labels = EndedLabels(self._crew, self.hub, lambda: self.published, setting.shape.slack_ms)
        self.questions = Questions(self._crew, setting.shape.slack_ms)
        self._tidier = self._make_tidier()
        self._cutter = AnswersCutter(setting.kafka, setting.answers)
        self._address = ""
        self._tracker = self._make_tracker(doors, register)

    async def start(self) -> None:
        """Start all of it.

        Raises:
            LowtideError: what could not be started; nothing is left running.
        """
        try:
            await self._store.open()
            self._address = await self._tracker.start()
            if self.jobs is not None:
                self.jobs.start()
            self.fronts.start(self._address, self._tracker.shards)
            if self.setting.snapshots is not None:
                await self._commits.open()
                participants = LifeParticipants(self._crew, self.fronts, self._tracker, self._tidier, self._cutter)
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
            self.carriers.start()
        except BaseException:
            await self.close()
            raise

    async def drain(self, workers: Sequence[WorkerState]) -> None:
        """Have readers of staged sinks' stores see what was delivered, as far as they can, and publish it (R21).

        Args:
            workers: The workers, which have ended, as they last reported.
        """
        late = await self.carriers.drain(DRAIN_LIMIT_S)
        if late:
            LOG.warning("not all of sinks %s is visible yet; the next life makes it so", ", ".join(late))
        visible = self._visible(workers)
        if self.setting.staged and not self.end.has_come(visible):
            self._store_delivered(visible)
            if self._publishing is not None:
                await asyncio.wait([self._publishing])

    async def close(self) -> None:
        """End all of it."""
        self._closing = True
        await self.carriers.close()
        await self.labels.close()
        await self.records.close()
        await self.standbys.close()
        if self._reading is not None:
            await asyncio.wait([self._reading])
        if self.jobs is not None:
            await self.jobs.close()
        if self.snapshots is not None:
            await self.snapshots.close()
        if self._tidier is not None:
            await self._tidier.close()
        await self._cutter.close()
        await self.reach.close()
        await self.fronts.close()
        await self._tracker.close()
        if self._publishing is not None:
            await asyncio.wait([self._publishing])
        await self._commits.close()
        await self._store.close()

    @property
    def troubles(self) -> list[str]:
        """Return the faults that do not stop the life, each with the time since when."""
        found = [] if self.snapshots is None else [self.snapshots.trouble]
        found += [] if self.jobs is None else [self.jobs.trouble]
        found += [*self._tracker.troubles, self._large_ticks.trouble, self._full_disks.trouble]
        found += self.carriers.troubles
        return [each for each in (self._store.away, self.fronts.trouble, self.reach.trouble, *found) if each]

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
                await self._store.ask(self._store.store.check, self.setting.incarnation)
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
        self.standbys.look(time.monotonic())
        now_s = time.monotonic()
        silent = self._silence.look(workers, now_s)
        heard = self._silence.now(workers, now_s)
        stalled = self._stall.look(report, heard, now_s) or self._stall.unread(self.fronts.unread(), heard, now_s)
        stalled = stalled or silent
        if stalled:
            self._on_end(stalled)
        if self._large_ticks.look(workers, self.fronts.names()):
            self._events.event("ticks_too_large", why=self._large_ticks.trouble)
        if self._full_disks.look(workers):
            self._events.event("disk_filling", why=self._full_disks.trouble)
        if self.snapshots is not None:
            self.snapshots.look(time.monotonic(), report.global_min)
        self.reach.look(time.monotonic())
        delivered = self._visible(workers)
        if self.end.has_come(delivered) and not self.labels.all_published():
            return  # Labels that subscribers wait for are published before the job ends itself.
        self.labels.soon()
        self._listen()
        if self.carriers.behind():
            self._crew.send_all(Rest(LISTENED_S))
        if self.end.look(delivered, time.monotonic()):
            return
        if self.jobs is not None:
            self._say(self.jobs, report)
        self._store_delivered(delivered)

    def look_at_delivered(self, workers: Sequence[WorkerState]) -> None:
        """Store that more is durable, as workers report while somebody listens, so that it can be published (R18)."""
        self._publish_soon(self._visible(workers))

    def _look_at_visible(self) -> None:
        """Store that readers of a staged sink's store see more, in the same way (R21)."""
        self._publish_soon(self.carriers.visible(self._durable))

    def _visible(self, workers: Sequence[WorkerState]) -> int | None:
        """Return the tick below which all is durable, and of staged sinks visible (R21)."""
        self._durable = delivered_time(workers, self._crew.expected)
        return self.carriers.visible(self._durable)

    def _publish_soon(self, delivered: int | None) -> None:
        if delivered is None or self.end.has_come(delivered):
            return  # The next second's look handles the end of the job.
        if self.hub.listens(delivered * self._slack_ms):
            self._store_delivered(delivered)

    def _listen(self) -> None:
        """Have workers report at once what is durable, while somebody waits for it or soon will."""
        if self.hub.listens(self.fronts.now_ms() + round(LISTENED_S * 1000)):
            self._crew.send_all(Listened(LISTENED_S))

    def _store_delivered(self, delivered: int | None) -> None:
        """Store a delivered time and then publish it; while one is being stored, the newest waits."""
        if self.jobs is not None:
            delivered = self._through(self.jobs, delivered)
        if not self.setting.keeps_lasts or delivered is None:
            return
        if delivered > max(self.setting.start, -1 if self.published_again is None else self.published_again):
            self._delivered = delivered
            if self._publishing is None or self._publishing.done():
                self._publishing = asyncio.get_running_loop().create_task(self._publish_all())

    async def _publish_all(self) -> None:
        """Store and publish what waits, until nothing does."""
        while self._delivered is not None and not self._closing:
            delivered, self._delivered = self._delivered, None
            await self._publish(delivered)

    def _make_tidier(self) -> FloorTidier | None:
        setting = self.setting
        if setting.snapshots is None or not setting.lasts_topic:
            return None
        return FloorTidier(
            setting.kafka,
            setting.job,
            incarnation=setting.incarnation,
            generation=setting.snapshots.generation,
            events=self._events,
        )

    def _make_tracker(self, doors: Doors, register: Register) -> LifeTracker:
        """Make the life's tracker, in shards if the conf has some (R9)."""
        setting = self.setting
        begins = TrackerSetting(
            setting.incarnation,
            setting.graph,
            self.fronts.openings,
            setting.start,
            setting.capacity_ticks,
            setting.dues,
            self.fronts.feeds,
        )
        hooks = TrackerHooks(
            workers=lambda: [*register.hosts(), SERVICE_WORKER],
            on_fault=self._on_end,
            on_restart=self._restarted,
            on_report=lambda report: self.hub.segments_reached(
                setting.shape.whole(report.min_times), report.global_min
            ),
        )
        if setting.shards == 1:
            return TrackerProcess(begins, self._secret, hooks, doors)
        return ShardedTracker(begins, self._secret, hooks, doors, shards=setting.shards)

    def _through(self, jobs: GraphLine, delivered: int | None) -> int | None:
        """Limit a delivered time by those of the jobs before this one: so the last job's implies all."""
        through_ms = jobs.through_ms
        return None if delivered is None or through_ms is None else min(delivered, through_ms // self._slack_ms)

    def _say(self, jobs: GraphLine, report: TrackerReport) -> None:
        """Send the graph this job's progress: of what this generation has delivered only what is stored (R18)."""
        held, names = report.held, self.fronts.names()
        front = names.get(held.front, "") if held is not None and held.at_front and held.front is not None else ""
        jobs.say(
            delivered_ms=None if self.published_again is None else self.published_again * self._slack_ms,
            min_time_ms=report.global_min * self._slack_ms,
            holder=f"front {front}" if front else report.holder,
            held_topic=front.rpartition("-")[0],
        )

    async def _publish(self, tick: int) -> None:
        """Store a delivered time, then publish it (R18)."""
        try:
            await self._store.ask(self._store.store.publish, self.setting.incarnation, tick, self.setting.generation)
        except Fenced as error:
            self._on_end(error.cause())
        except SnapshotsError as error:
            LOG.warning("could not store delivered time; not publishing it yet: %s", error)
        else:
            self.published_again = tick
            if self.published is None or tick > self.published:
                self.published = tick
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
        thread = self._store if self.setting.snapshots is None else self._commits
        log = ZooKeeperCommitLog(thread.store)
        lives, commits = await thread.ask(lambda: (thread.store.lives(), log.commits()))
        return [LifeReport.of(node) for node in lives], commits

    def _restarted(self, part: Part, era: int, how: str) -> None:
        """Note a restart; a shard's stops no snapshot: the merge repeats its request to workers that reconnect."""
        self.restarts += 1
        if part.shard is None and self.snapshots is not None:
            self.snapshots.tracker_restarted()
        of = {} if part.shard is None else {"shard": part.shard}
        self._events.event("tracker_restarted", **of, era=era, how=how)
