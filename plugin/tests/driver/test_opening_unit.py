"""The beginning of a life: what is claimed, what is registered, and what is known of the lives before. No server."""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from stage_rig import deployment
from staged_to import StagedTo

from lowtide import Flow, Stream, calendar, kafka
from lowtide import json as as_json
from lowtide.conf import Conf
from lowtide.connectors.topics import Topic
from lowtide.core.effects import letters_of
from lowtide.core.fronts.register import FrontRegister, Partition
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.driver.borrowed_floors import refuse_half_borrowed
from lowtide.driver.bounds import Bounds
from lowtide.driver.frozen import _settled, job_record
from lowtide.driver.opening import _by_vertex, _completed, _ids
from lowtide.driver.partitions import written_partitions
from lowtide.driver.placement import kept_steps, refuse_other_steps, steps_of, text_of
from lowtide.driver.preflight import Surroundings
from lowtide.driver.recovery import Recovered, _floors_of, refuse_other_state, refuse_shorter_lasts
from lowtide.driver.refusals import fence_ends_life
from lowtide.driver.relied_on import relied_on
from lowtide.errors import AlreadyRunning, FlowError, LifeEnded, LowtideError, ServiceUnavailable
from lowtide.flow.plan.compiler import compile_flow, compile_job
from lowtide.flow.plan.plan import Plan
from lowtide.flow.time import zones
from lowtide.flow.time.moments import micros_of
from lowtide.sinks.contract import LaneName
from lowtide.sinks.kafka.claims import transactional_id
from lowtide.sinks.kafka.lasts import Durable
from lowtide_snapshots.commits.log import Commit
from lowtide_snapshots.errors import Fenced, LeaseTaken, RecordDiffers, SnapshotsError, ZooKeeperUnavailable
from lowtide_snapshots.format.manifest import FloorAt, FrontAt, LaneLast, Manifest, Part
from lowtide_snapshots.job.borrowed import Borrowed
from lowtide_snapshots.job.paths import JobPaths
from lowtide_snapshots.zookeeper.memory_nodes import MemoryNodes
from lowtide_snapshots.zookeeper.nodes import Create
from lowtide_tracker import Floor

FOUND = Surroundings(
    (Topic("orders", 2, "CreateTime", "delete", "id"),), {"out": 2}, {("orders", 0): 0, ("orders", 1): 4}
)
KEY = OrderKey(7, 0, 3)


class Written:
    """Stands where the job's place in ZooKeeper stands: notes what is written."""

    def __init__(self) -> None:
        self.fronts: list[object] = []

    def add_fronts(self, incarnation: int, entries: list[object]) -> None:
        self.fronts += [(incarnation, entry) for entry in entries]


def ids(*places: tuple[int, int]) -> set[str]:
    return {transactional_id("stage", level, lane) for level, lane in places}


def test_all_ids_that_a_life_may_use_are_claimed() -> None:
    """W10: of sinks each worker's first lane; of dead letters every level, and each front that is or comes."""
    assert _ids(deployment().plan, FrontRegister(), FOUND) == ids((1, 0), (1, 1))
    register, _ = FrontRegister().opened(Partition("orders", "id", 0), offset=0, above=0)
    claimed = _ids(deployment(letters=True).plan, register, FOUND)
    assert ids((0, 0), (0, 1), (1, 0), (1, 1)) <= claimed
    few = replace(deployment().plan, lanes=32)
    assert _ids(few, FrontRegister(), FOUND) == ids((1, 0), (1, 16)), "as many as there are workers"


NOTHING = Bounds({}, {}, {})


def test_new_partitions_are_written_down_and_old_ones_stay_as_they_are() -> None:
    """R3: append-only, and nothing new below what was announced as over."""
    known, _ = FrontRegister().opened(Partition("orders", "id", 1), offset=2, above=5)
    store = Written()
    register = _completed(store, deployment().plan, known, 9, FOUND, 40, NOTHING)  # type: ignore[arg-type]
    assert [(e.number, e.partition.partition, e.offset, e.opening) for e in register.entries] == [
        (0, 1, 2, 5),
        (1, 0, 0, 40),
    ]
    assert store.fronts == [(9, register.entries[1].to_json())]
    again = Written()
    assert _completed(again, deployment().plan, register, 10, FOUND, 50, NOTHING) == register  # type: ignore[arg-type]
    assert again.fronts == []


