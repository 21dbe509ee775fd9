"""Carriers of one staged sink, several at once and one after the other, killed anywhere, on stores that answer late.

The real carriers run, with the loop around them and what reads, reports and cuts the staged log. Simulated are Kafka,
the store and the clock. Each carrier is an actor (`commit_actors.py`), and so is each of its threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Self, TypeVar

from lowtide.core.fronts.end import end_tick
from lowtide.errors import LowtideError, ServiceUnavailable
from lowtide.flow.plan.lane_partitions import births_of, partition_of_lane
from lowtide.sinks.errors import CatalogUnavailable, CommitConflict, Overtaken, PlaceTaken, StagedLost
from lowtide.sinks.files import carrier as files_carrier
from lowtide.sinks.files import groups as files_groups
from lowtide.sinks.files.endpoint import Files
from lowtide.sinks.files.formats import JsonLines
from lowtide.sinks.puts import carrier as puts_carrier
from lowtide.sinks.staged import carry
from lowtide.sinks.staged import log as staged_log
from lowtide.sinks.staged.contract import Carriage, Carrier, Progress, StagedRow
from lowtide.sinks.staged.log import Backlog, StagedLog
from lowtide.sinks.tables import carrier as tables_carrier

from .carrier_stores import Lane, Log, Objects, Requests, Rows, SimulatedTable, SimulatedTopic, Versioned
from .commit_actors import Actor
from .mutation import Patch, swapped
from .verdict import Violation
from .world import Step, Trace, World

T = TypeVar("T")
SLACK_MS, ROLL_MS, MARK_MS = 10, 20_000, 5_000
FIRST_MS = 1_700_000_000_000 // ROLL_MS * ROLL_MS
LAST_MARK_MS = end_tick(SLACK_MS) * SLACK_MS // ROLL_MS * ROLL_MS
COMMIT_EVERY_S = 2.0
MAX_CARRIERS = 3
MAX_DRAIN_STEPS = 3_000
WAITING_BYTES = 3_000
"""Some ten rows, after which lanes rest until others have come as far."""
WORKERS = (1, 2, 3)
"""By chance as many groups of lanes share files."""
STORES = ("files", "table", "puts")
DRAWN: dict[str, list[float]] = {
    "lost": [0, 0.03, 0.1],
    "lanes": [1, 2, 3],
    "file_bytes": [60, 1 << 20],
    "begins": [3, 10],
    "kills": [2, 8],
    "burst": [3, 12, 60],
}
"""What a seed draws unless it is told: how often a request or its answer is lost or late, how many lanes there are, how
large a file is, how likely another carrier begins and one dies, and how much one does at one go."""
GROWS = 10
"""One of so many seeds gets twice as many lanes."""
GROWS_AT = range(2, 30)
"""Before which of its transactions."""
HARMLESS = (Overtaken, CommitConflict, ServiceUnavailable, CatalogUnavailable)
"""Why a carrier may end, so that the next one begins."""
QUIET = logging.Logger("carriers", logging.CRITICAL)


@dataclass(frozen=True)
class Record:
    """A row of the sink."""

    key: str
    number: int


@dataclass(eq=False)
class Process:
    """One carrier with its threads."""

    name: str
    actors: list[Actor] = field(default_factory=list)
    drains: bool = False
    drained: bool = False
    lost: StagedLost | None = None

    @property
    def ended(self) -> bool:
        """Whether its first thread has ended, and with it all others."""
        return self.actors[0].ended

    def kill(self) -> None:
        """End it where it stands."""
        for actor in self.actors:
            actor.kill()


class CarrierWorld(World):
    """One staged sink: its log, its store, and its carriers.

    Args:
        seed: The seed.
        trace: Told what happens.
        store: "files", "table" or "puts"; by chance if it is empty.
        grows: Whether there are more lanes sometime; by the seed if None.
        options: In place of what is drawn.
    """

    name: ClassVar[str] = "carrier"

    def __init__(
        self,
        seed: int,
        trace: Trace | None = None,
        *,
        store: str = "",
        grows: bool | None = None,
        **options: float,
    ) -> None:
        super().__init__(seed, trace)
        drawn = {name: self.rng.choice(of) for name, of in DRAWN.items()} | options
        self._begins, self._kills, self._burst = (int(drawn[name]) for name in ("begins", "kills", "burst"))
        self._mark_every_ms = int(drawn.get("mark_ms", MARK_MS))
        self._marks_again = drawn.get("marks_again", 0.1)
        self.clock_s = 0.0
        self._kind = store or self.rng.choice(STORES)
        self._log = Log([Lane() for _ in range(int(drawn["lanes"]))])
        self._requests = Requests(self.rng, self.stop, drawn["lost"])
        lanes = len(self._log.lanes)
        self._workers = int(drawn.get("workers", Random(f"{self.name}/{seed}/workers").choice(WORKERS)))
        self._counts = [lanes]
        """The numbers of lanes that the job has had."""
        self._growing = growing = Random(f"{self.name}/{seed}/growing")
        grows = seed % GROWS == GROWS - 1 if grows is None else grows
        self._grows_at = growing.choice(GROWS_AT) if grows else -1
        """Chance apart, and in some seeds only, so that all others are the same without it."""
        self._writes = 0
        place = "/lake/at={tick:%Y-%m-%d-%H-%M}/"
        self._files = Files(place, JsonLines(Record), ROLL_MS, int(drawn["file_bytes"]))
        self._objects = Objects(self._files, "sink", self._log, self._requests, min(lanes, self._workers))
        self._rows = Rows(self._log)
        self._puts = Versioned(self._log, self._requests, self.rng, self.own_process)
        self._store: Any = {"files": self._objects, "table": self._rows, "puts": self._puts}[self._kind]
        self._seen: list[int] = [0] * len(self._log.lanes)
        """By lane how many rows readers of the store have been found to see."""
        self._now_ms, self._number, self._life = FIRST_MS, 0, 0
        self._local = threading.local()
        self._processes: list[Process] = []
        self._started = 0
        self._wrong: Violation | None = None

    # -- for carriers ----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Called by an actor before and after each request."""
        actor: Actor | None = getattr(self._local, "actor", None)
        if actor is not None:
            actor.stop()

    def rest(self) -> None:
        """Called by an actor that waits."""
        actor: Actor | None = getattr(self._local, "actor", None)
        if actor is not None:
            actor.rest()

    def monotonic(self) -> float:
        """As of `time`."""
        return self.clock_s

    def sleep(self, wait_s: float) -> None:
        """As of `time`."""
        until_s = self.clock_s + wait_s
        while self.clock_s < until_s:
            self.rest()

    def run_thread(self, process: Process, run: Callable[[], object]) -> Actor:
        """Have a process run something beside what it does."""

        def act(actor: Actor) -> None:
            self._local.actor, self._local.process = actor, process
            run()

        process.actors.append(Actor(process.name, act))
        return process.actors[-1]

    def own_process(self) -> Process:
        """Return the process of the actor that calls."""
        process: Process = self._local.process
        return process

    def _carrier(self) -> Carrier:
        given = self._counts[-1], SLACK_MS, {"limit_s": 5.0}, self._workers
        carriage = Carriage("job", "5f", 0, "sink", *given, tuple(self._counts))
        if self._kind == "files":
            return files_carrier.FilesCarrier(self._files, carriage)
        if self._kind == "puts":
            return puts_carrier.PutsCarrier(carriage, "rows", self._puts, None)
        table = SimulatedTable(self._rows, self._requests)
        return tables_carrier.TableCarrier(table, Record, COMMIT_EVERY_S, carriage)

    def _carry(self, process: Process) -> None:
        topic = SimulatedTopic(self._log, self._requests, self.rng, self.rest, self._cutting)
        births = births_of(self._counts) if self._kind == "puts" else ()
        try:
            with carry.Carrying(StagedLog(topic), self._carrier(), self._reported, births=births) as carrying:
                while not process.drains:
                    carrying.turn()
                    self.stop()
                process.drained = carrying.drain()
        except StagedLost as error:
            process.lost = error
        except PlaceTaken as error:
            if len(topic.lanes) == self._counts[-1]:
                raise
            self._tell(process.name, f"ends, with too few lanes: {error}")
        except HARMLESS as error:
            self._tell(process.name, f"ends: {type(error).__name__}: {error}")

    def _patches(self) -> list[Patch]:
        """What carriers have of threads, time and stores."""
        return [
            (files_carrier, "ThreadPoolExecutor", _AtOnce),
            (files_carrier, "store_of", lambda *_: self._objects),
            (staged_log, "LOG", QUIET),
            (tables_carrier, "time", self),
            (carry, "time", self),
            (puts_carrier, "time", self),
            (puts_carrier, "LINES", 2),
            (files_groups, "WAITING_BYTES", WAITING_BYTES),
            (puts_carrier, "Thread", lambda target, **_: _Thread(self, target)),
            (puts_carrier, "Condition", lambda: _Condition(self)),
        ]

    # -- steps -----------------------------------------------------------------------------------------------------

    def chances(self) -> list[tuple[int, str, Step]]:
        """The steps there are."""
        return [
            (100, "act", self.act),
            (25, "write", self.write),
            (15, "wait", self.wait),
            (8, "late", self._requests.arrive),
            (self._begins, "begin", self.begin),
            (self._kills, "kill", self.kill),
            (1, "compact", self.compact),
        ]

    def run(self, steps: int) -> None:
        """Take so many steps, then let faults stop and one carrier go on alone."""
        with swapped(self._patches()):
            try:
                super().run(steps)
            finally:
                for process in self._processes:
                    process.kill()

    def act(self) -> bool:
        """A thread of a carrier goes on for some requests."""
        if not self._processes:
            return False
        self._resume(self.rng.choice(self._processes), self.rng.choice([1, 1, 2, 4, self._burst]))
        return True

    def write(self) -> bool:
        """A host ends a transaction with rows and marks of some lanes; or it dies, and its life with it."""
        rng = self.rng
        if self._writes == self._grows_at:
            self._grow()
        self._writes += 1
        self._now_ms += rng.choice([0, 0, SLACK_MS, SLACK_MS, 1_000, ROLL_MS // 2, ROLL_MS])
        dies = rng.random() < 0.15
        mark_ms = self._now_ms // self._mark_every_ms * self._mark_every_ms
        for number in rng.sample(range(len(self._log.lanes)), rng.randint(1, len(self._log.lanes))):
            lane = self._log.lanes[number]
            entries: list[StagedRow | int] = [self._row(number) for _ in range(rng.choice([0, 1, 2, 5]))]
            # What a life has marked is marked again by the next.
            if lane.mark_ms < mark_ms or rng.random() < self._marks_again:
                entries.insert(0, mark_ms - rng.choice([0, 0, ROLL_MS]))
            lane.append(entries, committed=not dies)
        self._tell("host", "dies" if dies else f"writes, up to {self._now_ms}")
        return True

    def _grow(self) -> None:
        """The job gets twice as many lanes: the log says so, and then has more partitions; carriers go on for now."""
        lanes = self._log.lanes
        self._log.grown.append([lane.end for lane in lanes])
        for lane in lanes:
            lane.append([], committed=True)
        parents = partition_of_lane(self._counts)
        self._counts.append(2 * len(lanes))
        lanes += [Lane() for _ in lanes]
        if self._growing.random() < 0.8:  # Else it breaks off, and the next life marks all partitions.
            for number, partition in enumerate(partition_of_lane(self._counts)):
                parent = lanes[parents[number // 2]]
                last_ms = max([parent.mark_ms, *(row.time_ms for row in parent.rows[-1:])])
                if last_ms:
                    lanes[partition].append([last_ms], committed=True)
        self._seen += [0] * (len(lanes) - len(self._seen))
        self._tell("job", f"has {len(lanes)} lanes from now on")

    def wait(self) -> bool:
        """Time goes on."""
        self.clock_s += self.rng.choice([0.05, 0.5, 1.0, 3.0])
        return True

    def begin(self) -> bool:
        """Another carrier begins, whether or not there is one."""
        if len(self._processes) >= MAX_CARRIERS:
            return False
        self._begin()
        return True

    def kill(self) -> bool:
        """A carrier is killed, before or after whatever it was about to ask for."""
        if not self._processes:
            return False
        process = self._processes.pop(self.rng.randrange(len(self._processes)))
        self._tell(process.name, "is killed")
        process.kill()
        return True

    def compact(self) -> bool:
        """Somebody else commits to the table."""
        self._rows.version += 1
        return self._kind == "table"

    def _begin(self) -> Process:
        self._started += 1
        process = Process(f"carrier {self._started}")
        self.run_thread(process, lambda: self._carry(process))
        self._processes.append(process)
        self._tell(process.name, "begins")
        return process

    def _row(self, partition: int) -> StagedRow:
        """Make a row of a key that is in a partition: a lane begins with two, of which each part of it gets one."""
        self._number += 1
        lane, which = partition, self.rng.choice("ab")
        if len(self._counts) > 1:
            lane, part = divmod(partition_of_lane(self._counts).index(partition), 2)
            which = "ab"[part]
        key = f"{lane}{which}"
        value = b'{"key":"%s","number":%d}' % (key.encode(), self._number)
        return StagedRow(0, self._now_ms, key.encode() if self._kind == "puts" else None, value)

    def _resume(self, process: Process, stops: int) -> None:
        actor = self.rng.choice([each for each in process.actors if not each.ended])
        self.clock_s += 0.02
        if self.trace:
            self.say(process.name, f"goes on, {stops}")
        actor.resume(stops)
        if process.ended:
            self._processes.remove(process)
            process.kill()
            if process.lost is not None and not process.drains:
                raise Violation("safety", f"nothing is lost: {process.lost}")

    # -- laws ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """What was found wrong while a carrier acted, whatever it made of the exception."""
        if self._wrong is not None:
            raise self._wrong

    def _reported(self, lanes: Mapping[int, Progress], _backlog: Backlog, _counts: Mapping[str, int]) -> None:
        """R21: readers of the store see all rows below what is said to be visible, and that it is complete."""
        for number, progress in lanes.items():
            if progress.visible_ms is not None:
                times = [row.time_ms for row in self._log.lanes[number].rows]
                below = sum(time_ms < progress.visible_ms for time_ms in times)
                self._see(number, below, f"visible below {progress.visible_ms}")
        least_ms = min(progress.visible_ms or 0 for progress in lanes.values())
        if self._kind == "files" and (said := self._objects.incomplete(least_ms)):
            self._fail(f"all is visible below {least_ms}, and {said} is not complete")

    def _cutting(self, number: int, offset: int) -> None:
        """R24: readers of the store see all rows that are cut."""
        below = sum(row.offset < offset for row in self._log.lanes[number].rows)
        self._see(number, below, f"cut below {offset}")

    def _see(self, number: int, below: int, what: str) -> None:
        for row in self._log.lanes[number].rows[self._seen[number] : below]:
            if not self._store.has(row):
                self._fail(f"lane {number} is {what}, and the store lacks {row}")
            self._seen[number] += 1

    def _fail(self, what: str) -> None:
        self._wrong = Violation("safety", what)
        raise self._wrong

    # -- the end ---------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Faults stop, and one carrier goes on alone: the store equals the log. What is then lost is missed."""
        self._requests.lost = 0.0
        while self._processes:
            self.kill()
        for lane in self._log.lanes:
            lane.append([LAST_MARK_MS], committed=True)
        late = len(self._requests.late)
        last = self._alone()
        while late and last.ended and not last.drained and last.lost is None:
            # A late commit of an earlier one came between, and so another one begins, as always.
            late -= 1
            last = self._alone()
        while self._requests.arrive():
            pass
        self.check()
        if last.lost is not None or not last.drained:
            raise Violation("liveness", f"the last carrier does not come to an end: {last.lost}")
        self._store.check_end()
        self._check_lanes()
        lane = self._log.lanes[0]
        lane.append([self._row(0)], committed=True)
        lane.begin = lane.end  # Somebody deletes what is needed.
        if self._alone().lost is None:
            raise Violation("safety", "a row was deleted, and no carrier misses it")

    def _check_lanes(self) -> None:
        """All is said to be visible, and no lane keeps more than that needs."""
        for number, lane in enumerate(self._log.lanes):
            reported = self._log.reported[number]
            if reported.visible_ms != LAST_MARK_MS or lane.begin != reported.needed:
                raise Violation("liveness", f"lane {number} begins at {lane.begin} in the end, and {reported} is said")
            # A table's position is its own: it moves with rows.
            if self._kind != "table" and lane.begin < lane.offsets[-1]:
                raise Violation("liveness", f"lane {number} keeps marks from {lane.begin} on that nobody needs")

    def _alone(self) -> Process:
        """Have one carrier take all there is."""
        process = self._begin()
        process.drains = True
        for number in range(MAX_DRAIN_STEPS):
            if process.ended:
                break
            if number % 4 == 0:
                self._requests.arrive()
            self.clock_s += 0.1
            self._resume(process, 20)
            self.check()
        return process

    def say(self, who: str, what: object) -> None:
        """One line of the trace; ask `self.trace` before."""
        if self.trace is not None:
            lanes = ", ".join(f"{lane.begin}..{lane.end}" for lane in self._log.lanes)
            self.trace(f"{self.steps:4}  {who:<12} {what}  [log {lanes}]")

    def _tell(self, who: str, what: str) -> None:
        if self.trace:
            self.say(who, what)


class _AtOnce:
    """A `ThreadPoolExecutor` whose caller does everything itself."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, call: Callable[..., T], *arguments: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(call(*arguments))
        except LowtideError as error:
            future.set_exception(error)
        return future

    map = staticmethod(map)


class _Thread:
    """A `threading.Thread`, as an actor."""

    def __init__(self, world: CarrierWorld, target: Callable[[], object]) -> None:
        self._world, self._target = world, target
        self._actor: Actor | None = None

    def start(self) -> None:
        self._actor = self._world.run_thread(self._world.own_process(), self._target)

    def join(self, timeout_s: float) -> None:
        until_s = self._world.clock_s + timeout_s
        while self._actor is not None and not self._actor.ended and self._world.clock_s < until_s:
            self._world.rest()


class _Condition:
    """A `threading.Condition` of actors, of which one runs at a time."""

    def __init__(self, world: CarrierWorld) -> None:
        self._world = world

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def notify_all(self) -> None: ...

    def wait_for(self, true: Callable[[], bool], timeout_s: float | None = None) -> bool:
        until_s = None if timeout_s is None else self._world.clock_s + timeout_s
        while not true() and (until_s is None or self._world.clock_s < until_s):
            self._world.rest()
        return true()
