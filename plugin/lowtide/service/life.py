"""What the service does for one life besides its register of workers: tracker, fronts, grants, what may be told.

It belongs to the service's event loop; what may block runs in threads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from lowtide.connectors.claims import transactional_id
from lowtide.errors import LifeEnded
from lowtide.events import EventLog
from lowtide.fronts.register import FrontEntry, Partition
from lowtide.service.broker_clock import BrokerClock, clock_topic
from lowtide.service.idle_fronts import SERVICE_WORKER, IdleFronts
from lowtide.service.register import Register
from lowtide.service.setting import LifeSetting
from lowtide.service.stall import Stall
from lowtide.service.tails import Grant, Tail, Tails
from lowtide.service.tracker_process import TrackerProcess, TrackerReport, TrackerSetting
from lowtide.worker.welcome import FrontStart, Welcome
from lowtide_snapshots.errors import Fenced, SnapshotsError
from lowtide_snapshots.job_store import JobStore
from lowtide_tracker import Notice

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
        on_end: Callable[[str], None],
        tell_worker: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.setting = setting
        self.told = setting.told
        """The delivered time, a tick, that the outside may hear: it is stored (R18)."""
        self.restarts = 0
        self._secret = secret
        self._register = register
        self._events = events
        self._on_end = on_end
        self._tell_worker = tell_worker
        self._loop = asyncio.get_running_loop()
        self.fronts = {start.name: start for start in setting.fronts}
        """All registered fronts by `topic-partition`."""
        self._opening = {start.number: start.opening for start in setting.fronts}
        self._owners: dict[int, str] = {}
        """The workers that speak for fronts."""
        self._registering = asyncio.Lock()
        self._zookeeper = asyncio.Lock()
        self._telling: asyncio.Task[None] | None = None
        self._stall = Stall(setting.stall_limit_ms / 1000)
        access = setting.zookeeper
        self._store = JobStore(
            access.hosts,
            setting.job,
            root=access.root,
            session_timeout_s=access.session_timeout_s,
            limit_s=access.reach_limit_s,
            auth=access.auth,
        )
        self._tracker: TrackerProcess | None = None
        self._address = ""
        self._idle: IdleFronts | None = None
        self._tails: Tails | None = None
        self._clock: BrokerClock | None = None
        if setting.tracking:
            self._tracker = TrackerProcess(
                TrackerSetting(
                    setting.incarnation, setting.graph, dict(self._opening), setting.start, setting.capacity_ticks
                ),
                secret,
                host=host,
                workers=lambda: [*(worker.number for worker in register.workers.values()), SERVICE_WORKER],
                fronts=lambda: self._opening,
                on_fault=on_end,
                on_restart=self._restarted,
            )

    async def start(self) -> None:
        """Start all of it.

        Raises:
            LowtideError, SnapshotsError: what could not be started; nothing is left running.
        """
        setting = self.setting
        try:
            await asyncio.to_thread(self._store.open)
            if self._tracker is None:
                return
            self._address = await self._tracker.start()
            self._idle = IdleFronts(
                self._address,
                secret=self._secret,
                incarnation=setting.incarnation,
                start=setting.start,
                on_notice=self._heard,
                on_lost=self._on_end,
            )
            self._idle.connect()
            self._clock = BrokerClock(setting.kafka, clock_topic(setting.job), on_error=self._trouble)
            self._clock.start()
            self._tails = Tails(
                setting.kafka,
                clock=self._clock,
                skew_ms=setting.allowed_skew_ms,
                topics=sorted(setting.topic_ids),
                on_grants=partial(self._in_loop, self._granted),
                on_error=self._trouble,
                on_partitions=partial(self._in_loop, self._appeared),
            )
            for start in setting.fronts:
                self._idle.add(start)
                self._tails.watch(Tail(start.number, start.topic, start.partition, start.offset))
            self._tails.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End all of it."""
        tails, self._tails = self._tails, None
        if tails is not None:
            await asyncio.to_thread(tails.close)
        if self._clock is not None:
            await asyncio.to_thread(self._clock.close)
        if self._idle is not None:
            self._idle.close()
        if self._tracker is not None:
            await self._tracker.close()
        if self._telling is not None:
            await asyncio.wait([self._telling])
        await asyncio.to_thread(self._store.close)

    @property
    def report(self) -> TrackerReport | None:
        """The tracker's newest report."""
        return None if self._tracker is None else self._tracker.report

    # -- workers ---------------------------------------------------------------------------------------------------

    async def welcome(self, worker: str) -> Welcome:
        """What a worker begins with; at level 0 it speaks for its front from now on.

        Raises:
            LifeEnded: the front cannot be handed over.
        """
        level, _, name = worker.partition("/")
        front = None
        if level == "0":
            front = await self._front_for(worker, name)
        ahead = self._clock_ahead_ms()
        names = {start.number: start.name for start in self.fronts.values()}
        return Welcome(tracker=self._address, clock_ahead_ms=ahead, fronts=names, front=front)

    async def know(self, name: str) -> None:
        """See that a source partition, `topic-partition`, is registered before its worker is made (R3).

        Raises:
            LifeEnded: it cannot be registered.
        """
        topic, _, partition = name.rpartition("-")
        await self._register_all([(topic, int(partition))])

    def heard_from(self, worker: str, said: dict[str, Any]) -> None:
        """A worker of level 0 waits for min time, and expects this offset next."""
        start = self.fronts.get(worker.partition("/")[2])
        if self._tails is not None and start is not None:
            self._tails.at(start.number, said["at"])
            self._tails.active()

    async def _asking(self, call: Callable[..., None], *arguments: Any) -> None:
        """Let ZooKeeper do something; one call at a time, as a store is for one thread."""
        async with self._zookeeper:
            await asyncio.to_thread(call, *arguments)

    def now_ms(self) -> int:
        """The broker's time, as far as it is known."""
        return time.time_ns() // 1_000_000 if self._clock is None else self._clock.now_ms()

    def idle_fronts(self) -> dict[int, dict[str, int]]:
        """Of the fronts that the service speaks for, what it has promised."""
        return {} if self._idle is None else self._idle.promised()

    async def current(self) -> str:
        """Return why this life is not the current one any more; empty if it is. ZooKeeper is asked (W10)."""
        try:
            await self._asking(self._store.check, self.setting.incarnation)
        except SnapshotsError as error:
            return str(error)
        self._events.event("sink_claimed")
        return ""

    async def _front_for(self, worker: str, name: str) -> FrontStart:
        start = self.fronts[name]
        self._owners[start.number] = worker
        if self._idle is None:
            return start
        if start.number not in self._idle:
            raise LifeEnded(f"front {start.number} ({name}) has had a worker before")
        return await self._idle.hand_over(start.number)

    # -- grants ----------------------------------------------------------------------------------------------------

    def _in_loop(self, call: Callable[[Any], None], argument: Any) -> None:
        """Called in the tails' thread: go on in the loop."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, argument)

    def _granted(self, grants: Iterable[Grant]) -> None:
        if self._idle is None or self._tails is None:
            return
        ahead = self._clock_ahead_ms()
        for grant in grants:
            tick = grant.ms // self.setting.shape.slack_ms
            owner = self._owners.get(grant.front)
            if owner is None:
                self._idle.grant(grant.front, grant.offset, tick)
            else:
                self._tell_worker(owner, {"grant": [grant.front, grant.offset, tick], "ahead": ahead})
        self._idle.flush()

    def _heard(self, notice: Notice) -> None:
        """Min time has moved; nothing is done on it here, but the service's own line has to hear it (R5)."""

    def _clock_ahead_ms(self) -> int:
        """By how much the broker's clock is ahead of this machine's, at least."""
        return 0 if self._clock is None else self._clock.now_ms() - time.time_ns() // 1_000_000

    # -- partitions that appear ------------------------------------------------------------------------------------

    def _appeared(self, partitions: Iterable[tuple[str, int]]) -> None:
        task = self._loop.create_task(self._register_all(partitions))
        task.add_done_callback(self._registered)

    def _registered(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Fenced | LifeEnded):
            self._on_end(str(error))
        elif error is not None:
            LOG.warning("new source partitions could not be registered yet: %s", error)

    async def _register_all(self, partitions: Iterable[tuple[str, int]]) -> None:
        async with self._registering:
            for topic, partition in partitions:
                if f"{topic}-{partition}" not in self.fronts:
                    await self._register_one(topic, partition)

    async def _register_one(self, topic: str, partition: int) -> None:
        """Open a front at the tracker, write it down, and only then let it label anything (R3)."""
        setting, number = self.setting, len(self.fronts)
        floor = max(setting.relied_on, self.told if self.told is not None else setting.start)
        era = self.restarts
        opening = floor if self._idle is None else self._idle.open(number, floor)
        entry = FrontEntry(number, Partition(topic, setting.topic_ids[topic], partition), 0, opening)
        if setting.dead_letters and setting.shape.delivery == "exactly_once":
            await self._asking(
                self._store.add_sink_ids, setting.incarnation, [transactional_id(setting.job, 0, number)]
            )
        await self._asking(self._store.add_fronts, setting.incarnation, [entry.to_json()])
        start = FrontStart(number=number, topic=topic, partition=partition, offset=0, opening=opening)
        if self._idle is not None and self.restarts != era:
            # The tracker that knew of it has died before it was written down, and min time may have gone on.
            opening = self._idle.open(number, opening)
        self._opening[number] = opening
        self.fronts[start.name] = start
        if self._idle is not None and self._tails is not None:
            self._idle.add(start)
            self._idle.grant(number, 0, opening)
            self._idle.flush()
            self._tails.watch(Tail(number, topic, partition, 0))
        for worker in self._register.workers:
            self._tell_worker(worker, {"fronts": {str(number): start.name}})
        self._events.event("front_registered", front=number, partition=start.name, opening=opening)

    def _restarted(self, era: int, how: str) -> None:
        self.restarts += 1
        self._events.event("tracker_restarted", era=era, how=how)

    def _trouble(self, what: str) -> None:
        """Something keeps idle fronts from going on; called in threads, too."""
        self._events.event("grant_failed", why=what)

    # -- now and then ----------------------------------------------------------------------------------------------

    def look(self, gauges: dict[str, dict[str, Any]]) -> None:
        """Each second: see whether min time stands for no reason, and store what may be told of delivered time."""
        report = self.report
        if report is None:
            return
        stalled = self._stall.look(report, gauges.values(), time.monotonic())
        if stalled:
            self._on_end(stalled)
        later = [each for name, each in gauges.items() if not name.startswith("0/")]
        expected = (self.setting.levels - 1) * self.setting.parallelism
        if len(later) < expected or (self._telling is not None and not self._telling.done()):
            return
        delivered = min(each["delivered_time"] for each in gauges.values() if "delivered_time" in each)
        if delivered > max(self.setting.start, self.told if self.told is not None else self.setting.start):
            self._telling = self._loop.create_task(self._tell(delivered))

    async def _tell(self, tick: int) -> None:
        """Store a delivered time, then let it be told (R18)."""
        try:
            await self._asking(self._store.tell, self.setting.incarnation, tick)
        except Fenced as error:
            self._on_end(str(error))
        except SnapshotsError as error:
            LOG.warning("the delivered time could not be stored, and is not told: %s", error)
        else:
            self.told = tick