def test_what_is_durable_is_found_by_the_vertices_of_this_plan() -> None:
    """R13."""
    plan = deployment(letters=True).plan
    (sink,) = plan.sinks()
    last = {LaneName(0, "out", 1): KEY, LaneName(0, "", 3): KEY, LaneName(1, "", 0): KEY, LaneName(0, "gone", 0): KEY}
    found = _by_vertex(plan, Durable(last, ()), 4)
    assert found == {(sink.id, 1): KEY, (letters_of(0), 3): KEY, (letters_of(1), 0): KEY}


def test_what_strands_have_delivered_is_found_by_lane() -> None:
    """R13: a life with other workers has other strands; of each lane the furthest that it lies in counts."""
    plan = deployment(letters=True, parallelism=4).plan
    (sink,) = plan.sinks()
    early, late = OrderKey(5, 0, 1), OrderKey(9, 0, 2)
    last = {
        LaneName(0, "out", 0, 64): late,
        LaneName(0, "out", 0, 128): KEY,
        LaneName(0, "out", 32, 64): early,
        LaneName(0, "out", 3): early,
        LaneName(1, "", 96, 128): KEY,
        LaneName(0, "gone", 0, 128): late,
    }
    found = _by_vertex(plan, Durable(last, ()), 4)
    assert found == {
        (sink.id, 0): late, (sink.id, 1): late, (sink.id, 2): KEY, (sink.id, 3): KEY, (letters_of(1), 3): KEY,
    }  # fmt: skip


WRITTEN = [
    ({}, 8, [], 4),
    ({}, 3, [], 3),
    ({"out": 3}, 8, [], 3),
    ({"other": 1}, 4, [LaneName(0, "out", 1)], 4),
    ({}, 2, [LaneName(0, "out", 0, 64)], 2),
    ({"out": 2}, 2, [LaneName(0, "out", 1)], 2),
]


@pytest.mark.parametrize(("known", "has", "delivered", "wanted"), WRITTEN)
def test_a_key_stays_in_its_partition(known: dict[str, int], has: int, delivered: list[LaneName], wanted: int) -> None:
    """R12: how many partitions a sink writes is decided with its first delivery."""
    plan = deployment(parallelism=4).plan
    assert written_partitions(plan, known, {"out": has, "letters": 1}, delivered) == known | {"out": wanted}


@pytest.mark.parametrize(("known", "delivered"), [({"out": 3}, []), ({}, [LaneName(0, "out", 1)])])
def test_a_topic_with_fewer_partitions_than_were_written_is_refused(
    known: dict[str, int], delivered: list[LaneName]
) -> None:
    plan = deployment(parallelism=4).plan
    with pytest.raises(FlowError, match=r'"out" has 2 partitions, but the job has written \d') as caught:
        written_partitions(plan, known, {"out": 2, "letters": 1}, delivered)
    assert 'sink "out"' in str(caught.value)


def test_the_record_says_what_order_and_state_hang_on() -> None:
    """R11."""
    plan = deployment().plan
    record = job_record(plan)
    assert (record.job, record.slack_ms, record.lanes, record.sources) == ("stage", 1, 2, ("orders=orders",))
    assert record != job_record(deployment(parallelism=3).plan)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (LeaseTaken, AlreadyRunning),
        (RecordDiffers, FlowError),
        (ZooKeeperUnavailable, ServiceUnavailable),
        (Fenced, LifeEnded),
    ],
)
def test_what_zookeeper_refuses_is_said_as_one_of_our_errors(
    theirs: type[SnapshotsError], ours: type[LowtideError]
) -> None:
    with pytest.raises(ours, match="what happened") as caught, fence_ends_life():
        raise theirs("what happened", where="there", way_out="do this")
    assert (caught.value.where, caught.value.way_out) == ("there", "do this")


