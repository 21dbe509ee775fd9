"""One life of a simulated job: its workers, the frames between them, and what its snapshots have captured."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat
from random import Random

from lives import Parts, alive, deltas_of, differing, merged, parts_of, said, share
from programs import source_rows

from lowtide.core import frames as frames_module
from lowtide.core.barriers import strands_of
from lowtide.core.cycle_inbox import CycleInbox
from lowtide.core.early_frames import Early, Optimism
from lowtide.core.effects import Effects, Frame, Snapshot
from lowtide.core.fronts.end import end_tick
from lowtide.core.fronts.floors import NO_TICK, Floors
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.operators.asking import AskNode
from lowtide.core.operators.completing import CompletingNode
from lowtide.core.operators.order.bundle import NO_KEY, Bundle
from lowtide.core.operators.order.order import FIRST_TICK, position_of, tick_of
from lowtide.core.operators.questions import Answered, Question, place_of
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.shelf import Shelves
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan.plan import Plan, Vertex, is_of
from lowtide.flow.plan.segments import segments_of, uncertain_before
from lowtide.flow.schema.fields import kept
from lowtide.flow.steps.steps import Answers, Ask, Read
from lowtide.local.run import Message, label_log
from lowtide.worker.traces import Traces
from lowtide_tracker import Floor, Flush, LocalTracker, Notice, Request

from .channel import Channel
from .commits import Commit, Taking
from .logs import FAR_MS, Labels, Log
from .model import Model
from .services import Services
from .sinks import Delivery, Sinks
from .tracing import Tracing
from .tracking import Line, Tracking
from .verdict import Violation

CAPACITY_TICKS = 64
MOST_TAKINGS = 2
"""Snapshots that are under way at once."""
JOINT = 0.7
"""How likely a job with calls delivers what these have answered, and what rests on it, in one transaction."""
LIFT_MS = 8
"""Logs here are some hundred ms long."""
FAULTS = -1_000_000
"""Where the model has workers' faults, below what it has of ordered groupings."""
DUES = -2_000_000
"""Where it has what is due for workers, below these."""
CALLS = -3_000_000
"""Where it has what is asked about, below these."""
MOST_WORKERS = 1_000


@dataclass(slots=True, eq=False)
class Host:
    """A process: the workers that live there share a local tracker, and hear what it hears.

    Attributes:
        local: Their local tracker.
        workers: Their numbers.
        floors: All that were heard: a worker that comes later has to know them.
        request: The newest that was heard.
        line: Its connection with the tracker.
    """

    local: LocalTracker
    line: Line = field(init=False)
    workers: list[int] = field(default_factory=list)
    floors: Floors = field(default_factory=Floors)
    request: Request | None = None


