"""The host: what the workers of one process share; tracker line, delivery, writing of snapshots.

A host's workers have one `LocalTracker`. A frame from one to another is folded at both ends there like any other, so
its two acks cancel before anything is sent. Such a frame does not go through Spark: it is handed over as it is, and
handled before more input is read; it has no number, as nothing can be lost on its way. A worker's share of the state
below min time is its own; a notice of the tracker is received once and passed to each worker.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lowtide.assignment.birth import Birth
from lowtide.assignment.deployment import Deployment
from lowtide.assignment.messages import Cancel, Committed, WorkerNews
from lowtide.assignment.welcome import Welcome
from lowtide.core.effects import Frame
from lowtide.core.operators.faults.limits import PLACE_BYTES
from lowtide.core.operators.questions import Question
from lowtide.core.worker import WorkerCore
from lowtide.flow.schema.fields import kept
from lowtide.process.tracker_line import TrackerLine
from lowtide.status.gauges import DiskGauges, LineGauges, WorkerGauges
from lowtide.worker.asking import asking_of
from lowtide.worker.delivered_times import DeliveredTimes
from lowtide.worker.exporting import Exporting
from lowtide.worker.protocol import Emitted, Frames, Reported
from lowtide.worker.rounds import Rounds
from lowtide.worker.shares import Share, SharedDelivery
from lowtide.worker.stage_parts import make_delivery, make_saver, store_of, stores_of
from lowtide.worker.state_on_disk import StateOnDisk
from lowtide_tracker import Floor, LocalTracker, Request
from lowtide_tracker.floors import Floors

if TYPE_CHECKING:
    from lowtide.worker.stage import LevelStage

MEND_S = 0.005
"""The interval of retries on a broken line."""
KEEP_FLOORS_S = 1.0
"""The interval at which floors that no bundle carries are passed on, if a sink is idle (R18)."""
KEEP_FLOORS_SOON_S = 0.1
"""The same interval while a subscriber waits for delivered time."""
CATCH_UP_S = 0.02
"""The interval at which workers learn of min time that frees none of their work: they forget what it has passed."""
ASKED_S = 0.5
"""The interval at which a host sees to the process that asks outside services, also without an answer."""
TRACES_TIMEOUT_S = 0.5
"""The time for the last spans of traces when a host ends."""
HEAR_S = 0.01
"""The interval at which a host reads the tracker's notices while nothing waits for them."""


class Handed:
    """A frame on its way from one worker of a host to another.

    Attributes:
        sender: The worker that made it.
        after: The number of numbered frames from the same sender to the same target before it: it overtakes none.
        frame: The frame.
        size: Its approximate size in bytes.
        sent_ns: The time at which it was made, ns since 1970.
    """

    __slots__ = ("after", "frame", "sender", "sent_ns", "size")

    def __init__(self, sender: LevelStage, after: int, frame: Frame, sent_ns: int) -> None:
        self.sender = sender
        self.after = after
        self.frame = frame
        self.size = len(frame.payload) + PLACE_BYTES * len(frame.batch)
        self.sent_ns = sent_ns


