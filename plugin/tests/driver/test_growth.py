"""More lanes: which numbers fit, and what is said of hash units in place of lanes."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

import pytest
from staged_to import StagedTo

import lowtide as lt
from lowtide.conf import Conf
from lowtide.core.operators.order.order import OrderKey
from lowtide.driver.carriages import staged_settings
from lowtide.driver.growth import by_units, marks_of, refuse_undecided, refuse_unfit
from lowtide.errors import FlowError
from lowtide.flow.plan.compiler import compile_flow
from lowtide.sinks.contract import LaneName
from lowtide.sinks.kafka.lasts_records import durable_of, last_of, records_of
from lowtide_snapshots.job.record import JobRecord

FROZEN = JobRecord("shop", 2, 128, 3, "log", 1, ("orders=orders",))
EARLY, LATE, LATEST = OrderKey(3, 0, 1), OrderKey(5, 0, 1), OrderKey(9, 0, 1)


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 8, 129, 258])
def test_a_job_grows_to_a_multiple_with_a_hash_unit_for_each_lane(lanes: int) -> None:
    with pytest.raises(FlowError, match="has 3 lanes and 128 hash units, and cannot grow") as caught:
        refuse_unfit(FROZEN, lanes, {})
    assert caught.value.way_out == "choose one of 6, 9, 12, 15, 18, 21, ..., 126"


def test_a_job_with_a_lane_for_more_than_half_of_its_units_cannot_grow() -> None:
    with pytest.raises(FlowError, match="cannot grow") as caught:
        refuse_unfit(replace(FROZEN, lanes=65), 130, {})
    assert "as many lanes as it can have" in str(caught.value)


def test_staged_sinks_and_kept_answers_grow_with_a_job() -> None:
    refuse_unfit(FROZEN, 12, {"staged:lake": "an id", "answers:price": "one@2", "postgres:default": "an id@lanes=3"})


@dataclass(frozen=True)
class Order:
    user: str


def test_carriers_know_which_of_their_lanes_a_growth_has_made() -> None:
    flow = lt.Flow("shop")
    flow.read("orders", lt.kafka("orders", lt.json(Order))).write("lake", StagedTo("a lake", Order))
    plan = compile_flow(flow, parallelism=2, lanes=8)
    for grown, births in (((), ()), ((2, 4), (0, 0, 1, 1, 2, 2, 2, 2))):
        (setting,) = staged_settings(replace(plan, grown=grown), Conf(), "id", 0)
        _, carriage = pickle.loads(setting.pickled)
        assert (setting.lanes, carriage.lanes) == (8, 8)
        assert [carriage.births_of(partition) for partition in range(8)] == [*(births or (0,) * 8)]
        assert [carriage.lane_of(partition) for partition in (0, 4, 2, 5)] == ([0, 1, 2, 3] if grown else [0, 4, 2, 5])


def test_a_store_that_was_delivered_to_by_lane_alone_is_first_taken_over() -> None:
    with pytest.raises(FlowError, match="an earlier version has delivered to postgres:default, by lane"):
        refuse_unfit(FROZEN, 12, {"postgres:default": "an id"})


def test_a_job_whose_topics_an_earlier_version_alone_has_written_is_first_started() -> None:
    """R12: that had a partition for each lane, and afterwards nothing would say how many lanes there were."""
    earlier = [LaneName(1, "out", 0), LaneName(1, "out", 2), LaneName(1, "", 1), LaneName(0, "", 0)]
    with pytest.raises(FlowError, match='an earlier version has delivered to sink "out", and none that notes'):
        refuse_undecided("shop", earlier, {"staged:lake": "an id"}, {})
    refuse_undecided("shop", earlier, {}, {"out": 3})
    others = [LaneName(1, "lake", 0), LaneName(1, "score/answers", 0), LaneName(1, "", 1), LaneName(1, "out", 0, 43)]
    refuse_undecided("shop", others, {"staged:lake": "an id", "answers:score": "another"}, {})


def table(last: dict[LaneName, OrderKey]) -> dict[bytes, bytes]:
    return {key: value for lane, at in last.items() for key, value in records_of(lane, at, (), 1) if value is not None}


def test_what_was_said_of_lanes_is_said_of_their_hash_units() -> None:
    """R13: and nothing else is; broken off anywhere it may begin again."""
    last = {
        LaneName(0, "out", 0): LATE,
        LaneName(0, "out", 1): EARLY,
        LaneName(1, "", 2): LATE,
        LaneName(0, "", 2): EARLY,
        LaneName(0, "out", 0, 43): LATEST,
        LaneName(0, "out", 0, 128): EARLY,
    }
    whole = list(by_units(last, FROZEN, 7))
    for done in range(len(whole) + 1):
        kept = table(last)
        for key, value in whole[:done]:
            kept.pop(key, None)
            if value is not None:
                kept[key] = value
        for key, value in by_units(durable_of(kept, "t").last, FROZEN, 8):
            kept.pop(key, None)
            if value is not None:
                kept[key] = value
        found = durable_of(kept, "t").last
        assert [name for name in found if not name.end] == [LaneName(0, "", 2)], "fronts have no lanes"
        for lanes in (3, 6, 126):
            record = replace(FROZEN, lanes=lanes)
            for lane in range(lanes):
                units = record.units_of_lane(lane)
                before = units.start * 3 // 128
                wanted = {0: LATEST, 1: EARLY, 2: EARLY}[before]
                assert last_of(found, LaneName(0, "out", lane), units) == wanted
                letters = LATE if before == 2 else None
                assert last_of(found, LaneName(1, "", lane), units) == letters


def test_each_partition_is_marked_up_to_where_its_lane_was() -> None:
    """A lane of which nothing is delivered has no mark; ticks are 2 ms long."""
    of_others = {LaneName(0, "other", 0, 128): LATEST, LaneName(1, "", 0, 128): LATEST}
    by_lane = {LaneName(0, "lake", 0): EARLY, LaneName(0, "lake", 1): LATEST, **of_others}
    in_strands = {**by_lane, LaneName(0, "lake", 0, 86): LATE}
    grown = replace(FROZEN, lanes=6, grown=(3,))
    # Lanes 0 to 5 have partitions 0, 3, 1, 4, 2, 5.
    assert marks_of(by_lane, grown, "lake") == {0: 6, 3: 6, 1: 18, 4: 18}
    assert marks_of(in_strands, grown, "lake") == {0: 10, 3: 10, 1: 18, 4: 18}
    # A second growth before any life: what the first has said of hash units counts.
    twice = replace(FROZEN, lanes=12, grown=(3, 6))
    kept = {LaneName(0, "lake", 0, 43): EARLY, LaneName(0, "lake", 43, 86): LATEST, **of_others}
    assert marks_of(kept, twice, "lake") == dict.fromkeys((0, 6, 3, 7), 6) | dict.fromkeys((1, 8, 4, 9), 18)
    assert marks_of({}, grown, "lake") == {}