def test_lanes_that_nobody_names_are_those_of_the_record() -> None:
    """R11: the number of workers may change, within the lanes that the job began with."""
    frozen = replace(job_record(deployment().plan), lanes=4)
    fewer = Conf.load(overrides={"job.parallelism": 2})
    plan, conf = _settled(frozen, deployment().plan, fewer)
    assert (plan.lanes, conf.job.lanes) == (4, 4)
    more = Conf.load(overrides={"job.parallelism": 5})
    with pytest.raises(FlowError, match=r"(?s)5.*has only 4 lanes.*set job.parallelism to 4 or less"):
        _settled(frozen, deployment(parallelism=5).plan, more)
    grown = replace(frozen, lanes=8, grown=(2, 4))
    plan, conf = _settled(grown, deployment().plan, fewer)
    assert (plan.lanes, conf.job.lanes, plan.grown, job_record(plan)) == (8, 8, (2, 4), grown)
    assert _settled(grown, plan, fewer) == (plan, conf)
    named = Conf.load(overrides={"job.parallelism": 2, "job.lanes": 2})
    with pytest.raises(RecordDiffers, match=r"set job\.lanes to 8 again"):
        _settled(grown, deployment().plan, named)
    with pytest.raises(RecordDiffers, match=r"set job\.lanes to 4 again"):
        _settled(frozen, deployment().plan, named)
    with pytest.raises(RecordDiffers, match="units"):
        _settled(replace(frozen, units=frozen.units + 1), deployment().plan, fewer)


def test_a_job_that_names_no_lanes_has_many() -> None:
    def lanes_of(sink: Any, **job: int) -> int:
        flow = Flow("stage")
        flow.read("orders", kafka("orders", as_json(Payment))).write("out", sink)
        return compile_job(flow, Conf.load(overrides={f"job.{name}": value for name, value in job.items()})).lanes

    topic = kafka("out", as_json(Payment), key="user")
    assert (lanes_of(topic), lanes_of(topic, parallelism=40), lanes_of(topic, lanes=4)) == (32, 40, 4)
    assert lanes_of(StagedTo("shelf", Payment, "user")) == 32


def test_lanes_of_the_record_make_the_plan_that_is_compiled_with_them() -> None:
    """A start compiles its flow before it has asked for the record, and once."""
    flow = Flow("stage")
    flow.read("orders", kafka("orders", as_json(Payment))).write("out", kafka("out", as_json(Payment), key="user"))
    frozen = replace(job_record(compile_job(flow, Conf.load())), lanes=4)
    asked = Conf.load(overrides={"job.parallelism": 2})
    plan, conf = _settled(frozen, compile_job(flow, asked), asked)
    assert plan == compile_job(flow, conf)
    assert _settled(frozen, plan, asked) == (plan, conf), "a preview's plan is settled once more"


def manifest(steps: str = "", generation: int = 0) -> Manifest:
    """Of a snapshot at tick 10, when lane 0 had delivered up to tick 12."""
    last = json.dumps([12, 0, 6, [], 1])
    plan = deployment().plan
    return Manifest(
        job="stage", id="000001-0001", name=None, tick=10, incarnation=1, created="2026-01-31T12:00:00.000Z", base=None,
        record=job_record(plan), flow=(), fronts=(), floors=(), lasts=(LaneLast(0, "out", 0, last),), parts=(),
        steps=steps, generation=generation,
    )  # fmt: skip


class Kept:
    """Stands where the job's place in ZooKeeper stands: what lives before have left there."""

    job = "stage"

    def __init__(self, commit: int | None = None, borrowed: int | None = None) -> None:
        nodes, paths = MemoryNodes(), JobPaths("lowtide", self.job)
        if commit is not None:
            made = Commit(commit, "000001-0001", None, "manifests/one", "0" * 64, 1, "2026-01-31T12:00:00.000Z")
            nodes.commit([Create(paths.last_commit, made.to_bytes())])
        self.nodes = nodes, paths
        self._borrowed = borrowed

    def borrowed(self) -> Borrowed | None:
        return None if self._borrowed is None else Borrowed("blue", self._borrowed)


