"""Compiled flows over several lives: delivered output has to be what `run_log` gives, per lane, byte by byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import ClassVar, Literal

from programs import by_lane
from state_flows import FLOWS

from lowtide import Flow, kafka, raw
from lowtide.compiler import compile_flow
from lowtide.fronts.floors import Floors
from lowtide.local import run_log
from lowtide.plan import Plan
from lowtide_tracker import Floor, Flush, FlushGap

from .life import Commit, Life
from .logs import FIRST_MS, draw_log
from .sinks import Sinks
from .verdict import Violation
from .world import Step, Trace, World

MAX_DRAIN_ROUNDS = 200
QUIET_ROUNDS = 12
LAST_TICK = 10**6
UNITS, LANES, SLACK_MS = 8, 4, 2

Grouping = Literal["optimistic", "ordered"]
BUILD = {build.__name__: build for build in FLOWS}


@cache
def plan_of(flow: str, parallelism: int, grouping: Grouping) -> Plan:
    """The plan of one of the flows; made once."""
    made = Flow(flow, dead_letters=kafka("dead", raw()))
    BUILD[flow](made)
    return compile_flow(made, units=UNITS, lanes=LANES, parallelism=parallelism, slack_ms=SLACK_MS, grouping=grouping)


class FlowWorld(World):
    """A job: one of the flows, one to three fronts, sinks, snapshots, and lives of which each but the last is killed.

    Args:
        seed: The seed.
        trace: Told every step.
        flow: Which flow; drawn if None.
        grouping: The mode of all lives; drawn for each if None.
        faults: How likely a life is to be killed at a step, or a frame lost.
        grants: Whether fronts are granted floors before the end.
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
        grants: bool = True,
    ) -> None:
        super().__init__(seed, trace)
        rng = self.rng
        self.flow = flow or rng.choice(sorted(BUILD))
        self.grouping = grouping
        self.faults, self.grants = faults, grants
        plan = plan_of(self.flow, 1, "optimistic")
        names = [vertex.name for vertex in plan.sources()]
        self.logs = {
            front: draw_log(rng, front, names[front % len(names)]) for front in range(rng.randint(len(names), 3))
        }
        for log in self.logs.values():
            log.opening = 0
        self.sinks = Sinks(plan)
        self.commit: Commit | None = None
        self.lives = 0
        self.clean = True
        self.now_ms = FIRST_MS
        self.begin()

    def begin(self) -> None:
        """A life begins: sinks are asked, state is loaded, fronts are read from the commit on."""
        rng = self.rng
        self.lives += 1
        grouping: Grouping = self.grouping or rng.choice(["optimistic", "ordered"])  # type: ignore[assignment]
        plan = plan_of(self.flow, rng.choice([1, 2, 4]), grouping)
        self.life = Life(rng, self.lives, plan, self.logs, self.sinks, self.commit)
        self.model, self.tracking = self.life.model, self.life.tracking
        self.tracking.request = self.life.ask
        self._chances = []
        if self.trace:
            self.say(
                "job",
                f"life {self.lives} of {self.flow}, {grouping}, parallelism {plan.parallelism}, from {self.life.start}",
            )

    # -- steps -----------------------------------------------------------------------------------------------------

    def chances(self) -> list[tuple[int, str, Step]]:
        """The steps there are."""
        return [
            (6, "appear", self.appear),
            (10, "pull", self.pull),
            (4, "idle", self.idle),
            (24, "deliver", self.deliver),
            (24, "flush", self.flush),
            (24, "arrive", self.arrive),
            (18, "hear", self.hear),
            (10, "store", self.store),
            (2, "double", self.double),
            (2, "connect", self.connect),
            (3, "capture", self.capture),
            (2, "seal", self.seal),
            (1, "rare", self.rare),
        ]

    def appear(self) -> bool:
        """A message comes into a log; the broker's clock goes on."""
        log = self.rng.choice(list(self.logs.values()))
        if log.visible == len(log.messages):
            return False
        stamp = log.messages[log.visible].timestamp
        log.visible += 1
        self.now_ms = max(self.now_ms, stamp if stamp < 10**6 else 0)
        if self.trace:
            self.say(
                f"front {log.front}", f"has message {log.messages[log.visible - 1].position.sequence} at {stamp} ms"
            )
        return True

    def pull(self) -> bool:
        """A front reads some of what is there."""
        life, rng = self.life, self.rng
        log = rng.choice(list(self.logs.values()))
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
        if not self.grants:
            return False
        if life.grants and rng.random() < 0.5:
            floor = life.grants.pop(rng.randrange(len(life.grants)))
            taken = life.grant(floor)
            if taken and self.trace:
                self.say(f"front {floor.front}", f"is granted tick {floor.tick} from offset {floor.offset}")
            return taken
        log = rng.choice(list(self.logs.values()))
        # Now and then its clock is ahead of that of the producers.
        life.grants.append(Floor(log.front, log.end, self.now_ms // SLACK_MS + rng.choice([-3, 0, 4])))
        return True

    def deliver(self) -> bool:
        """A frame arrives."""
        life = self.life
        channels = [channel for channel, frames in life.channels.items() if frames]
        if not channels:
            return False
        channel = self.rng.choice(channels)
        if channel in life.gaps:
            if self.trace:
                self.say(f"worker {channel[1]}", f"misses a frame of worker {channel[0]}: the life ends")
            self.clean = False
            self.begin()
            return True
        frame = life.channels[channel][0]
        if self.trace:
            records = list(zip(frame.batch.meta.tick.tolist(), frame.batch.meta.tombstone.tolist(), strict=True))
            said = " ".join(f"{'-' if tombstone else '+'}{tick}" for tick, tombstone in records)
            self.say(f"worker {channel[1]}", f"takes a frame of worker {channel[0]}: {said}")
        life.deliver(channel)
        return True

    def flush(self) -> bool:
        """A worker flushes."""
        line = self.rng.choice(self.tracking.lines)
        done = self.tracking.send(line)
        if done and self.trace:
            self.say(f"worker {line.local.worker}", "flushes")
        return done

    def arrive(self) -> bool:
        """A flush arrives."""
        lines = [line for line in self.tracking.lines if line.up]
        if not lines:
            return False
        line = self.rng.choice(lines)
        try:
            message = self.tracking.arrive(line)
        except FlushGap as gap:
            raise Violation("error", str(gap)) from gap
        if self.trace:
            acks = list(zip(message.segments.tolist(), message.ticks.tolist(), strict=True))
            self.say("tracker", f"takes {message.number} of worker {message.worker}: {acks} {message.heartbeats}")
        return True

    def hear(self) -> bool:
        """A worker hears one notice, or several merged."""
        lines = [line for line in self.tracking.lines if line.down]
        if not lines:
            return False
        line = self.rng.choice(lines)
        word = self.tracking.tell(line, self.rng.choice([1, 1, 2, 9]))
        if self.trace:
            asked = "" if word.request is None else f", asked for a snapshot at {word.request}"
            self.say(f"worker {line.local.worker}", f"hears {dict(word.notice.min_times)}{asked}")
        return True

    def store(self) -> bool:
        """A sink makes a bundle durable."""
        life = self.life
        if not life.bundles:
            return False
        place = self.rng.randrange(len(life.bundles))
        if self.trace:
            worker, sink, bundle = life.bundles[place]
            name = life.plan.vertices[sink].name
            self.say("sink", f"{name}/{bundle.lane} takes {len(bundle)} of worker {worker}, last {bundle.last.tick}")
        life.store(place)
        self.check_delivered()
        return True

    def double(self) -> bool:
        """A flush is sent twice."""
        lines = [line for line in self.tracking.lines if line.up and isinstance(line.up[0], Flush)]
        if not lines:
            return False
        self.tracking.double(self.rng.choice(lines))
        return True

    def connect(self) -> bool:
        """A worker's connection is lost and made anew."""
        lines = self.tracking.lines
        lost = [line for line in lines if not line.connected]
        if not lost and self.rng.random() < 0.9:
            return False
        self.tracking.connect(self.rng.choice(lost or lines))
        return True

    def capture(self) -> bool:
        """A worker captures its share of a snapshot."""
        return self.life.capture()

    def seal(self) -> bool:
        """A snapshot is committed, if all of it is there."""
        commit = self.life.seal()
        if commit is None:
            return False
        self.commit = commit
        if self.trace:
            self.say("job", f"has committed the snapshot at {commit.tick}, from {dict(commit.starts)}")
        return True

    def rare(self) -> bool:
        """The tracker's process dies; a frame is lost; the life is killed."""
        rng, life = self.rng, self.life
        if rng.random() < self.faults * 25:
            channels = [channel for channel, frames in life.channels.items() if frames]
            if channels and rng.random() < 0.2:
                # The next one's number gives it away, or the watchdog: until then min time has to stand below it.
                channel = rng.choice(channels)
                life.channels[channel].popleft()
                life.gaps.add(channel)
                if self.trace:
                    self.say("network", f"loses a frame of worker {channel[0]} to worker {channel[1]}")
                return True
            self.clean = False
            self.begin()
            return True
        if rng.random() < 0.1:
            self.tracking.crash()
            if self.trace:
                self.say("tracker", "died; another one waits for all workers")
            return True
        return False

    # -- laws ------------------------------------------------------------------------------------------------------

    def check_delivered(self) -> None:
        """R18: what delivered time promises is in the sinks."""
        time = self.life.delivered_time()
        waiting = [bundle for _, _, bundle in self.life.bundles if len(bundle)]
        for bundle in waiting:
            tick = int(bundle.batch.meta.tick[0])
            if tick < time:
                raise Violation("safety", f"delivered time is {time}, a record of tick {tick} is not durable")

    # -- the end ---------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Nothing fails any more, all messages are there, all fronts go far ahead: everything has to be delivered."""
        if self.life.gaps:
            self.begin()
            self.clean = False
        life = self.life
        for log in self.logs.values():
            log.visible = len(log.messages)
        for line in life.tracking.lines:
            if not line.connected:
                life.tracking.connect(line)
        quiet = 0
        for round_ in range(MAX_DRAIN_ROUNDS):
            quiet = 0 if self._round(LAST_TICK + round_) else quiet + 1
            self.check()
            if quiet > QUIET_ROUNDS:
                break
        self.check_output()

    def _round(self, tick: int) -> bool:
        """Everything that can happen happens once; whether records moved."""
        life = self.life
        moved = False
        for log in self.logs.values():
            core = life.cores[life.of_front[log.front]]
            assert core.front is not None
            left = log.visible - life.read[log.front]
            if left and core.front.pulling:
                life.pull(log.front, left, self.now_ms)
                moved = True
            elif not left and not core.front.parked and core.tracker.global_min >= core.front.heartbeat - 1:
                life.grant(Floor(log.front, core.front.next_offset, tick))
        for channel in list(life.channels):
            while life.channels[channel]:
                life.deliver(channel)
                moved = True
        for line in life.tracking.lines:
            life.tracking.send(line)
            while line.up:
                life.tracking.arrive(line)
            while line.down:
                life.tracking.tell(line, 1)
        while life.bundles:
            life.store(0)
            moved = True
        return moved

    def check_output(self) -> None:
        """What the sinks hold is what the oracle delivers, with the floors that are durable or in force."""
        life = self.life
        floors = Floors(floor for log in self.logs.values() for floor in [Floor(log.front, 0, log.opening or 0)])
        for durable in self.sinks.floors():
            floors.merge(durable)
        for front in (core.front for core in life.cores):
            if front is not None:
                floors.merge(front._floors.of_front(front.number))
        log = {name: [] for name in {each.source for each in self.logs.values()}}  # type: ignore[var-annotated]
        for each in self.logs.values():
            log[each.source] += each.messages
        expected, dead = run_log(life.plan, log, list(floors))
        given = {vertex.name: {} for vertex in life.plan.sinks()}  # type: ignore[var-annotated]
        for (sink, lane), stored in self.sinks.lanes.items():
            if stored.messages:
                given[life.plan.vertices[sink].name][lane] = stored.messages
        wanted = by_lane(expected)
        for name, lanes in wanted.items():
            for lane in sorted({*lanes, *given[name]}):
                _compare(f"{name}/{lane}", given[name].get(lane, []), lanes.get(lane, []))
        if self.clean and Counter(map(repr, life.letters)) != Counter(map(repr, dead)):
            raise Violation("output", f"dead letters {life.letters} instead of {dead}")


def _compare(lane: str, given: Sequence[object], wanted: Sequence[object]) -> None:
    """Sequences, not sets."""
    if given == wanted:
        return
    place = next((i for i, (one, other) in enumerate(zip(given, wanted, strict=False)) if one != other), None)
    if place is None and len(given) < len(wanted):
        raise Violation("liveness", f"{lane} has {len(given)} of {len(wanted)} messages; next is {wanted[len(given)]}")
    place = len(wanted) if place is None else place
    other = wanted[place] if place < len(wanted) else "nothing"
    raise Violation("output", f"{lane}: message {place} is {given[place]}, not {other}")
