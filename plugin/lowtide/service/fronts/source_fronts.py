"""The fronts of a life: the process that acts for each, the grants of idle ones, new partitions (R2, R3)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from lowtide.assignment import messages
from lowtide.assignment.messages import BrokerNow, NewFronts, Reached
from lowtide.assignment.setting import LifeSetting
from lowtide.assignment.welcome import FrontStart
from lowtide.core.fronts.end import end_tick
from lowtide.core.fronts.register import FrontEntry, Partition
from lowtide.errors import LifeEnded, SnapshotFailed
from lowtide.events import EventLog
from lowtide.process.tracker_line import TrackerLine
from lowtide.service.fronts.broker_clock import BrokerClock, clock_topic
from lowtide.service.fronts.idle_fronts import SERVICE_WORKER, IdleFronts
from lowtide.service.fronts.tails import Grant, Tail, TailHooks, Tails
from lowtide.service.workers.crew import Crew
from lowtide.sinks.kafka.claims import transactional_id
from lowtide.status.gauges import FrontGauges
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.errors import ZooKeeperUnavailable, cause_of
from lowtide_snapshots.format.manifest import FrontAt
from lowtide_snapshots.job.store import JobStore
from lowtide_tracker import ConnectionLost, Floor, LocalTracker

LOG = logging.getLogger(__name__)
HEARD_EVERY_S = 0.005
SEND_TIME_S = 5.0
"""The interval at which a worker without grants gets the broker's time."""
AGAIN_S = 0.5
"""The time until a tracker or a ZooKeeper that was away is asked again."""


