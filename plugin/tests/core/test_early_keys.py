"""With early keys a worker's lanes wait for the frames to that worker, and for nobody else's (F5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest
from programs import by_lane, source_rows

from lowtide import Flow, json, kafka, raw
from lowtide.conf import Conf
from lowtide.core.effects import Effects, Frame
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.operators.faults.failure import UserError
from lowtide.core.operators.order.order import Position
from lowtide.core.operators.plain.sink import SinkEncoder
from lowtide.core.worker import WorkerCore
from lowtide.driver.layout import layout_of
from lowtide.flow.plan.compiler import compile_flow, compile_job
from lowtide.flow.plan.explain import explain
from lowtide.flow.plan.plan import Plan
from lowtide.flow.plan.segments import segments_of
from lowtide.flow.schema.fields import kept
from lowtide.local.run import Message, run_log
from lowtide_tracker import Floor, Graph, LocalTracker, Tracker
from lowtide_tracker.audience import Audience

COUNT = 40
FIRST_TICK, END_TICK = 1_000, 2_000
TOO_LARGE = 1 << 63


@dataclass(frozen=True)
class Click:
    user: str
    page: int


def counted(count: int, click: Click) -> tuple[int, Click]:
    return count + 1, Click(click.user, count)


def outgrown(count: int, click: Click) -> tuple[int, Click]:
    return TOO_LARGE if click.page == COUNT // 2 else count + 1, click


def unchanged(count: int, click: Click) -> tuple[int, Click]:
    return count + 1, click


def as_they_are(clicks: pa.RecordBatch) -> pa.RecordBatch:
    return clicks


def scanned(function: Callable[[int, Click], tuple[int, Click]] = counted) -> Callable[[Flow], None]:
    def make(flow: Flow) -> None:
        clicks = flow.read("clicks", kafka("clicks", json(Click)))
        clicks.key_by("user").scan("counted", function, 0).write("out", kafka("out", json(Click)))

    return make


def in_batches(flow: Flow) -> None:
    clicks = flow.read("clicks", kafka("clicks", json(Click))).key_by("user")
    clicks.map_batches(as_they_are, returns=Click).write("out", kafka("out", json(Click)))


def two_levels(flow: Flow) -> None:
    """Both levels deliver, and only the second feeds no other one."""
    clicks = flow.read("clicks", kafka("clicks", json(Click)))
    counts = clicks.key_by("user").scan("counted", counted, 0)
    counts.write("first", kafka("first", json(Click)))
    counts.key_by("page").scan("again", counted, 0).write("second", kafka("second", json(Click)))


def plan_of(
    make: Callable[[Flow], None], *, letters: bool = True, early_keys: bool = True, parallelism: int = 2
) -> Plan:
    flow = Flow("test", dead_letters=kafka("dead", raw()) if letters else None)
    make(flow)
    return compile_flow(flow, parallelism=parallelism, lanes=4, units=8, slack_ms=1, early_keys=early_keys)


class Rig:
    """A front and the workers of level 1; frames to a worker arrive when they are asked for.

    Args:
        plan: The plan.
        oracle: A plan that gives what is wanted, if it is not the same.
    """

    def __init__(self, plan: Plan, oracle: Plan | None = None) -> None:
        self.plan = plan
        segments = segments_of(plan)
        self.tracker = Tracker(Graph(segments.inbound), {0: 0}, start=0, capacity_ticks=10**6, dues=segments.dues)
        self.locals = [LocalTracker(number, 1, start=0) for number in range(plan.parallelism + 1)]
        front = Front(0, FrontLimits(1, Window(10**5, 1 << 26), 10**6), KnownFloors(0))
        self.reader = WorkerCore(plan, 0, 0, tracker=self.locals[0], front=front)
        self.cores = [WorkerCore(plan, 1, n, tracker=self.locals[n + 1]) for n in range(plan.parallelism)]
        self.audience: Audience[int] = Audience()
        self.heard: dict[int, set[int]] = {number: set() for number in range(plan.parallelism + 1)}
        """By process the segments that its notices have named."""
        for number, core in enumerate((self.reader, *self.cores)):
            self.audience.join(number, self.tracker.whole_notice(), core.listens, global_min=core.leads)
        self.delivered: dict[int, list[bytes | None]] = {}
        log = [
            Message(Position(0, n), FIRST_TICK + 5 * n, None, b'{"user":"u%d","page":%d}' % (n % 7, n))
            for n in range(COUNT)
        ]
        delivered, _ = run_log(oracle or plan, {"clicks": log}, [])
        self.wanted = {lane: [value for _, value, _ in sent] for lane, sent in by_lane(delivered)["out"].items()}
        self.frames: list[Frame] = self.reader.rows(source_rows(log), 10**4).frames
        self.reader.grant(Floor(0, COUNT, END_TICK))

    def arrive(self, place: int) -> None:
        """All frames to a worker arrive; then everything is announced that can be."""
        here = [frame for frame in self.frames if frame.target == place]
        self.frames = [frame for frame in self.frames if frame.target != place]
        for frame in here:
            record = self.plan.vertices[frame.vertex].gives
            frame.batch = frame.batch.with_rows(kept(record, frame.batch.rows, frame.payload))
            self._take(self.cores[place], self.cores[place].frame(frame))
        for _ in range(4):
            self.reader.report()
            for local in self.locals:
                flush = local.flush()
                for notice in [] if flush is None else self.tracker.receive(flush):
                    for number, share in self.audience.tell(notice):
                        self.heard[number] |= share.min_times.keys()
                        self.locals[number].hear(share)
            for core in (self.reader, *self.cores):
                self._take(core, core.moved(()))
        self.tracker.check()

    def lanes_of(self, place: int) -> dict[int, list[bytes | None]]:
        owners = self.plan.worker_of_unit().tolist()
        lanes = {lane for lane, owner in zip(self.plan.lane_of_unit().tolist(), owners, strict=True) if owner == place}
        return {lane: sent for lane, sent in self.wanted.items() if lane in lanes}

    def _take(self, core: WorkerCore, effects: Effects) -> None:
        (vertex,) = self.plan.sinks()
        bundles = list(effects.bundles)
        while bundles:
            sink, bundle = bundles.pop(0)
            sent = SinkEncoder(vertex, 1).encode(bundle.lane, bundle.pieces)
            self.delivered.setdefault(bundle.lane, []).extend(message[3] for message in sent)
            bundles += core.durable(sink, bundle.lane).bundles


@pytest.mark.parametrize("first", [0, 1])
def test_the_lanes_of_one_worker_do_not_wait_for_the_frames_of_another(first: int) -> None:
    rig = Rig(plan_of(scanned()))
    rig.arrive(first)
    assert rig.delivered == rig.lanes_of(first) != {}
    assert rig.tracker.global_min <= FIRST_TICK + 5 * 7, "nothing is pruned, and no snapshot taken, beyond the others"
    rig.arrive(1 - first)
    assert rig.delivered == rig.wanted
    assert rig.tracker.global_min == END_TICK


def test_without_early_keys_all_lanes_wait_for_the_frames_of_all_workers() -> None:
    rig = Rig(plan_of(scanned(), early_keys=False))
    rig.arrive(0)
    assert rig.delivered == {}
    rig.arrive(1)
    assert rig.delivered == rig.wanted


def test_a_state_that_cannot_be_saved_ends_the_life_before_its_workers_lanes_pass_it() -> None:
    """It ends the life with dead letters, too; the other worker's lanes have nothing of it, and do not wait."""
    rig = Rig(plan_of(scanned(outgrown)), oracle=plan_of(scanned(unchanged)))
    (bad,) = {place for place in range(2) for sent in rig.lanes_of(place).values() for each in sent if fails(each)}
    wanted, others = rig.lanes_of(bad), rig.lanes_of(1 - bad)
    rig.arrive(1 - bad)
    assert rig.delivered == others
    with pytest.raises(UserError, match="cannot be saved"):
        rig.arrive(bad)
    for lane in wanted:
        given = rig.delivered.get(lane, [])
        assert given == wanted[lane][: len(given)]
        assert not any(fails(each) for each in given)