@pytest.mark.parametrize(
    ("kept", "last", "published", "relied"),
    [
        (Kept(), {}, None, 0),
        (Kept(), {LaneName(0, "out", 0): KEY}, None, 8),
        (Kept(), {LaneName(0, "out", 0): KEY}, 7, 8),
        (Kept(), {LaneName(0, "out", 0): KEY}, 9, 9),
        (Kept(commit=20), {}, 9, 20),
        (Kept(commit=20, borrowed=30), {}, 9, 30),
    ],
)
def test_what_lies_below_what_anything_rests_on_has_its_labels_for_good(
    kept: Any, last: dict[LaneName, OrderKey], published: int | None, relied: int
) -> None:
    """R3: the newest commit too, whichever a life begins from: the life after may begin from that one."""
    assert relied_on(kept, Durable(last, ()), published) == relied


def test_a_start_that_broke_off_while_it_took_floors_is_repeated_with_the_same() -> None:
    plan, none = deployment().plan, FrontRegister()
    with pytest.raises(LifeEnded, match="--floors-from blue"):
        refuse_half_borrowed(plan, none, Borrowed("blue", 7))
    refuse_half_borrowed(plan, none, None)
    refuse_half_borrowed(plan, none.opened(Partition("orders", "id", 0), offset=0, above=0)[0], Borrowed("blue", 7))


def test_a_manifest_knows_the_labels_at_which_its_fronts_are_read_again() -> None:
    """A front that was quiet has one above T: a life that begins from an older commit must not label below it."""
    quiet, first = FrontAt(0, "orders", "id", 0, 5, 17), FrontAt(1, "orders", "id", 1, 0, None)
    older = replace(manifest(), fronts=(replace(quiet, offset=3, label=8), first))
    newer = replace(manifest(), tick=15, fronts=(quiet, first), floors=(FloorAt(1, 0, 15, False),))
    known = tuple(floor for each in (older, newer) for floor in _floors_of(each))
    assert set(known) == {Floor(0, 3, 8), Floor(0, 5, 17), Floor(1, 0, 15)}
    assert set(Recovered(older, known).needed([Floor(1, 0, 15)])[1]) == {Floor(0, 3, 8), Floor(0, 5, 17)}


def test_a_sink_that_has_lost_what_a_snapshot_knew_is_refused() -> None:
    """R13; but not where all is delivered again."""
    lane = LaneName(0, "out", 0)
    refuse_shorter_lasts(manifest(), {lane: OrderKey(12, 0, 6, (), 1)}, 0)
    for last in ({}, {lane: OrderKey(12, 0, 5, (), 1)}):
        with pytest.raises(LifeEnded, match="lane 0"):
            refuse_shorter_lasts(manifest(), last, 0)
        refuse_shorter_lasts(manifest(), last, 1)


def counting(initial: int, ttl: timedelta | None = None) -> Plan:
    def count(state: int, payment: Payment) -> tuple[int, Payment]:
        return state + 1, payment

    flow = Flow("stage")
    payments = flow.read("payments", kafka("payments", as_json(Payment)))
    payments.key_by("user").scan("count", count, initial, ttl=ttl).write("out", kafka("out", as_json(Payment)))
    return compile_flow(flow, parallelism=1, slack_ms=2)


def test_another_ttl_is_read_by_the_old_one_and_shares_no_parts() -> None:
    second = counting(0, timedelta(seconds=1))
    flow = tuple(step.shape for step in saved_steps(second).values())
    recovered = Recovered(replace(manifest(), flow=flow), ())
    assert recovered.forgot == {"count": 500}
    assert recovered.same_shapes(second)
    assert not recovered.same_shapes(counting(0, timedelta(hours=1)))
    assert not recovered.same_shapes(counting(0))


def test_what_all_units_share_is_written_again_where_each_unit_has_it() -> None:
    """As snapshots of format 2 have it."""
    rates = Part("rates", "broadcast", 0, 10, "000001-0001", 1, 100, "ab" * 32)
    plan = counting(0)
    now = replace(manifest(), flow=tuple(step.shape for step in saved_steps(plan).values()))
    assert Recovered(replace(now, parts=(rates,)), ()).same_shapes(plan)
    assert not Recovered(replace(now, parts=(rates, replace(rates, unit=1))), ()).same_shapes(plan)