class LevelHost:
    """The shared part of a host.

    Args:
        deployment: The plan and its settings.
        birth: The first worker's birth.
        welcome: The service's welcome, with the tracker's address.
    """

    def __init__(self, deployment: Deployment, birth: Birth, welcome: Welcome) -> None:
        self._deployment = deployment
        self._birth = birth
        self.local = LocalTracker(birth.host, birth.incarnation, start=deployment.start)
        self.line = TrackerLine(
            welcome.tracker,
            secret=birth.secret,
            incarnation=birth.incarnation,
            local=self.local,
            name=birth.name,
            shards=welcome.shards,
        )
        self._listens: frozenset[int] = frozenset()
        self._leads = False
        """What its workers listen to, all together; see `WorkerCore`."""
        self.line.listen((), global_min=False)
        self.line.connect()
        traces = deployment.traces
        self.exporting = None if traces is None else Exporting(traces.endpoint, deployment.plan.name, birth.incarnation)
        self.dirty = True
        """True if there may be something to flush."""
        self._shared: SharedDelivery | None = None
        self.rounds = Rounds(deployment, birth.incarnation)
        self.saver = make_saver(deployment, birth)
        self._disk: StateOnDisk | None = None
        self._asking = asking_of(deployment)
        self._records = {vertex.id: vertex.gives for vertex in deployment.plan.exchanges()}
        self._stages: dict[str, LevelStage] = {}
        self._fronts: list[LevelStage] = []
        self._places: dict[tuple[int, int], LevelStage] = {}
        self._handed: dict[LevelStage, deque[Handed]] = {}
        """By receiver, the frames handed over and not handled yet."""
        self._unbegun: list[LevelStage] = []
        """Workers that have not received what the others have: what is due for them goes out with `tick`."""
        self._moved: set[LevelStage] = set()
        """Workers that have done a portion in this turn of the loop: the others go next."""
        self._floors = Floors()
        """All floors received: a worker that comes later needs them."""
        self._request: Request | None = None
        """The newest notice received."""
        self._news: list[Reported] = []
        self._window_s = deployment.flush_ms / 1000
        """Least time between two flushes: what others wait for is late by no more."""
        self._flushed_s = self._kept_s = self._heard_s = self._caught_up_s = self._asked_s = 0.0
        self._delivered = DeliveredTimes()

    # -- workers ---------------------------------------------------------------------------------------------------

    def join(self, stage: LevelStage) -> None:
        """Add a worker; it receives what the others have received."""
        self._stages[stage.name] = stage
        if stage.level:
            self._places[stage.level, stage.core.place] = stage
        else:
            self._fronts.append(stage)
        self.rounds.join(stage.level, stage.core.place)
        if self.saver is not None:
            self.saver.add(stage.name, stage.core)
        self._listen(stage.core)
        if self._request is not None:
            stage.core.pin(self._request)
        stage.core.report_due()
        self.dirty = True
        if stage.core.program.clocked:
            self._unbegun.append(stage)
            return
        frames = stage.moved(self._floors.all(), time.time_ns())
        assert not frames, "a new worker has had no input"
        self._save()

    def _listen(self, core: WorkerCore) -> None:
        """Have the tracker's notices name what a new worker listens to as well."""
        listens, leads = self._listens | core.listens, self._leads or core.leads
        if (listens, leads) != (self._listens, self._leads):
            self._listens, self._leads = listens, leads
            self.line.listen(listens, global_min=leads)

    def _begin(self) -> Emitted:
        """Pass to new workers what the others have received: what a restored one had due goes out."""
        if not self._unbegun:
            return ()
        unbegun, self._unbegun = self._unbegun, []
        emitted = [(stage.name, stage.moved(self._floors.all(), time.time_ns())) for stage in unbegun]
        self._moved.update(unbegun)
        self.dirty = True
        self._save()
        return emitted

    def disk(self) -> StateOnDisk:
        """Return the host's state on disk; the first worker that has some makes it."""
        if self._disk is None:
            setting = self._deployment.disk
            assert setting is not None, "state is on disk"
            birth = self._birth
            self._disk = StateOnDisk(setting, self._deployment.plan.name, birth.incarnation, birth.host)
            plan = self._deployment.plan
            restored = [part.name(plan.name, plan.slack_ms) for part in self._deployment.restored]
            self._disk.sweep_copies(restored, birth.incarnation)
            if self.saver is not None:
                self.saver.disk = self._disk
        return self._disk

    def share(self, birth: Birth, core: WorkerCore) -> Share | None:
        """Return a worker's share of the deliveries; None if it never delivers. The first that needs one begins it."""
        stores = stores_of(self._deployment.plan, birth.level)
        if not stores:
            return None
        if self._shared is None:
            self._shared = SharedDelivery(partial(store_of, self._deployment.plan))
        for store in stores - self._shared.deliveries.keys():
            self._shared.deliveries[store] = make_delivery(store, self._deployment, birth, core)
        return self._shared.share()

    # -- frames from neighbour to neighbour ------------------------------------------------------------------------

    def hand_over(self, sender: LevelStage, frame: Frame, after: int) -> bool:
        """Hand a frame to its target if that lives here; return False if not."""
        target = self._places.get((self._deployment.plan.vertices[frame.vertex].level, frame.target))
        if target is None:
            return False
        batch = frame.batch
        # Either way gives the same records after an exchange.
        frame.batch = batch.with_rows(kept(self._records[frame.vertex], batch.rows, frame.payload))
        handed = Handed(sender, after, frame, time.time_ns())
        sender.handed_bytes += handed.size
        self._handed.setdefault(target, deque()).append(handed)
        return True

    def handed(self) -> Emitted:
        """Handle the frames handed over, level by level, so that their results are handled too."""
        if not self._handed:
            return ()
        emitted: list[tuple[str, Frames]] = []
        held: set[LevelStage] = set()
        while waiting := [stage for stage in self._handed if stage not in held]:
            target = min(waiting, key=_level)
            queue, came = self._handed[target], []
            while queue and target.has_taken(queue[0]):
                came.append(queue.popleft())
            if queue:
                held.add(target)
            else:
                del self._handed[target]
            for each in came:
                each.sender.handed_bytes -= each.size
                emitted.append((each.sender.name, ()))
            if came:
                emitted.append((target.name, target.handed(came, time.time_ns())))
        return emitted

    # -- tracker, sinks, service -----------------------------------------------------------------------------------

    def watched(self) -> list[tuple[int, Callable[[], Emitted]]]:
        """Return the descriptors to watch, and what to call when there is something to read.

        While nothing here waits for min time, or all lanes are busy with earlier releases, notices are taken now and
        then, together.
        """
        found: list[tuple[int, Callable[[], Emitted]]] = []
        descriptors = self.line.descriptors()
        if not self._waits:
            del descriptors[:1]  # The other descriptors show at once that a shard of the tracker has gone.
        found += [(descriptor, self.hear) for descriptor in descriptors]
        if self._shared is not None:
            found += [(delivery.fileno(), self.settle) for delivery in self._shared.deliveries.values()]
        found.append((self.rounds.fileno(), self.came_round))
        if self._asking is not None:
            found.append((self._asking.fileno(), self.answered))
        if self.saver is not None:
            found += [(descriptor, self._hear_saver) for descriptor in self.saver.descriptors()]
        if self._disk is not None:
            found.append((self._disk.fileno(), self._pinned))
        return [entry for entry in found if entry[0] >= 0]

    @property
    def _waits(self) -> bool:
        """Return whether something can go on as soon as min time moves."""
        return any([stage.waits for stage in self._stages.values()])

    def came_round(self) -> Emitted:
        """Take the frames that came through the topics of loops."""
        came = [(self._places[place], frames) for place, frames in self.rounds.came().items()]
        return [(stage.name, stage.came_round(frames, time.time_ns())) for stage, frames in came]

    def hear(self) -> Emitted:
        """Take the tracker's notices: first the local tracker, then every worker."""
        heard = False
        floors: list[Floor] = []
        for notice in self.line.receive():
            if notice.request is not None:
                self._request = notice.request
                for stage in self._stages.values():
                    stage.core.pin(notice.request)  # Before anything is pruned by the notice.
            if self.local.hear(notice):
                heard = True
                floors += notice.floors
        if not heard:
            return ()
        now, new = time.time_ns(), self._floors.add(floors)
        begun = self._begin()
        emitted = [*begun, *((stage.name, stage.moved(new, now)) for stage in self._stages.values())]
        self._moved.update(self._stages.values())
        # Held records go on, or a stopped front does; most notices fold nothing.
        self.dirty = self.dirty or bool(self._fronts) or self.local.unflushed
        self._save()
        return emitted

    def settle(self) -> Emitted:
        """Take what has become durable in the sinks; the next bundles have all that min time has passed."""
        if self._shared is None:
            return ()
        emitted = [*self.hear()]
        self._shared.settle()
        emitted += [(stage.name, stage.settle()) for stage in self._stages.values() if stage.settled]
        if self._asking is not None:
            # Answers that are durable free what waits for them.
            self.dirty = True
            self._save()
        return emitted

    # -- outside services ------------------------------------------------------------------------------------------

    def ask(self, stage: LevelStage, questions: Sequence[Question]) -> None:
        """Ask outside services, for a worker."""
        assert self._asking is not None, "only calls ask"
        self._asking.ask(stage, questions)

    def answered(self) -> Emitted:
        """Take the answers that have come."""
        assert self._asking is not None, "only calls are answered"
        emitted = [(stage.name, stage.answered(ask, answers)) for stage, ask, answers in self._asking.answered()]
        self.dirty = self.dirty or bool(emitted)
        self._save()
        return emitted

    def send(self) -> None:
        """Hand the sinks all that this turn has released."""
        if self._shared is not None:
            self._shared.send()
        if self._asking is not None:
            self._asking.send()

    def _save(self) -> None:
        """Write what a snapshot asks for, in one process forked for all workers that have its request."""
        pinned = [stage for stage in self._stages.values() if stage.core.pinned is not None]
        if not all([stage.core.complete for stage in pinned]):
            return  # Some have not reached its T: the pins stay.
        if self.saver is not None and pinned:
            self._news += self.saver.begin()
            if self.saver.pinning:
                return
        for stage in pinned:
            stage.core.unpin()

    def _pinned(self) -> Emitted:
        """Go on with a snapshot whose state on disk is pinned."""
        assert self._disk is not None
        if self._disk.pinning:
            self._save()
        else:
            self._disk.greet()
        return ()

    def _hear_saver(self) -> Emitted:
        if self.saver is not None:
            self._news += self.saver.hear()
        return ()

    def forget_floors(self, front: int, offset: int) -> None:
        """Drop floors that a committed manifest makes unnecessary."""
        self._floors.forget(front, offset)

    def snapshot_over(self, name: str, order: Committed | Cancel) -> None:
        """Note that a snapshot is committed or cancelled, as the service wrote to one of the workers."""
        if self.saver is not None:
            if isinstance(order, Committed):
                self.saver.committed(name, order.tick)
            else:
                self.saver.cancel(order.number)

    def news(self, now_s: float) -> list[Reported]:
        """Return what workers report: the offsets fronts expect, what was saved, what was requested."""
        if self.saver is not None and self.saver.awaits:
            self._hear_saver()
        if self.saver is not None and self.saver.pinning:
            self._save()
        for stage in self._fronts:
            reached = stage.reached(now_s)
            if reached is not None:
                self._news.append((stage.name, reached))
        if self._delivered.due(now_s):
            times = {stage.name: stage.core.delivered_time for stage in self._stages.values()}
            self._news += self._delivered.moved(times, now_s)
        news, self._news = self._news, []
        return news

    def listened(self, until_s: float) -> None:
        """Report delivered time as soon as it moves, until a moment."""
        self._delivered.listen(until_s)

    def line_gauges(self) -> LineGauges:
        """Return the traffic on the line to the tracker."""
        return LineGauges(traffic=self.line.traffic, acks=self.local.flushed_acks)

    def gauges(self, of_first: WorkerGauges) -> WorkerGauges:
        """Return the gauges of one of its workers, which reports those of the host as well."""
        own = replace(
            of_first,
            line=self.line_gauges(),
            disk=self.disk_gauges(),
            traces=None if self.exporting is None else self.exporting.gauges(),
        )
        if self._asking is None:
            return own
        asking = self._asking
        return replace(own, callers=asking.gauges(), caller_restarts=asking.restarts)

    def disk_gauges(self) -> DiskGauges | None:
        """Return the state on disk; None if there is none."""
        return None if self._disk is None else self._disk.gauges()

    def report(self, name: str, news: WorkerNews) -> None:
        """Report news of a worker to the service, soon."""
        self._news.append((name, news))

    def tick(self, now_s: float) -> Emitted:
        """Do what is due."""
        emitted = [*self._begin(), *self._go_on()]
        self.rounds.check()
        if now_s - self._heard_s >= HEAR_S and not self._waits:
            self._heard_s = now_s
            emitted = [*emitted, *self.hear()]
        if now_s - self._caught_up_s >= CATCH_UP_S:
            self._caught_up_s = now_s
            for stage in self._stages.values():
                if stage.behind:
                    stage.catch_up()
        if self._asking is not None and now_s - self._asked_s >= ASKED_S:
            self._asked_s = now_s
            emitted = [*emitted, *self.answered()]
        if now_s - self._kept_s >= (KEEP_FLOORS_SOON_S if self._delivered.listened(now_s) else KEEP_FLOORS_S):
            self._kept_s = now_s
            emitted = [*emitted, *((stage.name, stage.keep_floors()) for stage in self._stages.values())]
        line = self.line
        if line.fileno() < 0 and not line.mend(now_s):
            return emitted
        if self.dirty and now_s - self._flushed_s >= self._window_s:
            self._flushed_s = now_s
            for stage in self._fronts:
                stage.core.report()
            flush = self.local.flush()
            # None also means that too much waits to be applied; then the rest goes later.
            self.dirty = flush is None and self.local.unflushed
            line.flush(flush)
        return emitted

    def _go_on(self) -> Emitted:
        """Let workers without a portion in this turn do one more of what min time has freed."""
        moved, self._moved = self._moved, set()
        unfinished = [
            stage
            for stage in self._stages.values()
            if stage.unfinished and not (stage.core.unfinished and stage in moved)
        ]
        if not unfinished:
            return ()
        emitted = [(stage.name, stage.go_on(time.time_ns())) for stage in unfinished]
        self.dirty = True
        self._save()
        return emitted

    @property
    def restless(self) -> bool:
        """Return whether workers should work further ahead of min time instead of resting."""
        return any([stage.restless for stage in self._stages.values()])

    def rest(self) -> Emitted:
        """Let workers go further ahead of min time, as there is nothing else to do."""
        now = time.time_ns()
        return [(stage.name, stage.rest(now)) for stage in self._stages.values() if stage.restless]

    def due_s(self, now_s: float) -> float:
        """Return the seconds until `tick` has something to do."""
        if any([stage.unfinished for stage in self._stages.values()]):
            return 0.0
        if self.line.fileno() < 0:
            return MEND_S
        flush_s = self._flushed_s + self._window_s - now_s if self.dirty else 1.0
        reached_s = min([stage.reached_at_s() for stage in self._fronts], default=math.inf) - now_s
        return max(0.0, min(flush_s, reached_s))

    def close(self, timeout_s: float) -> int:
        """Deliver what the sinks were given, and return the number of records left after the time-out."""
        self.rounds.close()
        if self._asking is not None:
            self._asking.close(timeout_s)
        if self.saver is not None:
            self.saver.close()
        if self._disk is not None:
            self._disk.close()
        left = 0 if self._shared is None else self._shared.close(timeout_s)
        if self.exporting is not None:
            for stage in self._stages.values():
                if stage.traces is not None:
                    stage.traces.close()
            self.exporting.close(TRACES_TIMEOUT_S)
        return left


def _level(stage: LevelStage) -> int:
    return stage.level
