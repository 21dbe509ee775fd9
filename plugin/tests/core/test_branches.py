"""A slow step holds back the steps downstream of it, and nothing else (R7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from programs import by_lane, source_rows

from lowtide import Flow, agg, json, kafka, millis, raw, tumbling
from lowtide.core.effects import Effects, Frame
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.operators.order.order import Position
from lowtide.core.operators.plain.sink import SinkEncoder
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.explain import explain
from lowtide.flow.plan.plan import Plan
from lowtide.flow.plan.segments import segments_of
from lowtide.flow.schema.fields import kept
from lowtide.local.run import Message, run_log
from lowtide_tracker import Floor, Graph, LocalTracker, Tracker

COUNT = 20
END_TICK = 2_000


@dataclass(frozen=True)
class Click:
    user: str
    page: int


@dataclass(frozen=True)
class Visits:
    page: int
    clicks: int


def newer(_: Click, click: Click) -> Click:
    return click


def parted(flow: Flow) -> None:
    """A branch with windows and one that keeps the newest, of one source."""
    clicks = flow.read("clicks", kafka("clicks", json(Click)))
    visits = clicks.key_by("page").window("visits", tumbling(millis(20))).aggregate(Visits, clicks=agg.count())
    visits.write("slow", kafka("visits", json(Visits)))
    clicks.key_by("user").reduce("newest", newer).write("fast", kafka("newest", json(Click)))


def apart(flow: Flow) -> None:
    """Two branches of two sources."""
    orders = flow.read("orders", kafka("orders", json(Click)))
    orders.key_by("user").reduce("last-order", newer).write("slow", kafka("last-orders", json(Click)))
    clicks = flow.read("clicks", kafka("clicks", json(Click)))
    clicks.key_by("user").reduce("newest", newer).write("fast", kafka("newest", json(Click)))


def plan_of(make: Callable[[Flow], None], *, letters: bool) -> Plan:
    flow = Flow("test", dead_letters=kafka("dead", raw()) if letters else None)
    make(flow)
    return compile_flow(flow, parallelism=1, lanes=1, units=8, slack_ms=1)


class Rig:
    """A front for each source and one worker of level 1; frames of a branch arrive when they are asked for."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        segments = segments_of(plan)
        sources = list(plan.sources())
        feeds = {n: list(segments.waits[source.id]) for n, source in enumerate(sources)}
        self.tracker = Tracker(
            Graph(segments.inbound), dict.fromkeys(feeds, 0), start=0, capacity_ticks=10**6, feeds=feeds,
            dues=segments.dues,
        )  # fmt: skip
        self.locals = [LocalTracker(number, 1, start=0) for number in range(len(sources) + 1)]
        self.readers = []
        for number, source in enumerate(sources):
            front = Front(number, FrontLimits(1, Window(10**5, 1 << 26), 10**6), KnownFloors(0))
            reader = WorkerCore(plan, 0, 0, tracker=self.locals[number], front=front)
            reader.read_by([source.id])
            self.readers.append(reader)
        self.core = WorkerCore(plan, 1, 0, tracker=self.locals[-1])
        self.core.report_due()
        self.frames: list[Frame] = []
        self.delivered: dict[str, list[bytes | None]] = {sink.name: [] for sink in plan.sinks()}

    def read(self, front: int, messages: list[Message]) -> None:
        """A front reads its whole log, and promises that nothing comes below the end."""
        self.frames += self.readers[front].rows(source_rows(messages), 10**4).frames
        self.readers[front].grant(Floor(front, len(messages), END_TICK))

    def arrive(self, *exchanges: str) -> None:
        """Frames of these exchanges arrive; then everything is announced that can be."""
        here = [frame for frame in self.frames if self.plan.vertices[frame.vertex].name in exchanges]
        self.frames = [frame for frame in self.frames if frame not in here]
        for frame in here:
            record = self.plan.vertices[frame.vertex].gives
            frame.batch = frame.batch.with_rows(kept(record, frame.batch.rows, frame.payload))
            self._take(self.core.frame(frame))
        for _ in range(4):
            for reader in self.readers:
                reader.report()
            for local in self.locals:
                flush = local.flush()
                for notice in [] if flush is None else self.tracker.receive(flush):
                    for each in self.locals:
                        each.hear(notice)
            for core in (*self.readers, self.core):
                self._take(core.moved(()))
        self.tracker.check()

    def _take(self, effects: Effects) -> None:
        bundles = list(effects.bundles)
        while bundles:
            sink, bundle = bundles.pop(0)
            (vertex,) = (each for each in self.plan.sinks() if each.id == sink)
            sent = SinkEncoder(vertex, 1).encode(bundle.lane, bundle.pieces)
            self.delivered[vertex.name] += [message[3] for message in sent]
            bundles += self.core.durable(sink, bundle.lane).bundles


