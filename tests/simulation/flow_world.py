"""Compiled flows over several lives: delivered output has to be what `run_log` gives, per lane, byte by byte."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from cold_stores import drawn_shelves
from state_flows import Document

from lowtide.core.operators.faults.failure import AtRecord
from lowtide.core.operators.order.order import tick_of
from lowtide.core.operators.windows.window_node import WindowNode
from lowtide.core.worker import WorkerCore
from lowtide.flow.steps.steps import Through, WhenDone
from lowtide_tracker import Floor

from .job import LAST_TICK, Grouping, Job
from .life import Life
from .logs import FIRST_MS, NEVER_MS, Log
from .tracing import Tracing
from .verdict import Violation
from .world import Step, Trace, World
from .wrong import Wrong, draw_wrong

MAX_TURNS = 20_000
"""Portions of what comes round in a loop that are dealt with before time goes on."""
MAX_DRAIN_ROUNDS = 600
QUIET_ROUNDS = 12
DRAIN_TICKS = 10
"""Time goes on by so much in each round of the end: the quiet ones are longer than any window together."""
BESIDE = 12
"""The factor by which snapshots are likelier while one is being written slowly."""
FEW_QUIET_ROUNDS = 3
FLOW_ROUNDS = 16
GROWS, GROWING = 10, 0.5
"""One of so many seeds gets more lanes, and how likely it does so at the beginning of a life."""
BY_LANE = 0.25
"""How likely a seed's sinks take each lane by itself, as the kept answers of calls do."""
EARLY_KEYS = 0.7
"""How likely it is for a life of some seeds that lanes do not wait for those of other workers."""
IN_ORDER = 0.15
"""How likely such a seed has `when_done(order="stream")` where lanes do not wait; flows are drawn without it."""
FLOW_MS = 20
"""In the end backfills flow on for so many rounds of so long, without a gap."""
SHARING = 0.5
"""The probability that states keep shape and ttl, so that a life's first snapshot may share parts of the last."""