class SourceFronts:
    """All fronts of a life; belongs to the service's event loop.

    Args:
        setting: The driver program's setting.
        secret: The job's.
        ask: Calls a method of the store in a thread.
        store: The job's place in ZooKeeper.
        published: The largest delivered time that was published.
        events: Receives events.
        on_end: Called with the cause when the life cannot go on.
        crew: The workers.
        promises: The progress of the other job by topic that it writes; see `Tails`.

    Attributes:
        known: All registered fronts by `topic-partition`.
        openings: Their opening floors by number.
        feeds: By number the segments that their records go to.
    """

    def __init__(
        self,
        setting: LifeSetting,
        *,
        secret: bytes,
        ask: Callable[..., Awaitable[None]],
        store: JobStore,
        published: Callable[[], int | None],
        events: EventLog,
        on_end: Callable[[Cause], None],
        crew: Crew,
        promises: Callable[[], Mapping[str, int | None]] = dict,
    ) -> None:
        self.known = {start.name: start for start in setting.fronts}
        self.openings = {start.number: start.opening for start in setting.fronts}
        self.feeds = {start.number: feeds for start in setting.fronts if (feeds := setting.feeds.get(start.topic))}
        self._setting = setting
        self._secret = secret
        self._ask = ask
        self._store = store
        self._published = published
        self._events = events
        self._on_end = on_end
        self._crew = crew
        self._promises = promises
        self._loop = asyncio.get_running_loop()
        self._owners: dict[int, str] = {}
        """The workers that act for fronts."""
        self._waited_for = setting.start
        """The largest tick that somebody waits for."""
        self._registering = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: IdleFronts | None = None
        self._tails: Tails | None = None
        self._clock: BrokerClock | None = None
        self._send_time_s = 0.0
        self.trouble = ""
        """The fault of the brokers' clock, and since when; empty if there is none."""

    def start(self, tracker: str, shards: Sequence[str] = ()) -> None:
        """Act for all fronts, as none has a worker yet, and watch their tails.

        Args:
            tracker: The tracker's address.
            shards: The addresses of its shards; empty if it is one process.

        Raises:
            LifeEnded: the tracker does not answer.
        """
        setting = self._setting
        local = LocalTracker(SERVICE_WORKER, setting.incarnation, start=setting.start)
        line = TrackerLine(
            tracker, secret=self._secret, incarnation=setting.incarnation, local=local, name="service", shards=shards
        )
        end = end_tick(setting.shape.slack_ms)
        self._idle = IdleFronts(line, local, on_min_time=self._heard_min_time, on_lost=self._on_end, end=end)
        self._idle.connect()
        self._clock = BrokerClock(setting.kafka, clock_topic(setting.job), on_error=self._trouble)
        self._clock.start()
        hooks = TailHooks(
            on_grants=partial(self._in_loop, self._granted),
            on_error=self._trouble,
            on_back=partial(self._events.event, "grant_resumed"),
            on_lost=partial(self._in_loop, self._on_end),
            on_partitions=partial(self._in_loop, self._appeared),
        )
        self._tails = Tails(
            setting.kafka,
            hooks,
            skew_ms=setting.allowed_skew_ms,
            topics=setting.topic_ids,
            clock=self._clock,
            promises=self._promises,
        )
        for start in setting.fronts:
            self._idle.add(start)
            self._tails.watch(Tail(start.number, start.topic, start.partition, start.offset, start.stop))
        self._tails.start()

    async def close(self) -> None:
        """Stop watching tails and acting for fronts."""
        tails, self._tails = self._tails, None
        if tails is not None:
            await asyncio.to_thread(tails.close)
        if self._clock is not None:
            await asyncio.to_thread(self._clock.close)
        for task in self._tasks:
            task.cancel()
        if self._idle is not None:
            self._idle.close()

    def unread(self) -> dict[int, tuple[str, int, float]]:
        """Return by front its partition, the offset of a record its worker has not reported, and for how long."""
        if self._tails is None:
            return {}
        names = self.names()
        return {front: (names[front], *record) for front, record in self._tails.unread().items() if front in names}

    def unanswered(self) -> dict[int, str]:
        """Return by front why Kafka does not report its partition's end."""
        return {} if self._tails is None else self._tails.unanswered()

    def open_transactions(self) -> dict[int, tuple[int, float]]:
        """Return by front the offset of a transaction that is open there, and for how many s nothing has moved."""
        return {} if self._tails is None else self._tails.open_transactions()

    def names(self) -> dict[int, str]:
        """Return `topic-partition` of every front."""
        return {start.number: start.name for start in self.known.values()}

    def promised(self) -> dict[int, FrontGauges]:
        """Return the heartbeat and the next offset of the fronts that the service acts for."""
        return {} if self._idle is None else self._idle.promised()

    def standing(self) -> list[tuple[FrontAt, str | None]]:
        """Return where each front would be read again, if the service acts for it; else with the worker that does."""
        found = []
        promised = self.promised()
        for start in self.known.values():
            said = promised.get(start.number)
            offset, heartbeat = (start.offset, start.opening) if said is None else (said.next_offset, said.heartbeat)
            at = FrontAt(
                number=start.number,
                source=start.topic,
                topic_id=self._setting.topic_ids[start.topic],
                partition=start.partition,
                offset=offset,
                label=max(heartbeat, start.opening if start.before is None else start.before),
            )
            found.append((at, self._owners.get(start.number)))
        return found

    async def heard(self, number: int, limit_s: float) -> None:
        """Wait until all floors are known that the T of a request for a snapshot rests on (errors: SnapshotFailed)."""
        deadline = time.monotonic() + limit_s
        while self._idle is not None and self._idle.requested < number:
            if time.monotonic() > deadline:
                raise SnapshotFailed(
                    f"the tracker's notice did not come within {limit_s:g} s", way_out="try again in a few seconds"
                )
            await asyncio.sleep(HEARD_EVERY_S)

    def floors_from(self, starts: Mapping[int, int]) -> list[Floor]:
        """Return the floors of this life that matter from these offsets on, by front; O(their number)."""
        if self._idle is None:
            return []
        floors = self._idle.floors
        return [floor for front in floors.fronts for floor in floors.of_front(front, starts.get(front))]

    def forget_floors(self, front: int, offset: int) -> None:
        """Drop floors that a committed manifest makes unnecessary."""
        if self._idle is not None:
            self._idle.forget_floors(front, offset)

    def now_ms(self) -> int:
        """Return the broker's time, as far as it is known."""
        return time.time_ns() // 1_000_000 if self._clock is None else self._clock.now_ms()

    @property
    def clock_jump_ms(self) -> int:
        """Return the distance of the broker's clock from the accepted range; 0 while they agree."""
        return 0 if self._clock is None else self._clock.jump_ms

    def look(self, now_s: float) -> None:
        """Send workers the broker's time now and then, and report jumps of its clock; call it each second."""
        jump_ms = self.clock_jump_ms
        if bool(jump_ms) != bool(self.trouble):
            self.trouble = _jumped(jump_ms) if jump_ms else ""
            self._events.event("clock_jumped" if jump_ms else "clock_agrees", jump_ms=jump_ms)
        if now_s >= self._send_time_s:
            self._send_time_s = now_s + SEND_TIME_S
            for owner in self._owners.values():
                self._crew.send(owner, BrokerNow(self.now_ms()))

    # -- workers ---------------------------------------------------------------------------------------------------

    async def hand_over(self, worker: str) -> FrontStart:
        """Let a worker of level 0 act for its front from now on.

        Raises:
            LifeEnded: the front had a worker before, or the tracker does not answer.
        """
        start = self.known[worker.partition("/")[2]]
        self._owners[start.number] = worker
        if self._idle is None:
            return start
        if start.number not in self._idle:
            raise LifeEnded(f"front {start.number} ({start.name}) has had a worker before")
        return await self._idle.hand_over(start.number)

    def heard_from(self, worker: str, reached: Reached) -> None:
        """Take the progress of a worker of level 0: it waits until min time has passed its tick."""
        start = self.known.get(worker.partition("/")[2])
        if self._tails is not None and start is not None:
            self._tails.at(start.number, reached.next_offset)
            if reached.tick < end_tick(self._setting.shape.slack_ms):  # Nothing waits for the end of time.
                self._waited_for = max(self._waited_for, reached.tick)
                # Min time passes a tick once all fronts have promised the next one.
                self._tails.active((reached.tick + 1) * self._setting.shape.slack_ms)

    def _heard_min_time(self, tick: int) -> None:
        if tick > self._waited_for and self._tails is not None:
            self._tails.calm()

    def _granted(self, grants: Iterable[Grant]) -> None:
        if self._idle is None or self._tails is None:
            return
        now_ms = self.now_ms()
        for grant in grants:
            tick = grant.ms // self._setting.shape.slack_ms
            owner = self._owners.get(grant.front)
            if owner is None:
                self._idle.grant(grant.front, grant.offset, tick)
            else:
                self._crew.send(owner, messages.Grant(grant.front, grant.offset, tick, now_ms))
        self._idle.flush()

    def skipped(self, front: int, offset: int) -> int:
        """Return where a front may be read again instead of at this offset; see `TailState.skipped`."""
        return offset if self._tails is None else self._tails.skipped(front, offset)

    # -- partitions that appear ------------------------------------------------------------------------------------

    async def know(self, name: str) -> None:
        """Make sure that a source partition, `topic-partition`, is registered before its worker is made (R3).

        Raises:
            LowtideError: it cannot be registered.
        """
        if name not in self.known:
            topic, _, partition = name.rpartition("-")
            await self._register([(topic, int(partition))])

    def _appeared(self, partitions: Iterable[tuple[str, int]]) -> None:
        task = self._loop.create_task(self._register(partitions))
        self._tasks.add(task)
        task.add_done_callback(self._registered)

    def _registered(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_end(cause_of(error))

    async def _register(self, partitions: Iterable[tuple[str, int]]) -> None:
        async with self._registering:
            for topic, partition in partitions:
                if f"{topic}-{partition}" not in self.known:
                    await self._register_one(topic, partition)

    async def _register_one(self, topic: str, partition: int) -> None:
        """Open a front at the tracker, store it, and only then let it label anything (R3)."""
        setting, number, published = self._setting, len(self.known), self._published()
        relied = max(setting.relied_on, setting.start if published is None else published)
        # An open front holds min time until it is registered, so it is not opened while ZooKeeper is away.
        await self._write(self._store.check)
        feeds = setting.feeds.get(topic)
        opening = await self._opened(number, relied, feeds)
        # From here on a replacement of the tracker knows of it.
        self.openings[number] = opening
        if feeds is not None:
            self.feeds[number] = feeds
        # If a topic ends, nothing is read from partitions that come later.
        stop = 0 if any(each.topic == topic and each.stop is not None for each in self.known.values()) else None
        source, ends = Partition(topic, setting.topic_ids[topic], partition), setting.ends.get(topic, "")
        entry = FrontEntry(number, source, 0, opening, stop=stop, ends=ends)
        if setting.dead_letters and setting.keeps_lasts:
            await self._write(self._store.add_sink_ids, [transactional_id(setting.job, 0, number)])
        await self._write(self._store.add_fronts, [entry.to_json()])
        start = FrontStart(number=number, topic=topic, partition=partition, offset=0, opening=opening, stop=stop)
        self.known[start.name] = start
        if self._idle is not None and self._tails is not None:
            self._idle.add(start)
            self._tails.watch(Tail(number, topic, partition, 0, stop))
        self._crew.send_all(NewFronts({number: start.name}))
        self._events.event("front_registered", front=number, partition=start.name, opening=opening)

    async def _opened(self, number: int, floor: int, feeds: Sequence[int] | None) -> int:
        """Ask the tracker to open a front, again while it is being restarted."""
        while self._idle is not None:
            try:
                return self._idle.open(number, floor, feeds)
            except ConnectionLost as error:
                LOG.info("retrying to open front %d: %s", number, error)
                await asyncio.sleep(AGAIN_S)
        return floor

    async def _write(self, call: Callable[..., None], *what: Iterable[Any]) -> None:
        """Make a call to ZooKeeper in this life's name, and retry while it is away."""
        while True:
            try:
                return await self._ask(call, self._setting.incarnation, *what)
            except ZooKeeperUnavailable:
                await asyncio.sleep(AGAIN_S)

    # -- threads ---------------------------------------------------------------------------------------------------

    def _in_loop(self, call: Callable[[Any], None], argument: Any) -> None:
        """Go on in the loop; called in the tails' thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, argument)

    def _trouble(self, cause: Cause) -> None:
        """Report what keeps idle fronts from going on; called in threads."""
        self._events.event("grant_failed", why=str(cause))


def _jumped(jump_ms: int) -> str:
    return (
        f"since {datetime.now(UTC):%H:%M:%S} UTC: the brokers' clock has jumped: it is {abs(jump_ms) / 1000:,.1f} s "
        f"{'ahead of' if jump_ms > 0 else 'behind'} what is known of it, and is followed slowly; keep the clocks of "
        "brokers and driver in step by NTP; if the brokers' clock is right now, start the job again"
    )