def log(front: int = 0) -> list[Message]:
    return [
        Message(Position(front, n), 1_000 + 5 * n, None, b'{"user":"u%d","page":%d}' % (n % 3, n % 4))
        for n in range(COUNT)
    ]


def wanted(plan: Plan, logs: dict[str, list[Message]]) -> dict[str, list[bytes | None]]:
    delivered, _ = run_log(plan, logs, [])
    return {sink: [value for _, value, _ in found.get(0, [])] for sink, found in by_lane(delivered).items()}


def test_a_slow_branch_does_not_hold_another() -> None:
    plan = plan_of(parted, letters=True)
    rig, want = Rig(plan), wanted(plan, {"clicks": log()})
    rig.read(0, log())
    rig.arrive("clicks/by-user")
    assert rig.delivered == {"fast": want["fast"], "slow": []}, "frames of the other are on their way"
    assert rig.tracker.global_min < 1_001, "nothing is pruned, and no snapshot taken, beyond the slow one"
    rig.arrive("clicks/by-page")
    assert rig.delivered["fast"] == want["fast"]
    assert rig.delivered["slow"] == want["slow"][: len(rig.delivered["slow"])]
    assert len(rig.delivered["slow"]) == len(want["slow"])


@pytest.mark.parametrize("letters", [True, False])
def test_a_source_that_stands_holds_only_what_it_feeds(letters: bool) -> None:
    plan = plan_of(apart, letters=letters)
    rig = Rig(plan)
    rig.read(1, log(1))
    rig.arrive("clicks/by-user")
    assert rig.delivered == {"fast": wanted(plan, {"orders": [], "clicks": log(1)})["fast"], "slow": []}
    assert rig.tracker.global_min == 0


def test_where_a_record_may_end_the_life_branches_of_one_source_go_together() -> None:
    """R6: what is wrong with it may be corrected in front of both."""
    plan = plan_of(parted, letters=False)
    rig = Rig(plan)
    rig.read(0, log())
    rig.arrive("clicks/by-user")
    assert rig.delivered == {"fast": [], "slow": []}
    rig.arrive("clicks/by-page")
    assert rig.delivered == wanted(plan, {"clicks": log()})


def test_each_sink_says_what_it_waits_for() -> None:
    explained = [
        line for line in explain(plan_of(parted, letters=True)).splitlines() if line.startswith(("sink", "dead"))
    ]
    assert explained == [
        'sink "slow" waits for source "clicks", step "visits"',
        'sink "fast" waits for source "clicks", step "newest"',
        "dead letters wait for all sources and steps",
    ]
    explained = [line for line in explain(plan_of(parted, letters=False)).splitlines() if line.startswith("sink")]
    why, end = "and for the other branches of its sources", "as a record that fails there may end the job"
    assert explained == [
        f'sink "slow" waits for source "clicks", step "visits"; {why} (with newest), {end}',
        f'sink "fast" waits for source "clicks", step "newest"; {why} (with visits), {end}',
    ]


def test_segments_of_branches_that_meet() -> None:
    """Exchanges that feed the same steps are one segment; a step waits for all that feed it."""
    flow = Flow("test", dead_letters=kafka("dead", raw()))
    left = flow.read("left", kafka("left", json(Click))).key_by("user")
    right = flow.read("right", kafka("right", json(Click))).key_by("user")
    left.reduce("newest", newer).write("fast", kafka("newest", json(Click)))
    both = left.connect(right).scan("both", seen, 0)
    both.write("both-out", kafka("both", json(Click)))
    plan = compile_flow(flow, parallelism=2)
    segments = segments_of(plan)
    waits = {plan.vertices[vertex].name: found for vertex, found in segments.waits.items()}
    assert (waits["newest"], waits["both"]) == ((1,), (1, 2))
    assert segments.feeds == {"left": [1], "right": [2]}
    other = Flow("test")
    left = other.read("left", kafka("left", json(Click))).key_by("user")
    left.connect(other.read("right", kafka("right", json(Click))).key_by("user")).scan("both", seen, 0).write(
        "out", kafka("both", json(Click))
    )
    assert dict(segments_of(compile_flow(other, parallelism=1)).inbound) == {1: [], 2: [1]}


def seen(state: int, click: Click) -> tuple[int, Click]:
    return state + 1, click