def fails(value: bytes | None) -> bool:
    """Whether the state of the record that became this message cannot be saved."""
    return value is not None and b'"page":%d}' % (COUNT // 2) in value


def test_segments_are_parted_where_something_waits_for_one_part() -> None:
    assert list(segments_of(plan_of(scanned())).parts.values()) == [(3, 4)], "behind the last level"
    assert len(segments_of(plan_of(two_levels)).parts) == 1, "what feeds another level is common"
    assert segments_of(plan_of(scanned(), parallelism=1)).parts == {}
    assert segments_of(plan_of(scanned(), early_keys=False)).parts == {}
    assert segments_of(plan_of(scanned(), letters=False)).parts == {}, "any record that fails ends the life"
    assert segments_of(plan_of(in_batches)).parts == {}, "any record of a batch may be the one that ends the life"


def test_a_plan_with_early_keys_is_numbered_as_without() -> None:
    """Only parts come behind; so a life without early keys knows the same segments."""
    plain, parted = segments_of(plan_of(two_levels, early_keys=False)), segments_of(plan_of(two_levels))
    assert parted.of_exchange == plain.of_exchange
    assert parted.inbound.keys() >= plain.inbound.keys()


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (plan_of(scanned()), "lanes wait for their own worker alone"),
        (plan_of(scanned(), early_keys=False), "one another, as job.early_keys is off"),
        (plan_of(scanned(), letters=False), "one another, as without dead letters a record that fails ends the job"),
        (plan_of(in_batches), "one another, as a record that fails at as_they_are ends the job"),
        (
            plan_of(two_levels),
            "one another, as a further level, or another turn of a loop, comes after",
        ),
    ],
)
def test_the_explanation_says_whether_lanes_wait_for_one_another(plan: Plan, said: str) -> None:
    assert said in explain(plan)