def test_another_initial_state_is_refused() -> None:
    was = replace(manifest(), flow=tuple(step.shape for step in saved_steps(counting(0)).values()))
    refuse_other_state(counting(0), was, print)
    with pytest.raises(FlowError, match=r'step "count" begins with 100, but began with 0, .* another name'):
        refuse_other_state(counting(100), was, print)


def by_days() -> Plan:
    flow = Flow("stage")
    payments = flow.read("payments", kafka("payments", as_json(Payment))).key_by("user")
    days = payments.window("days", calendar("day", "Europe/Berlin"))
    days.fold(
        lambda count, _: count + 1, 0, lambda window, count: Payment(str(window.key[0]), "", count), returns=Payment
    ).write("out", kafka("out", as_json(Payment)))
    return compile_flow(flow, parallelism=1, slack_ms=2)


@pytest.mark.parametrize(("year", "refused"), [(1969, False), (1970, True), (1971, True), (1972, False)])
def test_a_time_zone_whose_days_begin_otherwise_is_refused(
    monkeypatch: pytest.MonkeyPatch, year: int, refused: bool
) -> None:
    """From the year of the snapshot to that of a year later, which are 1970 and 1971 here."""
    was = replace(manifest(), flow=tuple(step.shape for step in saved_steps(by_days()).values()))
    refuse_other_state(by_days(), was, print)
    marks, place = zones.day_marks("Europe/Berlin"), (year - zones.FIRST_YEAR) * zones.DIGITS
    other = marks if place < 0 else marks[:place] + "x" * zones.DIGITS + marks[place + zones.DIGITS :]
    monkeypatch.setattr("lowtide.core.operators.state.saved_step.day_marks", {"Europe/Berlin": other}.get)
    with (
        pytest.raises(FlowError, match=rf"Europe/Berlin, which begin differently in {year}")
        if refused
        else nullcontext()
    ):
        refuse_other_state(by_days(), was, print)


def test_marks_of_days_tell_zones_and_years_apart() -> None:
    berlin, utc = zones.day_marks("Europe/Berlin"), zones.day_marks("UTC")
    assert len(berlin) == zones.YEARS * zones.DIGITS
    assert zones.differ(berlin, berlin, 0) is None
    assert zones.differ(berlin, utc, 0) == zones.FIRST_YEAR
    assert zones.differ(zones.day_marks("Europe/Paris"), berlin, micros_of(datetime(2026, 3, 1, tzinfo=UTC))) is None
    assert zones.differ(berlin, utc, micros_of(datetime(2200, 1, 1, tzinfo=UTC))) is None, "beyond what is noted"


LANE = LaneName(0, "out", 0)
BEHIND, BELOW = {LANE: OrderKey(10, 0, 6)}, {LANE: OrderKey(9, 0, 6)}
"""What a lane has when a life begins at tick 10."""


@dataclass(frozen=True)
class Payment:
    user: str
    account: str
    number: int


@dataclass(frozen=True)
class Numbered:
    user: int
    account: str
    number: int


def count(state: int, payment: Payment) -> tuple[int, Payment]:
    return state + 1, payment


def large(payment: Payment) -> bool:
    return payment.number > 1000


def payments(
    key: str | None = "user", *, by: str = "", record: type = Payment, alarms: bool = False, parallelism: int = 2
) -> Plan:
    """Payments to a sink with a key; first by a column, if one is named, and with one more branch."""
    flow = Flow("payments")
    stream: Stream[Any] = flow.read("payments", kafka("payments", as_json(record)))
    if alarms:
        stream.filter(large).write("alarms", kafka("alarms", as_json(record)))
    if by:
        stream = stream.key_by(by, name="grouped").scan("counted", count, 0)
    stream.write("out", kafka("out", as_json(record), key=key))
    return compile_flow(flow, parallelism=parallelism, lanes=2)


def kept(plan: Plan, begins: int = 0) -> dict[str, Any]:
    """ZooKeeper's record of a first life of this plan."""
    kept: dict[str, Any] = json.loads(json.dumps(kept_steps(plan, None, [], begins)))
    return kept


