"""How a life begins: what is claimed, what is registered, and what is known of the lives before. No server."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from stage_rig import deployment

from lowtide.conf import Conf
from lowtide.connectors.claims import transactional_id
from lowtide.connectors.lasts import Durable, LaneName
from lowtide.errors import AlreadyRunning, FlowError, LifeEnded, LowtideError, ServiceUnavailable
from lowtide.fronts.register import FrontRegister, Partition
from lowtide.operators.order import OrderKey
from lowtide.spark.frozen import _settled, job_record
from lowtide.spark.opening import _by_vertex, _completed, _ids
from lowtide.spark.preflight import Surroundings
from lowtide.spark.recovering import refuse_other_order, refuse_shorter_lasts
from lowtide.spark.refusing import as_ours
from lowtide.topics import Topic
from lowtide.worker.effects import letters_of
from lowtide_snapshots.errors import Fenced, LeaseTaken, RecordDiffers, SnapshotsError, ZooKeeperUnavailable
from lowtide_snapshots.manifest import LaneLast, Manifest

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
    """W10: of sinks every lane, whoever owns it; of dead letters every level, and each front that is or comes."""
    assert _ids(deployment().plan, FrontRegister(), FOUND) == ids((1, 0), (1, 1))
    register, _ = FrontRegister().opened(Partition("orders", "id", 0), offset=0, above=0)
    claimed = _ids(deployment(letters=True).plan, register, FOUND)
    assert ids((0, 0), (0, 1), (1, 0), (1, 1)) <= claimed


def test_new_partitions_are_written_down_and_old_ones_stay_as_they_are() -> None:
    """R3: append-only, and nothing new below what anybody was told is over."""
    known, _ = FrontRegister().opened(Partition("orders", "id", 1), offset=2, above=5)
    store = Written()
    register = _completed(store, known, 9, FOUND, 40)  # type: ignore[arg-type]
    assert [(e.number, e.partition.partition, e.offset, e.opening) for e in register.entries] == [
        (0, 1, 2, 5),
        (1, 0, 0, 40),
    ]
    assert store.fronts == [(9, register.entries[1].to_json())]
    again = Written()
    assert _completed(again, register, 10, FOUND, 50) == register  # type: ignore[arg-type]
    assert again.fronts == []


def test_what_is_durable_is_found_by_the_vertices_of_this_plan() -> None:
    """R13."""
    plan = deployment(letters=True).plan
    (sink,) = plan.sinks()
    last = {LaneName(0, "out", 1): KEY, LaneName(0, "", 3): KEY, LaneName(1, "", 0): KEY, LaneName(0, "gone", 0): KEY}
    found = _by_vertex(plan, Durable(last, ()), 4)
    assert found == {(sink.id, 1): KEY, (letters_of(0), 3): KEY, (letters_of(1), 0): KEY}


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
    with pytest.raises(ours, match="what happened") as caught, as_ours():
        raise theirs("what happened", where="there", way_out="do this")
    assert (caught.value.where, caught.value.way_out) == ("there", "do this")


def test_lanes_that_nobody_names_are_those_of_the_record() -> None:
    """R11: the number of workers may change, within the lanes that the job began with."""
    frozen = replace(job_record(deployment().plan), lanes=4)
    fewer = Conf.load(overrides={"job.parallelism": 2})
    assert _settled(frozen, deployment().plan, fewer).job.lanes == 4
    more = Conf.load(overrides={"job.parallelism": 5})
    with pytest.raises(FlowError, match=r"(?s)5.*has 4 lanes.*set job.parallelism to 4 or less"):
        _settled(frozen, deployment(parallelism=5).plan, more)
    named = Conf.load(overrides={"job.parallelism": 2, "job.lanes": 2})
    with pytest.raises(RecordDiffers, match=r"set job\.lanes to 4 again"):
        _settled(frozen, deployment().plan, named)
    with pytest.raises(RecordDiffers, match="units"):
        _settled(replace(frozen, units=frozen.units + 1), deployment().plan, fewer)


def manifest(steps: str = "", generation: int = 0) -> Manifest:
    """Of a snapshot at tick 10, when lane 0 had delivered up to tick 12."""
    last = json.dumps([12, 0, 6, [], 1])
    plan = deployment().plan
    return Manifest(
        job="stage", id="000001-0001", name=None, tick=10, incarnation=1, created="2026-01-31T12:00:00.000Z", base=None,
        record=job_record(plan), flow=(), fronts=(), floors=(), lasts=(LaneLast(0, "out", 0, last),), parts=(),
        steps=steps, generation=generation,
    )  # fmt: skip


def test_a_sink_that_has_lost_what_a_snapshot_knew_is_refused() -> None:
    """R13; but not where all is delivered anew (C17)."""
    lane = LaneName(0, "out", 0)
    refuse_shorter_lasts(manifest(), {lane: OrderKey(12, 0, 6, (), 1)}, 0)
    for last in ({}, {lane: OrderKey(12, 0, 5, (), 1)}):
        with pytest.raises(LifeEnded, match="lane 0"):
            refuse_shorter_lasts(manifest(), last, 0)
        refuse_shorter_lasts(manifest(), last, 1)


def test_other_steps_are_refused_where_the_old_ones_have_delivered_behind_the_snapshot() -> None:
    """C12, W15: a record's place in the order hangs on the steps that it goes through."""
    plan, lane = deployment().plan, LaneName(0, "out", 0)
    behind, below = {lane: OrderKey(10, 0, 6)}, {lane: OrderKey(9, 0, 6)}
    refuse_other_order(plan, manifest(plan.steps_text()), behind)
    refuse_other_order(plan, manifest("other"), below)
    with pytest.raises(FlowError, match=r"(?s)steps of the flow were added.*up to 10 ms.*--redeliver"):
        refuse_other_order(plan, manifest("other"), behind)
    assert plan.steps_text() == deployment(parallelism=3).plan.steps_text()