class FlowWorld(World):
    """A job: one of the flows, one to three fronts, sinks, snapshots, and lives of which each but the last is killed.

    Args:
        seed: The seed.
        trace: Told every step.
        flow: Which flow; drawn if None.
        grouping: The mode of all lives; drawn for each if None.
        faults: How likely a life is to be killed at a step, or a frame lost.
        damage: How likely a commit is to be damaged when it is needed.
        swaps: How likely it is that frames are disturbed rather than the life killed.
        longest: How many messages a partition can have; drawn if None.
        idle: How likely idle heartbeats are; drawn if None.
        snapshots: How many times likelier than else snapshots are.
        letters: Whether the flow names dead letters; drawn if None.
        backfills: How likely a partition gets a backfill.
        rewinds: How likely a life begins from an older commit than the newest, which stays.
        silent: How likely nobody is told of delivered time, so that nothing of it is known later.
        wrong: How likely it is, without them, that a life begins with a function that is wrong about some records.
        at_sinks: How likely what it gives is refused by the sinks' formats, in a flow in which it can be.
        refusals: How likely a service fails, in a flow with calls.
        shelved: How likely lives may have state on disk.
        traced: How likely records are traced.
        early_keys: How likely it is for each life that a worker's lanes go on without the others; by the seed if None.
        by_lane: How likely the sinks take each lane by itself.
        grows: How likely it is for each life but the first that it has more lanes; by the seed if None.
        names: How likely hosts name the segments that matter to their workers; by the seed if None.
    """

    name: ClassVar[str] = "flow"

    def __init__(
        self,
        seed: int,
        trace: Trace | None = None,
        *,
        flow: str | None = None,
        grouping: Grouping | None = None,
        faults: float = 0.004,
        damage: float = 0.15,
        swaps: float = 0.2,
        longest: int | None = None,
        idle: int | None = None,
        snapshots: int = 1,
        letters: bool | None = None,
        wrong: float = 0.4,
        backfills: float = 0.3,
        rewinds: float = 0.15,
        silent: float = 0.3,
        at_sinks: float = 0.3,
        refusals: float = 0.0,
        shelved: float = 0.7,
        traced: float = 0.3,
        early_keys: float | None = None,
        by_lane: float = BY_LANE,
        grows: float | None = None,
        names: float | None = None,
    ) -> None:
        super().__init__(seed, trace)
        self.names = self.names if names is None else self.naming.random() < names
        self.grouping = grouping
        self.faults, self.damage, self.swaps = faults, damage, swaps
        self.older = Random(f"{self.name}/{seed}/older")
        """Chance apart, so that a seed's execution is the same without backfills."""
        drawn_apart = Random(f"{self.name}/{seed}/in order").random() < IN_ORDER
        if flow is None and seed % 3 == 0 and drawn_apart:
            flow = "in_order_at_last"
        self.job = Job(
            self.rng, flow, longest, letters=letters, older=self.older, backfills=backfills, refusals=refusals
        )
        self.job.sinks.mark_every = (1, 7, 40)[seed // 4 % 3] if seed % 4 == 3 else 0
        if Random(f"{self.name}/{seed}/strands").random() < by_lane:
            self.job.sinks.in_strands = False
        self._growing = Random(f"{self.name}/{seed}/growing")
        """Chance apart, and in some seeds only, so that all others are the same without it."""
        self._grows = (GROWING if seed % GROWS == GROWS - 1 else 0.0) if grows is None else grows
        self._shelving = Random(f"{self.name}/{seed}/shelved")
        """Chance apart, so that a seed's execution is the same without a disk."""
        self._shelved = self._shelving.random() < shelved
        tracing = Random(f"{self.name}/{seed}/traced")
        self.tracing = Tracing(tracing.choice([0.2, 1.0])) if tracing.random() < traced else None
        """With chance apart, too."""
        self.parting = Random(f"{self.name}/{seed}/early keys")
        """With chance apart, too, and in some seeds only, so that all others are the same without it."""
        drawn = EARLY_KEYS if seed % 3 == 0 else 0.0
        self.early_keys = drawn if early_keys is None else early_keys
        self.sleeps_at = {self.parting.randrange(20, 500) for _ in range(3)}
        """The steps after which one worker sleeps."""
        self.snapshots = snapshots
        self.rewinds = rewinds
        self.silent = self.older.random() < silent
        """Whether nobody is told of delivered time."""
        self.wrongness, self.at_sinks = wrong, at_sinks
        self.wrong: Wrong | None = None
        self.idleness = idle or self.rng.choice([4, 4, 15])
        self.lives = 0
        self.now_ms = FIRST_MS
        self.begin()

    def begin(self) -> None:
        """A life begins: sinks are asked, state is loaded, fronts are read from the commit on."""
        rng = self.rng
        self.lives += 1
        if self.lives > 1 and self._growing.random() < self._grows:
            self.counts["grown"] += 1
            lanes = self.job.grow(self._growing)
            if self.trace:
                self.say("job", f"has {lanes} lanes from now on")
        grouping: Grouping = self.grouping or rng.choice(["optimistic", "ordered"])  # type: ignore[assignment]
        workers, early_keys = rng.choice([1, 2, 4]), self.parting.random() < self.early_keys
        job, plan = self.job, self.job.plan(workers, grouping, early_keys=early_keys)
        if self.wrong is None and not job.letters and rng.random() < self.wrongness:
            self.wrong = draw_wrong(rng, plan, self.at_sinks)
        plan = plan if self.wrong is None else self.wrong.put_into(plan)
        self.now_ms -= rng.choice([0, 0, 40])  # Another broker leads, and its clock is behind.
        commit = job.recovered(self.damage, self.rewinds)
        manifests, archive = job.of_manifests(), job.archive_for(commit)
        self.above = job.committed_tick
        """Below this nothing is committed, wherever the life begins (R16)."""
        known = job.logs, job.sinks, commit, manifests, archive, job.told_time, self.above
        shelves = drawn_shelves(self._shelving) if self._shelved else None
        self.life = Life(
            rng, self.lives, plan, *known, job.services, shelves=shelves, tracing=self.tracing, names=self.names
        )
        if rng.random() >= SHARING:
            self.life.restored = None
        self.model, self.tracking = self.life.model, self.life.tracking
        if self.trace:
            self.say(
                "job",
                f"life {self.lives} of {job.flow}, {grouping}, parallelism {plan.parallelism}"
                f"{', early keys' if early_keys else ''}, from {self.life.start}",
            )
            self.say("job", f"wrong is {self.wrong}")

    def kill(self) -> None:
        """The life ends, and the next one begins; often with a partition that nobody has seen."""
        self.job.left += self.life.left_in_topics()
        self.life.end()
        self.count_evicted()
        self.begin()
        if self.rng.random() < 0.7:
            self.discover()

    def count_evicted(self) -> None:
        """Note what has left memory in a life that is over."""
        self.counts["evicted"] += 0 if self.life.shelves is None else self.life.shelves.evicted

    def correct(self, error: AtRecord) -> None:
        """The life has ended at a record: the function that is wrong is corrected, and the next one begins."""
        if self.wrong is None:
            raise error
        self.wrong.found_by(error)
        if self.trace:
            self.say("job", f"ends: {error.what}")
        self.wrong = None
        self.kill()

    # -- steps -----------------------------------------------------------------------------------------------------

    def chances(self) -> list[tuple[int, str, Step]]:
        """The steps there are."""
        return [
            (9, "appear", self.appear),
            (12, "pull", self.pull),
            (self.idleness, "idle", self.idle),
            (24, "deliver", self.deliver),
            (24, "flush", self.flush),
            (24, "arrive", self.arrive),
            (18, "hear", self.hear),
            (10, "store", self.store),
            (10, "answer", self.answer),
            (2, "keep", self.keep),
            (1, "discover", lambda: self.rng.random() < 0.2 and self.discover()),
            (6, "rest", self.rest),
            (12, "go on", self.go_on),
            (2, "double", self.double),
            (2, "connect", self.connect),
            (self.snapshots + BESIDE, "request", self.request),
            (3 * self.snapshots, "capture", self.capture),
            (2 * self.snapshots, "seal", self.seal),
            (1, "rare", self.rare),
            *([(4, "old", self.old)] if self.life.segments.cyclic else []),
        ]

    def appear(self) -> bool:
        """A message comes into a log; the broker's clock goes on."""
        log = self.rng.choice(list(self.job.logs.values()))
        if log.visible == len(log.messages):
            return False
        stamp = log.came_ms(log.visible)
        log.visible += 1
        if stamp < NEVER_MS:  # Producers' clocks may be ahead of the broker's.
            self.now_ms = max(self.now_ms, stamp - self.rng.choice([0, 0, 20, 50]))
        if self.trace:
            self.say(
                f"front {log.front}", f"has message {log.messages[log.visible - 1].position.sequence} at {stamp} ms"
            )
        return True

    def pull(self) -> bool:
        """A front reads some of what is there."""
        life, rng = self.life, self.rng
        log = rng.choice(list(self.job.logs.values()))
        there = log.visible - life.read[log.front]
        front = life.cores[life.of_front[log.front]].front
        if there <= 0 or front is None or not front.pulling:
            return False
        count = rng.randint(1, there)
        life.pull(log.front, count, self.now_ms)
        if self.trace:
            self.say(f"front {log.front}", f"reads {count}; parked {front.parked}, heartbeat {front.heartbeat}")
        return True

    def idle(self) -> bool:
        """The service looks at a partition's end, and later grants its front a floor from there on (R2)."""
        life, rng = self.life, self.rng
        if life.grants and rng.random() < 0.5:
            floor = life.grants.pop(rng.randrange(len(life.grants)))
            taken = life.grant(floor)
            if taken and self.trace:
                self.say(f"front {floor.front}", f"is granted tick {floor.tick} from offset {floor.offset}")
            return taken
        log = rng.choice(list(self.job.logs.values()))
        # Now and then its clock is ahead of that of the producers.
        life.grants.append(Floor(log.front, log.end, self.now_ms // self.job.slack_ms + rng.choice([-3, 0, 4, 15])))
        return True

    def deliver(self) -> bool:
        """A frame arrives."""
        life = self.life
        channels = [channel for channel, frames in life.channels.items() if frames.queue]
        if not channels:
            return False
        channel = self.rng.choice(channels)
        _, frame = life.channels[channel].queue[0]
        if self.trace:
            flags = frame.batch.flags or [False] * len(frame.batch)
            records = zip(frame.batch.ats, flags, strict=True)
            said = " ".join(f"{'-' if tombstone else '+'}{tick_of(at)}" for at, tombstone in records)
            self.say(f"worker {channel[1]}", f"takes a frame of worker {channel[0]}: {said}")
        if not life.deliver(channel):
            if self.trace:
                self.say(f"worker {channel[1]}", f"misses a frame of worker {channel[0]}: the life ends")
            self.kill()
        return True

    def hear(self) -> bool:
        """A worker hears notices, and what is delivered is looked at."""
        try:
            heard = super().hear()
        except AtRecord as error:
            self.correct(error)
            return True
        if heard:
            self.check_delivered()
        return heard

    def store(self) -> bool:
        """A sink makes a bundle durable."""
        life = self.life
        if not life.bundles:
            return False
        place = self.rng.randrange(len(life.bundles))
        if self.trace:
            worker, sink, bundle = life.bundles[place]
            name = life.plan.vertices[sink].name
            self.say("sink", f"{name}/{bundle.lane} takes {len(bundle)} of worker {worker}, last {bundle.last_key}")
        life.store(place)
        return True

    def answer(self) -> bool:
        """A worker hears that its bundle is durable."""
        life = self.life
        if not life.answers:
            return False
        place = self.rng.randrange(len(life.answers))
        if self.trace:
            worker, sink, lane = life.answers[place]
            self.say(f"worker {worker}", f"hears that {life.plan.vertices[sink].name}/{lane} has its bundle")
        life.answer(place)
        self.check_delivered()
        return True

    def old(self) -> bool:
        """A frame of an older life comes out of a loop's topic."""
        if not self.job.left:
            return False
        incarnation, frame = self.job.left.pop(self.rng.randrange(len(self.job.left)))
        taken = self.life.came_round(incarnation, frame)
        if self.trace:
            self.say("kafka", f"gives a frame of life {incarnation}, which is {'taken' if taken else 'skipped'}")
        return True

    def keep(self) -> bool:
        """A worker sees to floors that no bundle has carried."""
        worker = self.rng.randrange(len(self.life.cores))
        kept = self.life.keep_floors(worker)
        if kept and self.trace:
            self.say(f"worker {worker}", "hands on floors that no bundle has carried")
        self.check_delivered()
        return kept

    def rest(self) -> bool:
        """A worker has nothing else to do."""
        worker = self.rng.randrange(len(self.life.cores))
        found = self.life.rest(worker)
        if found and self.trace:
            self.say(f"worker {worker}", "works further ahead")
        return found

    def go_on(self) -> bool:
        """A worker does a further portion of what min time has let go on."""
        worker = self.rng.randrange(len(self.life.cores))
        try:
            found = self.life.go_on(worker)
        except AtRecord as error:
            self.correct(error)
            return True
        if found:
            if self.trace:
                self.say(f"worker {worker}", "goes on with what it had begun")
            self.check_delivered()
        return found

    def discover(self) -> bool:
        """A source gets one more partition."""
        if not self.job.later or self.tracking.tracker.missing:
            return False
        log = self.job.later.pop(0)
        self.job.logs[log.front] = log
        self.life.discover(log)
        if self.trace:
            self.say(f"front {log.front}", f"is a new partition of {log.source}, from tick {log.opening} on")
        return True

    def double(self) -> bool:
        """A flush is sent twice."""
        line = self.unsettled()
        if line is None:
            return False
        self.tracking.double(line)
        if self.trace:
            self.say("network", f"doubles flush {line.up[0].number} of worker {line.local.worker}")
        return True

    def connect(self) -> bool:
        """A worker's connection is lost and recreated."""
        lines = self.tracking.lines
        lost = [line for line in lines if not line.connected]
        if not lost and self.rng.random() < 0.9:
            return False
        line = self.rng.choice(lost or lines)
        self.tracking.connect(line)
        if self.trace:
            self.say(f"worker {line.local.worker}", "connects again")
        return True

    def request(self) -> bool:
        """A snapshot is asked for; sooner where one is being written slowly, so that it is beside that one."""
        beside = self.life.takings and self.life.slow
        if not beside and self.rng.random() * (self.snapshots + BESIDE) > self.snapshots:
            return False
        tick = self.life.ask()
        if tick is not None and self.trace:
            self.say("job", f"asks for a snapshot at {tick}")
        return tick is not None

    def capture(self) -> bool:
        """A worker captures its share of a snapshot; where snapshots are written slowly, all that can do so."""
        try:
            worker = self.life.capture()
            for _ in range(len(self.life.cores) if self.life.slow else 0):
                self.life.capture()
        except AtRecord as error:
            self.correct(error)
            return True
        if worker is not None and self.trace:
            self.say(f"worker {worker}", "has captured its state")
        return worker is not None

    def seal(self) -> bool:
        """A snapshot is committed, if all of it is there."""
        commit = self.life.seal()
        if commit is None or commit.tick <= self.above:
            return False
        self.job.keep(commit, self.life)
        if self.trace:
            self.say("job", f"has committed the snapshot at {commit.tick}, from {dict(commit.starts)}")
        return True

    def rare(self) -> bool:
        """The tracker's process dies; a frame is lost; the life is killed."""
        rng, life = self.rng, self.life
        if rng.random() < self.faults * 25:
            channels = [each for each, frames in life.channels.items() if frames.queue and not life.neighbours(each)]
            if not channels or rng.random() >= self.swaps:
                self.kill()
                return True
            longer = [channel for channel in channels if len(life.channels[channel].queue) > 1]
            self._disturb(rng.choice(longer or channels))
            return True
        if rng.random() < 0.1:
            self.tracking.crash()
            life.give_up()
            if self.trace:
                self.say("tracker", "died; another one waits for all workers")
            return True
        return False

    def _disturb(self, channel: tuple[int, int]) -> None:
        """A frame is lost, or overtaken: the next one's number gives it away, or the watchdog does."""
        queue = self.life.channels[channel].queue
        if len(queue) > 1 and self.rng.random() < 0.5:
            queue[0], queue[1] = queue[1], queue[0]
        else:
            queue.popleft()
        if self.trace:
            self.say("network", f"loses or swaps frames of worker {channel[0]} to worker {channel[1]}")

    # -- laws ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """See `World`; and what is told to be done has left what was waited for."""
        super().check()
        self.check_done()
        if self.steps in self.sleeps_at:
            self.sleeps_at.remove(self.steps)
            self.sleep()

    def check_done(self) -> None:
        """No step has told of a tick as done that is open where `through` stands."""
        plan, least = self.life.plan, None
        for core in self.life.cores:
            for node in core.program.holding:
                if not isinstance(node, WindowNode) or not isinstance(node.vertex.step, WhenDone):
                    continue
                if len(node.vertex.parents) == 1:
                    continue  # It waits for no other stream.
                through = plan.vertices[node.vertex.parents[1]]
                while not isinstance(through.step, Through):
                    through = plan.vertices[through.parents[0]]
                least, told = least or self.model.least(), node._pending.released
                segments = self.life.segments
                waits = segments.waits[through.id]
                for segment in {*waits, *(part for each in waits for part in segments.parts.get(each, ()))}:
                    open_ = least[segment]
                    if open_ is not None and told > open_:
                        what = f'"{node.vertex.name}" has told of all below {told}, segment {segment} is at {open_}'
                        raise Violation("safety", what)

    def check_delivered(self) -> None:
        """R18: what delivered time promises is in the sinks; what it promised is looked at again at the end."""
        time = self.life.delivered_time()
        for _, _, bundle in self.life.bundles:
            if len(bundle) and bundle.pieces[0].tick < time:
                raise Violation("safety", f"delivered time is {time}, tick {bundle.pieces[0].tick} is not durable")
            # Those up to its start a life only says again.
            if bundle.mark is not None and self.life.start < bundle.mark <= time:
                raise Violation("safety", f"delivered time is {time}, lane {bundle.lane} is not marked {bundle.mark}")
        if not self.silent:
            self.job.tell(time)

    # -- the end ---------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Nothing fails any more, all messages are there, all fronts go far ahead: everything has to be delivered."""
        self.wrongness = 0.0
        while True:
            try:
                self._drain()
            except AtRecord as error:
                if self.job.strikes:  # What was granted so far is below the end of the next life, too.
                    self.now_ms = self.job.last_tick(self.now_ms) * self.job.slack_ms
                self.correct(error)
            else:
                break
        self.job.check(self.life)
        self.count_evicted()
        if self.tracing is not None:
            self.life.catch_up()
            self.tracing.check_over(self.life.watching)
            self.counts["spans"] += self.tracing.spans

    def _drain(self) -> None:
        if any(channel.broken for channel in self.life.channels.values()):
            self.kill()
        life = self.life
        for log in self.job.logs.values():
            log.visible = len(log.messages)
        for line in life.tracking.lines:
            if not line.connected:
                life.tracking.connect(line)
        if any(log.age_ms for log in self.job.logs.values()):
            self._flow_on()
        quiet, last = 0, self.job.last_tick(self.now_ms)
        if not self.job.strikes:  # A life that ended while it was drained may have gone further.
            last = max(last, self.now_ms // self.job.slack_ms + 1)
        for round_ in range(MAX_DRAIN_ROUNDS):
            far = last if self.job.strikes or self.job.ended else last + DRAIN_TICKS * round_
            quiet = 0 if self._round(far) else quiet + 1
            self.check()
            if quiet > QUIET_ROUNDS:
                break

    def sleep(self) -> None:
        """One worker sleeps while the others go on; then it wakes up."""
        life = self.life
        if not life.segments.parts or any(channel.broken for channel in life.channels.values()):
            return
        for line in life.tracking.lines:
            if not line.connected:
                life.tracking.connect(line)
        try:
            self._one_sleeps()
        except AtRecord as error:
            self.correct(error)

    def _one_sleeps(self) -> None:
        """One worker takes no frames any more: the lanes of others go on as far as what all have in common does (F5).

        That is what the parts of its segments are fed by, and outlets: neither knows of frames to one worker.
        """
        life, segments, quiet = self.life, self.life.segments, 0
        parted = [core for core in life.cores if any(map(segments.parts.get, self._entries(core)))]
        asleep = self.parting.choice(parted)
        ends = {channel for channel in life.channels if life.cores[channel[1]] is asleep}
        for _ in range(MAX_DRAIN_ROUNDS):
            reached = self._reached()
            moved = [*[self._read(log, None) for log in self.job.logs.values()], self._settle(but=asleep)]
            self.check()
            quiet = 0 if any(moved) or self._reached() != reached else quiet + 1
            if quiet > FEW_QUIET_ROUNDS:
                break
        self.counts["slept"] += any(life.channels[each].queue for each in ends)
        least = self.model.least()
        for core in life.cores:
            if core is not asleep and core.level:
                for segment in self._entries(core):
                    if segment in segments.parts:
                        self._check_awake(core, segment, least)

    def _entries(self, core: WorkerCore) -> set[int]:
        """The segments of the exchanges to a worker, parted or not."""
        plan = self.life.plan
        return {self.life.segments.of_exchange[each.id] for each in plan.exchanges() if each.level == core.level}

    def _check_awake(self, core: WorkerCore, segment: int, least: Mapping[int, int | None]) -> None:
        """See that a worker's part is where the segment may be, and that its lanes have given what lies below."""
        life, segments, bound = self.life, self.life.segments, least[segment]
        if bound is None:
            return
        who, reached = f"worker {core.level}/{core.place}", core.tracker.min_time(segments.at(segment, core.place))
        if reached < bound:
            raise Violation("liveness", f"{who} waits at {reached} for another one: segment {segment} is at {bound}")
        for branch in core.branches:
            for sink, barrier, outlet, _ in branch.sinks:
                if segments.waits[sink] != (segment,) or not core.program.asking.keys().isdisjoint(
                    segments.after[sink]
                ):
                    continue
                ends = [bound, core._lead_end, None if outlet is None else least[outlet]]
                first, below = barrier.first_tick, min([end for end in ends if end is not None])
                if first is not None and first < below:
                    raise Violation("liveness", f"{who} does not release {first}, though all below {below} is there")
                ahead = below > life.tracking.tracker.global_min
                self.counts["ahead"] += ahead and barrier.sent_time > life.tracking.tracker.global_min

    def _flow_on(self) -> None:
        """Backfills flow on without a gap: whatever the service grants, its front has read on by then.

        Laws: min time follows all the same, and where nothing is granted, no tick grows beyond the front's window.
        """
        life, slack_ms = self.life, self.job.slack_ms
        logs, granted, half = list(self.job.logs.values()), self.older.random() < 0.7, 0
        self._settle_for_long()
        self.now_ms = max(self.now_ms, max(front.heartbeat for front in life.fronts) * slack_ms)
        began_ms = self.now_ms
        for round_ in range(FLOW_ROUNDS):
            self.now_ms += FLOW_MS
            full = {log.front: label for log in logs if (label := self._full(log)) is not None}
            held = {front: life.labels[front].bytes for front in full}
            for log in logs:
                look = Floor(log.front, log.end, self.now_ms // slack_ms)
                if log.age_ms:
                    log.append(began_ms - log.age_ms, Document("a", "to be"))
                    self._read(log, None)
                if granted or not log.age_ms:
                    life.grant(look)
            self._settle_for_long()
            for front, label in full.items():
                if life.labels[front].before == label and life.labels[front].bytes > held[front]:
                    raise Violation("liveness", f"front {front} goes on filling tick {label}, which its window bounds")
            half = half or (self.now_ms if 2 * round_ >= FLOW_ROUNDS else 0)
        reached = life.tracking.tracker.global_min * slack_ms
        if granted and reached < half:
            raise Violation("liveness", f"min time stands at {reached} ms of {self.now_ms}, though backfills flow")

    def _settle_for_long(self) -> None:
        """All that is there is read, and dealt with; what is ahead of a window, or due, goes on tick by tick."""
        logs, quiet = self.job.logs.values(), 0
        for _ in range(MAX_DRAIN_ROUNDS):
            before = self._reached()
            moved = [*[self._read(log, None) for log in logs], self._settle()]
            self.check()
            quiet = 0 if any(moved) or self._reached() != before else quiet + 1
            if quiet > FEW_QUIET_ROUNDS:
                break

    def _full(self, log: Log) -> int | None:
        """The label that a backfill's front has filled its window with, if it may give another one."""
        labels, front = self.life.labels[log.front], self.life.cores[self.life.of_front[log.front]].front
        assert front is not None
        # What is relied on may be what another life has let out a part of.
        relied_on = max(self.life.relied_on, log.opening or 0)
        closes = relied_on <= labels.before < self.now_ms // self.job.slack_ms
        closes = closes and not front.parked and front._own.stands(self.now_ms)
        full = front.older and labels.bytes >= self.life.window.max_bytes
        return labels.before if log.age_ms and closes and full else None

    def _round(self, tick: int) -> bool:
        """Everything that can happen happens once; whether records or min time moved."""
        life = self.life
        before = self._reached()
        moved = [self._read(log, tick) for log in self.job.logs.values()]
        moved.append(self._settle())
        # Behind what lies ahead of a window, or is due, min time goes on tick by tick.
        steps = any(any(early.values()) for early in life.early) or any(core.program.clocked for core in life.cores)
        return (steps and self._reached() > before) or any(moved)

    def _settle(self, but: WorkerCore | None = None) -> bool:
        """All that is on its way arrives, but to one worker, and is dealt with; whether there was anything."""
        life, moved = self.life, []
        # What comes round waits until all that is on its way has come: so few guesses are wrong.
        for _ in range(MAX_TURNS):
            moved.append(self._deliver(but))
            if not any([life.go_round(worker) for worker in range(len(life.cores))]):
                break
        self._flush_and_hear()
        moved += [life.go_on_to_the_end(worker) for worker in range(len(life.cores))]
        while life.bundles or life.answers or life.asked:
            if life.asked:
                life.reply([0], calm=True)
            if life.bundles:
                life.store(0)
            if life.answers:
                life.answer(0)
            moved.append(True)
        return any(moved)

    def _flush_and_hear(self) -> None:
        """All flushes arrive, and all that the tracker says of it."""
        tracking = self.life.tracking
        for line in tracking.lines:
            tracking.send(line)
            while line.up:
                tracking.arrive(line)
            while line.down:
                tracking.tell(line, 1)
        while tracking.catch_up():
            for line in tracking.lines:
                while line.down:
                    tracking.tell(line, 1)

    def _deliver(self, but: WorkerCore | None) -> bool:
        """All frames that are on their way arrive, but to one worker; whether there were any."""
        life, moved = self.life, False
        for channel in list(life.channels):
            while life.cores[channel[1]] is not but and life.channels[channel].queue:
                if not life.deliver(channel):
                    raise Violation("error", f"frames of worker {channel[0]} to worker {channel[1]} are out of order")
                moved = True
        return moved

    def _reached(self) -> int:
        branches = [(branch, core._lead_end) for core in self.life.cores for branch in core.branches]
        return sum(min(tick, LAST_TICK) for branch, end in branches for tick in (branch.min_time, branch.limit(end)))

    def _read(self, log: Log, tick: int | None) -> bool:
        """A front reads what is left, or goes on to a tick if there is one; whether it read."""
        life = self.life
        core = life.cores[life.of_front[log.front]]
        assert core.front is not None
        left = log.visible - life.read[log.front]
        if left and core.front.pulling:
            life.pull(log.front, left, self.now_ms)
            return True
        if (
            tick is not None
            and not left
            and not core.front.parked
            and core.tracker.global_min >= core.front.heartbeat - 1
        ):
            life.grant(Floor(log.front, core.front.next_offset, tick))
        return False