def test_other_steps_are_refused_where_the_old_ones_have_delivered_behind_the_snapshot() -> None:
    """W15: a record's place in the order hangs on the steps that it goes through."""
    plan = deployment().plan
    for known in (None, kept(plan)):
        refuse_other_steps(plan, known, manifest(text_of(plan)), BEHIND, 10)
        refuse_other_steps(plan, known, manifest("other"), BELOW, 10)
        with pytest.raises(FlowError, match=r"(?s)steps of the flow were added.*up to 10 ms.*--redeliver"):
            refuse_other_steps(plan, known, manifest("other"), BEHIND, 10)
    assert text_of(plan) == text_of(deployment(parallelism=3).plan)
    refuse_other_steps(plan, None, manifest(), BEHIND, 10)


@pytest.mark.parametrize(
    ("was", "now", "what"),
    [
        (payments("user"), payments("account"), r'"out" is keyed by account .*but was keyed by user'),
        (payments("user"), payments("user", record=Numbered), r"user \(int64\), but was keyed by user \(string\)"),
        (payments("user"), payments(None), r'"out" is keyed by nothing, but was keyed by user \(string\)'),
        (payments(by="user"), payments(by="account"), r'"grouped" is keyed by account .*but was keyed by user'),
        (payments(by="user"), payments(by="user", key="account"), r'"out" is keyed by account .*but was keyed by'),
        (payments(), payments(alarms=True), r'"alarms" is new; "alarms/exchange" is new; "large" is new'),
        (payments(alarms=True), payments(), r'"alarms" is gone; "alarms/exchange" is gone; "large" is gone'),
    ],
)
def test_an_edit_that_moves_records_is_refused_wherever_something_was_delivered(
    was: Plan, now: Plan, what: str
) -> None:
    """R4, R12: also before the first commit, and of a start without state."""
    assert text_of(was) != text_of(now)
    with pytest.raises(
        FlowError, match=rf"(?s){what}.*begins at 0 ms.*up to 20 ms.*another name and other output topics"
    ):
        refuse_other_steps(now, kept(was), None, BEHIND, 0)
    with pytest.raises(FlowError, match=rf"(?s){what}.*--redeliver"):
        refuse_other_steps(now, kept(was), manifest(text_of(was)), BEHIND, 10)
    refuse_other_steps(was, kept(was), None, BEHIND, 0)
    refuse_other_steps(now, kept(was), None, {}, 0)
    refuse_other_steps(now, kept(was), manifest(text_of(was)), BELOW, 10)


def test_what_is_no_place_may_change() -> None:
    assert steps_of(payments()) == steps_of(payments(parallelism=1))
    assert text_of(payments()) == text_of(payments(parallelism=1))


def test_steps_that_came_later_say_nothing_about_what_was_delivered_before() -> None:
    """A life went from one flow to another at tick 10; then an older commit is begun from."""
    old, new = payments("user"), payments("account")
    first = kept(old)
    assert first["since"] == 0
    assert kept_steps(old, first, BELOW, 10) == first, "a start with the same steps changes nothing"
    second = kept_steps(new, first, BELOW, 10)
    assert second == {"steps": steps_of(new), "since": 10}
    refuse_other_steps(new, second, None, BEHIND, 10)
    with pytest.raises(FlowError, match="had other steps before 20 ms; this start begins at 18 ms"):
        refuse_other_steps(new, second, None, BELOW, 9)
    assert kept_steps(new, second, BEHIND, 10) == second
    assert kept_steps(old, second, {}, 10)["since"] == 0, "in a new output generation nothing was delivered"


def test_a_job_that_kept_no_steps_is_held_against_its_commit_alone() -> None:
    """Jobs from before they were kept; their manifests say nothing about keys."""
    plan = payments()
    rows = [step[:-1] for step in steps_of(plan)]
    before = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    refuse_other_steps(plan, None, None, BEHIND, 0)
    refuse_other_steps(plan, None, manifest(before), BEHIND, 10)
    with pytest.raises(FlowError, match="added, removed, renamed, rekeyed or rejoined since commit 000001-0001"):
        refuse_other_steps(payments(alarms=True), None, manifest(before), BEHIND, 10)
    assert kept_steps(plan, None, BEHIND, 10) == {"steps": steps_of(plan), "since": 0}