@pytest.mark.parametrize("parallelism", [2, 4])
def test_a_worker_hears_of_its_own_part_and_of_no_other(parallelism: int) -> None:
    rig = Rig(plan_of(scanned(), parallelism=parallelism))
    segments = segments_of(rig.plan)
    (common, parts), *others = segments.parts.items()
    assert not others
    for place, core in enumerate(rig.cores):
        assert core.listens == {parts[place], *segments.outlet_of.values(), segments.letters} - {None}
        assert not core.leads, "nothing that it does ends with the global min time"
    assert rig.reader.listens == {common, segments.letters}
    assert rig.reader.leads, "it bounds how far ahead a front labels (R8)"
    for place in range(parallelism):
        rig.arrive(place)
    for place, core in enumerate(rig.cores):
        assert parts[place] in rig.heard[place + 1] <= core.listens
    assert rig.delivered == rig.wanted


@pytest.mark.parametrize(
    ("parallelism", "said", "early"),
    [(1, None, False), (2, None, True), (64, None, True), (65, None, False), (65, True, True), (2, False, False)],
)
def test_a_job_has_early_keys_where_they_cost_little_or_as_it_says(
    parallelism: int, said: bool | None, early: bool
) -> None:
    settings = {"job.parallelism": parallelism} | ({} if said is None else {"job.early_keys": said})
    flow = Flow("test", dead_letters=kafka("dead", raw()))
    scanned()(flow)
    plan = compile_job(flow, Conf.load(None, settings))
    assert plan.early_keys == early
    assert len(segments_of(plan).parts) == early
    assert layout_of(plan, Conf.load(None, settings)).settings["job.early_keys"] == str(early)


def test_one_worker_is_not_said_to_wait_for_others() -> None:
    assert "lanes wait" not in explain(plan_of(scanned(), parallelism=1))