class Life:
    """Everything that dies together.

    Args:
        rng: Chance.
        number: The incarnation.
        plan: The plan, whose parallelism may differ from life to life.
        logs: The source partitions that are registered.
        sinks: What outlives it.
        commit: Where it begins; None for the logs' beginning.
        manifests: The floors of all manifests.
        archive: Those of the archive, where it begins below what went there.
        told: The largest delivered time that the outside has heard.
        committed: T of the newest commit, which need not be the one where it begins.
        services: The outside.
        shelves: Where groups at rest lie; None if all is in memory.
        tracing: Takes the spans of its records; None if nothing is traced.
        names: Whether hosts name the segments that matter to their workers, and are told of no others.
    """

    def __init__(
        self,
        rng: Random,
        number: int,
        plan: Plan,
        logs: Mapping[int, Log],
        sinks: Sinks,
        commit: Commit | None,
        manifests: Floors,
        archive: Floors,
        told: int,
        committed: int,
        services: Services,
        *,
        shelves: Shelves | None = None,
        tracing: Tracing | None = None,
        names: bool = False,
    ) -> None:
        self.rng = rng
        self.names = names
        self.tracing = tracing
        self.watching: list[Traces] = []
        """By worker; empty if nothing is traced."""
        self.services = services
        self.shelves = shelves
        self.plan = plan
        self.logs = dict(logs)
        self.sinks = sinks
        self.window = Window(rng.choice([1, 3, 20, CAPACITY_TICKS]), rng.choice([200, 1 << 20]))
        self.start = commit.tick if commit else 0
        self.newest = commit
        """The newest commit that this life has begun from, or made."""
        self.parts: Parts = alive(plan, commit.parts, commit.tick) if commit else {}
        self.claim = sinks.claimed()
        self.last = sinks.last()
        self.manifests = manifests
        self.durable = Floors(archive)
        self.durable.merge(sinks.floors())
        self.stored = Floors(self.durable)
        self.unreported = [floor for floor in manifests if self.durable.add(floor)]
        self.relied_on = max([self.start, told, committed, *(key.tick + 1 for key in self.last.values())])
        self.bundle_records = rng.choice([1, 3, 1000])
        self.mark_every = sinks.mark_every
        self.users_sinks = {vertex.id for vertex in plan.sinks()}
        self.portion = rng.choice([None, 1, 1, 2, 5])
        self.logs_of_calls = {log.id for log in plan.those(Answers)}
        self.joint = self.users_sinks if self.logs_of_calls and rng.random() < JOINT else set[int]()
        """Sinks that take records in one transaction with the answers of calls."""
        self.strands = strands_of(plan) if sinks.in_strands else frozenset[int]()
        """Sinks to which a worker's lanes go as one strand."""
        self.segments = segments_of(plan)
        inbound = self.segments.inbound
        self.model = Model(inbound)
        register = {front: max(self.start, log.opening or 0) for front, log in self.logs.items()}
        reads = [(vertex.name, vertex.step) for vertex in plan.sources()]
        self.topics = {name: step.source.topic for name, step in reads if isinstance(step, Read)}
        self.tracking = Tracking(
            rng,
            inbound,
            register,
            start=self.start,
            capacity=CAPACITY_TICKS,
            feeds={front: self.feeds(log) for front, log in self.logs.items()},
            dues=self.segments.dues,
        )
        self.optimism = rng.choice([None, None, 1, 3, 20])
        self.hosts: list[Host] = []
        self.most_hosts = rng.choice([1, 2, 3, 1000])
        self.cores: list[WorkerCore] = []
        self.early: list[dict[int, Early | CycleInbox]] = []
        self.windows: list[Optimism | None] = []
        self.number = number
        self.at: dict[tuple[int, int], int] = {}
        self.of_front: dict[int, int] = {}
        self.labels: dict[int, Labels] = {}
        self.waiting: dict[int, deque[Message]] = {}
        self.read: dict[int, int] = {}
        self.caps = Floors(self.durable)
        self.channels: dict[tuple[int, int], Channel] = {}
        self.bundles: list[tuple[int, int, Bundle]] = []
        self.answers: list[tuple[int, int, int]] = []
        """(worker, sink, lane): what is durable, and its worker does not know yet."""
        self.asked: list[tuple[int, Question]] = []
        """(worker, question): those that have no answer."""
        self.given: dict[tuple[int, int], dict[bytes, int]] = {}
        """By worker and call with `order="answer"` the ticks of this life's answers, by their records' places."""
        self.heard: dict[tuple[int, int], int] = {}
        """By worker and such call the last min time before the end of time."""
        self.owing: dict[tuple[int, int], dict[bytes, int]] = {}
        """By worker and call the places that were asked about, and whose answers are not durable, with their ticks."""
        self.takings: list[Taking] = []
        self.slow = rng.choice([0, 0, 0.95])
        """The share of looks at which a snapshot's parts are not there yet, unless another one could be sealed too."""
        self.deltas = Random(number)
        """Says which units are written by their keys; a source of its own, so that seeds stay what they were."""
        self.bases: dict[int, Commit] = {}
        """By worker the newest commit it has heard of: what has not changed since is not captured again (W9)."""
        self.restored = commit
        """The base before that; None where all parts have to be written, as after a change of shape or ttl."""
        self.grants: list[Floor] = []
        for log in self.logs.values():
            self.add_front(log, register[log.front], commit.starts.get(log.front) if commit else None)
        for level in range(1, plan.levels):
            for place in range(plan.parallelism):
                self.at[level, place] = len(self.cores)
                self._core(level, place, None, commit)
        if commit:
            self._check_restored(commit.tick)

    def _check_restored(self, tick: int) -> None:
        """Check that the state that workers got back makes the same snapshot again, whatever kind it is."""
        again = said(merged({}, parts_of(self.plan, [core.program.capture(tick) for core in self.cores if core.level])))
        if again != said(self.parts):
            raise Violation("safety", f"a life begins with {differing(said(self.parts), again)}")

    def discover(self, log: Log) -> None:
        """A partition appears: it is registered, at no tick that anybody was told is over, and gets its worker (R3)."""
        log.opening = self.tracking.open(log.front, self.relied_on, self.feeds(log))
        lines = len(self.tracking.lines)
        self.add_front(log, log.opening, None)
        for line in self.tracking.lines[lines:]:
            self.tracking.connect(line)

    def feeds(self, log: Log) -> tuple[int, ...]:
        """The segments that a front's records go to."""
        return tuple(self.segments.feeds[self.topics[log.source]])

    def add_front(self, log: Log, opening: int, start: tuple[int, int] | None) -> None:
        """Start the worker of a front."""
        offset, before = start or (0, NO_TICK)
        front = Front(
            log.front,
            FrontLimits(self.plan.slack_ms, self.window, FAR_MS, LIFT_MS),
            KnownFloors(
                opening,
                self.stored.of_front(log.front),
                self.unreported,
                self.relied_on,
                self.durable.largest_tick(),
            ),
            offset=offset,
            before=before,
            stop=log.stop,
        )
        self.logs[log.front] = log
        self.of_front[log.front] = len(self.cores)
        floors = Floors(self.durable)
        floors.add(Floor(log.front, offset, opening))
        self.labels[log.front] = Labels(log, self.plan.slack_ms, floors, before, self.window.max_bytes)
        self.waiting[log.front] = deque()
        self.read[log.front] = sum(message.position.sequence < offset for message in log.messages)
        core = self._core(0, 0, front)
        core.read_by([vertex.id for vertex in self.plan.sources() if vertex.name == log.source])
        self.promise(log.front)

    def _core(self, level: int, place: int, front: Front | None, commit: Commit | None = None) -> WorkerCore:
        worker = len(self.cores)
        host = self._host()
        if self.tracing is not None:
            self.watching.append(self.tracing.watch(self.plan, level, place, worker, self.number))
        core = WorkerCore(
            self.plan,
            level,
            place,
            tracker=host.local,
            front=front,
            last=self.last,
            max_bundle_records=self.bundle_records,
            lead_ticks=self.window.lead_ticks,
            portion=self.portion,
            joint=self.joint,
            strands=self.strands,
            relied_on=self.relied_on,
            watcher=self.watching[worker] if self.watching else None,
        )
        for sink, barrier in core.barriers.items():
            if sink in self.users_sinks and self.mark_every:
                # As if the sink's records were staged.
                barrier.mark_lanes(self.mark_every, self.start, again=self.plan.grown != ())
        for id_, node in core.program.asking.items():
            log = self.plan.answers_of(node.ask)
            answers = self.sinks.answers(log, () if log is None else core.barriers[log.id].lanes, self.start)
            core.know(id_, answers, NO_KEY)
        if level and self.shelves is not None:
            core.program.shelve(self.shelves)
        if commit:
            core.restore(share(self.plan, self.parts, place), commit.tick)
        core.program.note_changes()
        core.report_due()
        self._note_due(worker, core)
        host.workers.append(worker)
        self.cores.append(core)
        if self.names:
            self._listen(host.line, core)
        window = None if self.optimism is None else Optimism(self.optimism)
        self.windows.append(window)
        room = self.rng.choice([100, 100_000])
        cyclic = self.segments.cyclic
        self.early.append({
            each: CycleInbox(window or Optimism(1), room) if each in cyclic else Early(window, room)
            for each in core.entries
        })  # fmt: skip
        if host.request is not None:
            core.pin(host.request)
        forgets = not (host.floors or core.ready)
        effects = core.moved(tuple(host.floors))
        if forgets:
            self._check_idle(worker, effects)
        self.spread(worker, effects)
        return core

    def _host(self) -> Host:
        """The process that the next worker lives in: a new one, or one that may have heard a lot already."""
        if len(self.hosts) < self.most_hosts and (not self.hosts or self.rng.random() < 0.7):
            made = Host(LocalTracker(len(self.hosts), self.number, start=self.start))
            made.line = Line(made.local, lambda: self.flush(made), lambda notice: self.hear(made, notice))
            if self.names:
                made.line.named, made.line.leads = frozenset(), False
            self.hosts.append(made)
            self.tracking.lines.append(made.line)
            return made
        return self.rng.choice(self.hosts)

    def _listen(self, line: Line, core: WorkerCore) -> None:
        """A host names what a new worker of its listens to as well, and is told of everything once more."""
        assert line.named is not None, "hosts name what matters to them"
        named, leads = line.named | core.listens, line.leads or core.leads
        if (named, leads) != (line.named, line.leads):
            line.named, line.leads = named, leads
            if line in self.tracking.audience.named:
                self.tracking.subscribe(line)

    def flush(self, host: Host) -> Flush | None:
        """Everything that a host's workers have folded since the last time, then what their fronts say (R5)."""
        for worker in host.workers:
            self.cores[worker].report()
        return host.local.flush()

    def neighbours(self, channel: tuple[int, int]) -> bool:
        """Whether a channel's workers live in one process: what is handed over there is neither lost nor swapped."""
        return any(channel[0] in host.workers and channel[1] in host.workers for host in self.hosts)

    # -- what happens ----------------------------------------------------------------------------------------------

    def pull(self, front: int, count: int, now_ms: int) -> None:
        """A front reads messages."""
        log, worker = self.logs[front], self.of_front[front]
        messages = log.messages[self.read[front] : self.read[front] + count]
        self.read[front] += count
        self.waiting[front].extend(messages)
        core = self.cores[worker]
        self.spread(worker, core.rows(source_rows(messages), now_ms))

    def grant(self, floor: Floor) -> bool:
        """A front is granted a floor."""
        core = self.cores[self.of_front[floor.front]]
        self.labels[floor.front].granted(floor)
        taken = core.grant(floor)
        assert core.front is not None
        self._follow(core.front)
        self.promise(floor.front)
        return taken

    def stop(self, log: Log) -> None:
        """A partition ends here, as its front has known all along."""
        front = self.cores[self.of_front[log.front]].front
        assert front is not None
        assert log.stop is not None
        front._stop_at = log.stop
        front._heartbeat = front._settled()
        self.promise(log.front)

    def _follow(self, front: Front) -> None:
        """R2: the floors that a front has set by itself rest on what it was granted."""
        self.labels[front.number].follow(front._floors)

    def deliver(self, channel: tuple[int, int]) -> bool:
        """The next frame of a channel arrives; whether it was the one whose turn it is (R10)."""
        frames, core = self.channels[channel], self.cores[channel[1]]
        number, frame = frames.queue.popleft()
        if number != frames.expected:
            return False
        frames.expected += 1
        frame.batch = frame.batch.with_rows(
            kept(self.plan.vertices[frame.vertex].gives, frame.batch.rows, frame.payload)
        )
        self._came(channel[1], frame)
        [(segment, came)] = core.tracked([frame])
        early = self.early[channel[1]][segment]
        self._process(channel[1], early, early.take(came, core.tracker.min_time(segment)))
        return True

    def left_in_topics(self) -> list[tuple[int, Frame]]:
        """What is on its way back to the heads of loops, between two processes, when the life ends."""
        ways = {way.id for way in self.plan.feedbacks()}
        queues = [channel.queue for ends, channel in self.channels.items() if not self.neighbours(ends)]
        return [(self.number, frame) for queue in queues for _, frame in queue if frame.vertex in ways]

    def came_round(self, incarnation: int, frame: Frame) -> bool:
        """A frame comes out of a loop's topic; whether it is taken."""
        if not frames_module.is_of_life(b"%d" % incarnation, self.number):
            return False
        vertex = self.plan.vertices[frame.vertex]
        worker = self.at[vertex.level, frame.target % self.plan.parallelism]
        frame.batch = frame.batch.with_rows(kept(vertex.gives, frame.batch.rows, frame.payload))
        core = self.cores[worker]
        self._came(worker, frame)
        [(segment, came)] = core.tracked([frame])
        early = self.early[worker][segment]
        self._process(worker, early, early.take(came, core.tracker.min_time(segment)))
        return True

    def _came(self, worker: int, frame: Frame) -> None:
        if self.tracing is not None:
            self.watching[worker].came([frame], self.tracing.tick())

    def _process(self, worker: int, early: Early | CycleInbox, groups: list[list[Frame]]) -> None:
        """A worker deals with what lies in its window."""
        core, window = self.cores[worker], self.windows[worker]
        for frames in groups:
            repairs = core.program.repairs
            self.spread(worker, core.frame(*frames))
            records = sum(len(frame.batch) for frame in frames)
            if window is not None:
                window.worked(records, core.program.repairs - repairs)
            if records:
                early.worked(records, core.program.repairs - repairs)
            for frame in frames:
                self.model.remove(self._segment(frame.vertex, core.place), frame.ticks)

    def hear(self, host: Host, notice: Notice) -> None:
        """A host hears a notice, and perhaps that a snapshot is wanted: once, then all its workers do."""
        if notice.request is not None:
            host.request = notice.request
            for worker in host.workers:
                self.cores[worker].pin(notice.request)
        if not host.local.hear(notice):
            return
        host.floors.merge(notice.floors)
        for worker in host.workers:
            core = self.cores[worker]
            forgets = not (notice.floors or core.ready or any(self.early[worker].values()))
            if forgets and self.rng.random() < 0.5:
                continue  # It would only forget; the next notice may tell it of this one as well.
            effects = core.moved(notice.floors)
            if forgets:
                self._check_idle(worker, effects)
            self.spread(worker, effects)
            for segment, early in self.early[worker].items():
                self._process(worker, early, early.due(core.tracker.min_time(segment)))

    def catch_up(self) -> None:
        """Workers that were not told of the last notices, as they would only forget, do so now."""
        for worker, core in enumerate(self.cores):
            self._check_idle(worker, core.moved(()))

    def _check_idle(self, worker: int, effects: Effects) -> None:
        """See that a worker that said so has nothing to send: its host would not have asked it to go on."""
        if effects.frames or effects.bundles or effects.questions:
            raise Violation("liveness", f"worker {worker} is not ready, and has something to send all the same")

    def go_on(self, worker: int) -> bool:
        """A worker does a further portion of what min time has let go on; whether it had something left."""
        found = self.go_round(worker)
        return self._go_further(worker) or found

    def _go_further(self, worker: int) -> bool:
        core = self.cores[worker]
        if not core.unfinished and core.pinned is None:
            return False
        unfinished = core.unfinished
        self.spread(worker, core.moved(()))
        return unfinished

    def go_round(self, worker: int) -> bool:
        """A worker deals with a portion of what has come round to it; whether there was something."""
        core, found = self.cores[worker], False
        for segment, early in self.early[worker].items():
            min_time = core.tracker.min_time(segment)
            if isinstance(early, CycleInbox) and early.unfinished(min_time):
                found = True
                self._process(worker, early, early.go_on(min_time))
        return found

    def go_on_to_the_end(self, worker: int) -> bool:
        """A worker does all that min time has let go on; whether it had something left."""
        found = False
        while self._go_further(worker):
            found = True
        return found

    def rest(self, worker: int) -> bool:
        """A worker has nothing else to do, and works further ahead; whether it found something."""
        restless = [(segment, early) for segment, early in self.early[worker].items() if early.restless]
        for segment, early in restless:
            self._process(worker, early, early.rest(self.cores[worker].tracker.min_time(segment)))
        return bool(restless)

    def ask(self) -> int | None:
        """Ask for a snapshot, unless some have not heard of the last one or there is nothing to save; at which tick."""
        tracker = self.tracking.tracker
        busy = len(self.takings) >= MOST_TAKINGS or not all(taking.heard for taking in self.takings)
        if busy or tracker.missing or tracker.global_min <= self.start:
            return None
        request = self.tracking.ask()
        self.takings.append(Taking(request.number, request.tick, tuple(self.manifests), len(self.cores)))
        return request.tick

    def give_up(self) -> None:
        """The tracker's process died: who has not heard of the request never will, so another one is made."""
        self.takings = [taking for taking in self.takings if taking.heard]

    def capture(self) -> int | None:
        """One worker captures the state that it has pinned; which one."""
        pinned = [worker for worker, core in enumerate(self.cores) if core.pinned is not None]
        if not pinned:
            return None
        worker = self.rng.choice(pinned)
        core = self.cores[worker]
        if not core.complete:
            self.go_on(worker)
            return worker
        for taking in self.takings:
            if core.pinned == Request(taking.number, taking.tick) and worker < taking.workers:
                base = self.bases.get(worker, self.restored)
                since = FIRST_TICK if base is None else base.tick
                keys = self._by_keys(core, since)
                taking.deltas.append(deltas_of(self.plan, core.program, keys, taking.tick))
                taking.capture(worker, self._by_units(core, since, keys), base)
                core.program.cut_changes(taking.tick)
        core.unpin()
        return worker

    def _by_keys(self, core: WorkerCore, since: int) -> dict[str, dict[int, set[Key]]]:
        """Of which hash units a worker writes only the keys that have changed, by step; of some it has changed none."""
        changed = {} if since == FIRST_TICK else core.program.changed_keys(since)
        return {
            name: {unit: keys for unit, keys in units.items() if self.deltas.random() < 0.8}
            for name, units in changed.items()
        }

    @staticmethod
    def _by_units(core: WorkerCore, since: int, keys: Mapping[str, Collection[int]]) -> Snapshot:
        """What a worker captures of all other units."""
        found = core.snapshot(since)
        rest = {
            name: {unit: each for unit, each in units.items() if unit not in keys.get(name, ())}
            for name, units in found.state.items()
        }
        return replace(found, state=rest)

    def seal(self) -> Commit | None:
        """The commit that a snapshot under way makes, once all have captured and all below T is durable (R15).

        Of two it may be the later one: what is written ends in any order.
        """
        delivered = self.delivered_time()
        whole = [taking for taking in self.takings if taking.heard and delivered >= taking.tick]
        if not whole or (len(whole) < MOST_TAKINGS and self.slow > self.rng.random()):
            return None
        taking = self.rng.choice(whole)
        self.takings.remove(taking)
        return taking.commit(self.plan, self.of_front, self.tracking.floors.values())

    def committed(self, commit: Commit) -> None:
        """A snapshot is committed: workers hear of it sooner or later, and go by the newest they have heard of."""
        if self.newest is None or commit.tick >= self.newest.tick:
            self.newest = commit
        for worker in range(len(self.cores)):
            base = self.bases.get(worker, self.restored)
            if self.rng.random() < 0.7 and (base is None or commit.tick > base.tick):
                self.bases[worker] = commit
                self.cores[worker].program.forget_changes(commit.tick)

    def needed_from(self, starts: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """By front the offset below which neither a commit that begins there nor a snapshot under way needs floors."""
        found = {front: offset for front, (offset, _) in starts.items()}
        for taking in self.takings:
            own = taking.starts(self.of_front)
            found = {front: min(offset, own[front][0]) if front in own else 0 for front, offset in found.items()}
        return found

    def store(self, place: int) -> None:
        """A sink makes a bundle durable; answers that it may rest on are in the same transaction."""
        with_it = self._with(place)
        chosen = [self.bundles[each] for each in (*with_it, place)]
        self.bundles = [each for other, each in enumerate(self.bundles) if other != place and other not in with_it]
        for worker, sink, bundle in chosen:
            self._store(worker, sink, bundle)

    def _with(self, place: int) -> list[int]:
        """The bundles of answers without which one does not become durable: those given before it, if it is joint."""
        worker, sink, _ = self.bundles[place]
        if sink not in self.joint:
            return []
        before = enumerate(self.bundles[:place])
        return [other for other, (who, log, _) in before if who == worker and log in self.logs_of_calls]

    def _store(self, worker: int, sink: int, bundle: Bundle) -> None:
        self.sinks.send(self._delivery(sink, bundle))
        self.answers.append((worker, sink, bundle.lane))
        for parent in self.plan.vertices[sink].parents if sink in self.logs_of_calls else ():
            self._settle(worker, parent, chain.from_iterable(piece.ats for piece in bundle.pieces))

    def _delivery(self, sink: int, bundle: Bundle) -> Delivery:
        """A bundle as it is sent: of a lane only one is under way, so its `last` is known (R13)."""
        return Delivery(self.claim, sink, bundle, self.sinks.last_of(sink, bundle))

    def answer(self, place: int) -> None:
        """A worker hears that a bundle is durable."""
        worker, sink, lane = self.answers.pop(place)
        self.spread(worker, self.cores[worker].durable(sink, lane))

    def reply(self, places: Sequence[int], *, calm: bool) -> None:
        """Services answer questions of one call at one worker; see `Services.answer`."""
        given = [self.asked[place] for place in places]
        self.asked = [each for place, each in enumerate(self.asked) if place not in places]
        worker, (ask, *_) = given[0]
        vertex = self.cores[worker].program.asking[ask].ask
        answers = [Answered(each.at, self.services.answer(vertex, each, calm=calm)) for _, each in given]
        effects = self.cores[worker].answered(ask, answers)
        node = self.cores[worker].program.asking[ask]
        if isinstance(node, CompletingNode):
            self._note_given(worker, node, answers)
        if vertex.step.repeatable:
            self._settle(worker, ask, [each.at for each in answers])
        self.spread(worker, effects)

    def _note_given(self, worker: int, node: CompletingNode, answers: Sequence[Answered]) -> None:
        """Note the ticks of answers: none is below its record's, or an earlier one's, or far above what asks for it."""
        call = worker, node.vertex.id
        given = self.given.setdefault(call, {})
        keys = {at: tick_of(kept) for kept, at, _, _ in node._answered}
        for at, _ in answers:
            last = max(given.values(), default=NO_TICK)
            most = max(tick_of(at), last + 1, self.heard.get(call, NO_TICK), self.relied_on)
            if not max(last, tick_of(at)) <= keys[at] <= most:
                raise Violation("output", f'"{node.vertex.name}" gives {keys[at]} after {last}, for {tick_of(at)}')
            given[place_of(at)] = keys[at]

    def _settle(self, worker: int, ask: int, ats: Iterable[bytes]) -> None:
        """Note that nothing waits for these answers any more."""
        for at in ats:
            self.owing.get((worker, ask), {}).pop(place_of(at), None)

    def keep_floors(self, worker: int) -> bool:
        """A worker hands on floors that no bundle has carried."""
        effects = self.cores[worker].keep_floors()
        self.spread(worker, effects)
        return bool(effects.bundles)

    def forget(self, starts: Mapping[int, int]) -> None:
        """Floors below these offsets are superfluous, for all workers and the tracker."""
        for front, offset in starts.items():
            for core in self.cores:
                core.forget_floors(front, offset)
            self.tracking.forget(front, offset)

    def end(self) -> None:
        """The life is over; what sinks were just being given may still become durable before they are claimed.

        What does not comes late, to another claim.
        """
        places = range(len(self.bundles))
        taken = {place for place in reversed(places) if self.rng.random() < 0.3}
        taken |= {other for place in taken for other in self._with(place)}
        for place in reversed(places):
            _, sink, bundle = self.bundles[place]
            delivery = self._delivery(sink, bundle)
            if place in taken:
                self.sinks.take(delivery)
            else:
                self.sinks.late.append(delivery)
        self.bundles = []

    @property
    def fronts(self) -> list[Front]:
        """All fronts."""
        return [core.front for core in self.cores if core.front is not None]

    @property
    def reached(self) -> int:
        """The tick that min time has come to at all workers behind the first level."""
        return min(core.min_time for core in self.cores if core.level)

    def delivered_time(self) -> int:
        """The smallest delivered time of all workers that have lanes."""
        return min(time for core in self.cores if (time := core.delivered_time) is not None)

    # -- the account of it -----------------------------------------------------------------------------------------

    def spread(self, worker: int, effects: Effects) -> None:
        """Put what a worker sends on its way."""
        core = self.cores[worker]
        if core.front is not None:
            self._check_labels(core.front, effects)
        for frame in effects.frames:
            target = self.at[self.plan.vertices[frame.vertex].level, frame.target]
            self.channels.setdefault((worker, target), Channel()).send(frame)
            self.model.add(self._segment(frame.vertex, frame.target), frame.ticks)
        for sink, bundle in effects.bundles:
            busy = [(sink, bundle.lane) for _, sink, bundle in self.bundles] + [each[1:] for each in self.answers]
            if (sink, bundle.lane) in busy:
                raise Violation("output", f"lane {bundle.lane} has two bundles in flight")
            self.bundles.append((worker, sink, bundle))
        for question in effects.questions:
            self._ask(worker, question)
        self._note_held(worker, core)
        self._note_asked(worker, core)
        self._note_due(worker, core)
        self._note_ending(worker, core)

    def _segment(self, exchange: int, place: int) -> int:
        """Where a frame to the worker at a place counts: in its part of the segment, by an account of its own."""
        segment = self.segments.of_exchange[exchange]
        return self.segments.parts[segment][place] if segment in self.segments.parts else segment

    def _ask(self, worker: int, question: Question) -> None:
        """A service is asked."""
        ask = self.cores[worker].program.asking[question.ask].ask
        owing = self.owing.setdefault((worker, question.ask), {})
        if place_of(question.at) in owing:
            raise Violation("output", f'"{ask.name}" asks twice about {question.at.hex()}')
        owing[place_of(question.at)] = tick_of(question.at)
        if ask.id not in self.segments.certain:
            self._check_durable(ask, question.at)
        self.services.ask(ask, question.at, self.sinks.answers(self.plan.answers_of(ask), range(self.plan.lanes)))
        self.asked.append((worker, question))

    def _check_durable(self, ask: Vertex[Ask], at: bytes) -> None:
        """R2: a life that began now would give a record that anybody is asked about the same label."""
        position = position_of(at)
        steps = [self.plan.vertices[each] for each in uncertain_before(self.plan, ask)]
        if logs := [self.plan.answers_of(each) for each in steps if is_of(each, Ask) and each.step.order == "answer"]:
            # It is asked about at the tick of an answer, which has to be durable, or comes by another way.
            lanes = range(self.plan.lanes)
            known = {(position_of(key), tick_of(key)) for log in logs for key in self.sinks.answers(log, lanes)}
            if (position, tick_of(at)) in known:
                return
        # Nobody keeps what a repeatable call answers; and a clock's record, or a window's, is in no log.
        if ask.step.repeatable or position.front not in self.logs:
            return
        floors = Floors(Floor(log.front, 0, log.opening or 0) for log in self.logs.values())
        for some in (self.durable, self.sinks.floors(), self.manifests):
            floors.merge(some)
        # What a commit has made superfluous is gone: a life begins where that stands.
        offset, before = (self.newest.starts if self.newest else {}).get(position.front, (0, NO_TICK))
        floors.add(Floor(position.front, offset, before))
        messages = [each for each in self.logs[position.front].messages if each.position.sequence >= offset]
        label = label_log(messages, floors, self.plan.slack_ms)[position]
        if label != tick_of(at):
            raise Violation(
                "output", f'"{ask.name}" asks at tick {tick_of(at)} about {position}, whose label is {label}'
            )

    def _check_labels(self, front: Front, effects: Effects) -> None:
        """R1: what has been handed out has the labels that the log and the floors give it."""
        waiting, labels = self.waiting[front.number], self.labels[front.number]
        self._follow(front)
        handed_out = len(waiting) - front.parked
        self.caps.merge(front_caps(front))
        ticks = [labels.take(waiting.popleft(), self.caps) for _ in range(handed_out)]
        for frame in effects.frames:
            wrong = set(frame.ticks) - set(ticks)
            if wrong:
                raise Violation("output", f"front {front.number} labelled {sorted(wrong)} where R1 says {ticks}")
        self.promise(front.number)

    def promise(self, front: int) -> None:
        """What the front may label next, for the model."""
        labels, waiting = self.labels[front], self.waiting[front]
        core = self.cores[self.of_front[front]]
        assert core.front is not None
        least = labels.peek(waiting[0], self.caps) if waiting else labels.least(core.front.next_offset)
        if core.front.heartbeat >= end_tick(self.plan.slack_ms):
            least = core.front.heartbeat
        self.model.label(front, least, self.feeds(self.logs[front]))

    def _note_held(self, worker: int, core: WorkerCore) -> None:
        """R6: what an ordered grouping holds counts as being in the segments that it will emit into."""
        for segment in {each for node in core.program.holding for each in node.sends}:
            holding = [node for node in core.program.holding if segment in node.sends]
            ticks = [tick for node in holding if (tick := node.first_tick()) is not None]
            self._note(segment, ~worker, min(ticks, default=None))

    def _note_asked(self, worker: int, core: WorkerCore) -> None:
        """R23: what is asked about counts as being in the segments that answers go to until these are durable."""
        for id_, node in core.program.asking.items():
            owing = list(self.owing.get((worker, id_), {}).values())
            if isinstance(node, AskNode):
                owing += [tick_of(at) for at, _, _ in islice(node._ready, 1)]
            else:
                # No answer will be given below min time here, as far as it has been heard, or before one that was.
                waits = [self.segments.at(each, core.place) for each in self.segments.waits[id_]]
                heard = min(core.tracker.min_time(segment) for segment in waits)
                if heard < end_tick(self.plan.slack_ms):
                    self.heard[worker, id_] = heard
                given = self.given.get((worker, id_), {})
                earliest = max([heard, *given.values()])
                places = self.owing.get((worker, id_), {})
                owing = [given.get(place, max(tick, earliest)) for place, tick in places.items()]
            tick = min(owing, default=None)
            for segment in self.segments.sends[id_]:
                self._note(segment, CALLS - MOST_WORKERS * id_ - worker, tick)

    def _note_due(self, worker: int, core: WorkerCore) -> None:
        """R6b: what is due counts as being in the segments that it will be sent into."""
        for clock in self.plan.clocked:
            if self.plan.vertices[clock].level == core.level:
                for segment in self.segments.sends[clock]:
                    self._note(segment, DUES - worker, core.program.due(segment))

    def _note_ending(self, worker: int, core: WorkerCore) -> None:
        """R6: what may end the life counts as being in the outlets behind it as long as nothing has taken it back."""
        open_: dict[bytes, int] = {}
        for branch in core.branches:
            for batch in chain.from_iterable(branch.ending._pending._parts.values()):
                for at, fault, taken_back in zip(batch.ats, batch.rows, batch.flags or repeat(False), strict=False):
                    if taken_back:
                        open_.pop(at, None)
                    else:
                        open_[at] = fault.vertex.id
        outlets = self.segments.outlets
        for outlet in {each for held in outlets.values() for each in held}:
            ticks = [tick_of(at) for at, step in open_.items() if outlet in outlets[step]]
            self._note(outlet, FAULTS - worker, min(ticks, default=None))

    def _note(self, segment: int, who: int, tick: int | None) -> None:
        if tick is None:
            self.model.labels[segment].pop(who, None)
        else:
            self.model.labels[segment][who] = tick


def front_caps(front: Front) -> list[Floor]:
    """The caps that a front has made or been given."""
    return [floor for floor in front._floors.of_front(front.number) if floor.cap]
