"""What keeps records from where they belong is named, once it is sure, with its way out; nothing else is."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from seen import MIN_TIME, SHAPE, moment, reader, report, worker

from lowtide.cli.status_page import show
from lowtide.events import EventLog
from lowtide.status.gauges import StepStands, WorkerState
from lowtide.status.job_view import JobView, TroubleView
from lowtide.status.job_watch import JobWatch
from lowtide.status.moment import JobShape, Moment, Room, StagedMoment
from lowtide.status.troubles import DRY_S, LETTERS_S, OPEN_S, STANDS_S, UNREAD_S
from lowtide_tracker import Holder

MIB = 1 << 20
GIB = 1 << 30
TABLES = replace(SHAPE, stores={"index": "postgres:shop"}, dead_letters="letters")


def watched(*looks: Moment, shape: JobShape = TABLES, each_s: float = 1.0) -> JobView:
    """The view after looks at a job, one after the other."""
    watch = JobWatch(shape, EventLog("index", 3, io.StringIO()))
    for place, look in enumerate(looks):
        watch.look(place * each_s, look)
    seen = watch.view()
    assert seen is not None
    return seen


def found(*looks: Moment, **given: Any) -> list[tuple[str, str]]:
    """Kind and name of the troubles."""
    return [(each.kind, each.name) for each in watched(*looks, **given).found]


def the_one(*looks: Moment, **given: Any) -> TroubleView:
    [only] = watched(*looks, **given).found
    return only


def standing(for_s: float, function: str = "index_of (flow.py:7)") -> WorkerState:
    return replaced(worker("2/0"), stands=StepStands(step="index", function=function, for_s=for_s))


def replaced(state: WorkerState, **changes: Any) -> WorkerState:
    from msgspec.structs import replace as with_changes

    return with_changes(state, **changes)


def loop(name: str, looks: int, in_step: int, function: str = "") -> WorkerState:
    """A worker whose process was found so many times in `index`, of so many looks."""
    steps = {"index": {"looks": in_step, "function": function, "worker": name}}
    return worker(name, looks={"looks": looks, "steps": steps})


def held_back(lag_ms: int, *workers: WorkerState, held: Holder | None = None) -> Moment:
    """A moment at which an ack, or what is given, holds min time."""
    return moment(lag_ms, workers=list(workers), tracker=report(held or Holder(MIN_TIME, 2, None)))


# -- slow steps --------------------------------------------------------------------------------------------------------


def test_a_step_that_does_not_return_is_slow_whatever_the_lag() -> None:
    assert found(moment(workers=[standing(STANDS_S - 1)])) == []
    seen = the_one(moment(workers=[standing(4.0)]))
    assert (seen.kind, seen.name, seen.headline) == ("slow step", "index", 'step "index" is slow')
    assert "its function index_of (flow.py:7) has not returned for 4 s in worker 2/0" in seen.says
    assert seen.since_ms == 2 * MIN_TIME + 4 - 4_000
    assert any("worker.call_limit_s" in way for way in seen.to_do)


def test_a_step_that_is_not_in_a_function_is_named_alone() -> None:
    assert "slow: it has not returned for 9 s" in the_one(moment(workers=[standing(9.0, "")])).says


def test_a_step_that_takes_most_of_a_processs_time_is_slow_only_if_min_time_is_behind() -> None:
    begun, later = loop("2/0", 10, 5), loop("2/0", 20, 13, "index_of (flow.py:7)")
    assert found(held_back(10, begun), held_back(2_000, later)) == []
    seen = the_one(held_back(10, begun), held_back(5_000, later))
    assert seen.name == "index"
    assert "its function index_of (flow.py:7) takes 80% of the time of the process of worker 2/0" in seen.says
    assert not any("call_limit_s" in way for way in seen.to_do), "it does return"


@pytest.mark.parametrize(("looks", "in_step"), [(20, 10), (13, 8)], ids=["half of the time", "three looks"])
def test_a_share_is_believed_once_it_is_large_and_seen_often(looks: int, in_step: int) -> None:
    assert found(held_back(10, loop("2/0", 10, 5)), held_back(5_000, loop("2/0", looks, in_step))) == []


def test_a_busy_step_of_another_process_is_not_why_a_front_is_behind() -> None:
    """The front that holds min time is read by the process of level 0, and the step is busy in that of level 2."""
    front = Holder(MIN_TIME, 1, 3, at_front=True)
    begun, later = loop("2/0", 10, 5), loop("2/0", 20, 15)
    looks = [held_back(ms, reader("0/documents-1", 3), each, held=front) for ms, each in ((10, begun), (5_000, later))]
    assert found(*looks) == []
    same = replaced(reader("0/documents-1", 3), pid=later.pid)
    assert found(looks[0], held_back(5_000, same, later, held=front)) == [("slow step", "index")]


# -- dry sinks ---------------------------------------------------------------------------------------------------------


def dry(waits_s: float, **said: Any) -> Moment:
    return moment(workers=[worker("2/0", sinks={"index": {"waiting": 1_200, "waits_s": waits_s}}, **said)])


def test_a_sink_whose_records_wait_is_dry_and_its_store_says_why() -> None:
    assert found(dry(DRY_S - 1)) == []
    assert "takes nothing: 1,200 records wait for PostgreSQL (shop)" in the_one(dry(6.0)).says
    seen = the_one(dry(6.0, stores={"postgres:shop": "PostgreSQL at db:5432/shop: it refuses connections"}))
    assert (seen.kind, seen.name) == ("dry sink", "index")
    assert seen.says.endswith("1,200 records wait for PostgreSQL at db:5432/shop: it refuses connections")
    assert seen.since_ms == 2 * MIN_TIME + 4 - 6_000


def test_a_store_of_another_sink_is_not_blamed() -> None:
    assert "refuses" not in the_one(dry(6.0, stores={"kafka": "Kafka at b:9092: it refuses"})).says


def test_a_staged_sink_is_named_with_what_its_carrier_says_and_once() -> None:
    trouble = "since 12:00:00 UTC: records are not moving to sink index: the table is gone"
    staged = {"index": StagedMoment(records=9, trouble=trouble, way_out="make the table again")}
    view = watched(moment(staged=staged, troubles=[trouble]))
    assert view.found[0].to_do[0] == "Make the table again."
    assert view.troubles == [f"{trouble}; 9 records wait in Kafka"]


# -- dead letters ------------------------------------------------------------------------------------------------------


def letters(records: int) -> Moment:
    gave = {"changes": {"records": records, "tick": 1, "at": "documents-0, offset 7", "why": "raised KeyError: 'x'"}}
    return moment(workers=[worker("1/0", letters=gave)])


def test_dead_letters_are_news_for_ten_minutes_after_the_last_one() -> None:
    seen = the_one(letters(2), letters(3))
    assert (seen.kind, seen.name) == ("dead letters", "changes")
    assert '3 so far, in topic "letters"; the last at documents-0, offset 7: raised KeyError' in seen.says
    kept_s = LETTERS_S / 4
    assert found(*[letters(2)] * 5, each_s=kept_s) == [("dead letters", "changes")]
    assert found(*[letters(2)] * 6, each_s=kept_s) == []
    assert found(*[letters(2)] * 6, letters(3), each_s=kept_s) == [("dead letters", "changes")]


def test_letters_of_one_step_in_several_workers_count_together_and_the_newest_is_told() -> None:
    old = {"changes": {"records": 4, "tick": 1, "at": "documents-0, offset 1", "why": "old"}}
    new = {"changes": {"records": 5, "tick": 9, "at": "documents-1, offset 2", "why": "new"}}
    seen = the_one(moment(workers=[worker("1/0", letters=new), worker("1/1", letters=old)]))
    assert "9 so far" in seen.says
    assert seen.says.endswith("the last at documents-1, offset 2: new")


def test_rows_that_a_table_refuses_are_named_with_its_sink() -> None:
    seen = the_one(moment(workers=[worker("2/0", refused={"index": 2})]))
    assert (seen.kind, seen.name) == ("dead letters", "index")
    assert 'the table of sink "index" refuses rows: 2 so far' in seen.says


# -- silent partitions -------------------------------------------------------------------------------------------------


def test_a_partition_whose_end_kafka_does_not_report_is_silent() -> None:
    seen = the_one(moment(unanswered={4: "no leader"}))
    assert (seen.kind, seen.name) == ("silent partition", "documents-2")
    assert "Kafka does not report its end (no leader)" in seen.says


def test_of_many_partitions_three_are_named_and_the_rest_is_counted() -> None:
    names = {number: f"documents-{number:02}" for number in range(40)}
    view = watched(moment(fronts=names, unanswered=dict.fromkeys(names, "no leader")))
    assert [each.name for each in view.found] == ["documents-00", "documents-01", "documents-02"]
    assert "and 37 more partitions are silent" in view.found[0].says


def test_a_record_that_a_worker_does_not_get_makes_its_partition_silent() -> None:
    """Unless a worker is in a step that does not return: then nobody of its process reads."""
    unread = {3: ("documents-1", 7, UNREAD_S)}
    assert found(moment(unread={3: ("documents-1", 7, UNREAD_S - 1)})) == []
    assert "does not get the record at offset 7" in the_one(moment(unread=unread)).says
    assert found(moment(unread=unread, workers=[standing(STANDS_S)])) == [("slow step", "index")]


def test_a_transaction_that_stays_open_makes_its_partition_silent() -> None:
    assert found(moment(open_transactions={3: (17, OPEN_S - 1)})) == []
    seen = the_one(moment(open_transactions={3: (17, OPEN_S)}))
    assert (seen.kind, seen.name) == ("silent partition", "documents-1")
    assert "open at offset 17" in seen.says
    assert found(moment(open_transactions={3: (17, OPEN_S)}, unanswered={3: "no leader"})) == [
        ("silent partition", "documents-1")
    ]


# -- full disks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "size", "full"),
    [
        (63 * MIB, GIB, True),
        (65 * MIB, GIB, False),
        (19 * GIB, 1000 * GIB, True),
        (21 * GIB, 1000 * GIB, False),
        (30 * MIB, 40 * MIB, True),
        (40 * MIB, 40 * MIB, False),
    ],
)
def test_a_disk_is_full_with_less_than_64_mib_or_2_percent_but_not_if_it_is_empty(
    free: int, size: int, full: bool
) -> None:
    assert found(moment(rooms=[Room("log", "/jobs", free, size)])) == ([("full disk", "/jobs")] if full else [])


@pytest.mark.parametrize(
    ("what", "says", "way"),
    [
        ("log", "the disk of the job's log is nearly full", "[job].folder"),
        ("snapshots", "the disk of the snapshots is nearly full", "lowtide snapshots prune index"),
    ],
)
def test_a_full_disk_says_whose_it_is_and_what_to_do(what: str, says: str, way: str) -> None:
    seen = the_one(moment(rooms=[Room(what, "/data", 3 * MIB, 64 * GIB)]))
    assert f"{says}: /data has 3 MiB left of 64 GiB" in seen.says
    assert way in " ".join(seen.to_do)


def test_a_full_disk_of_state_names_the_step_that_keeps_most_there() -> None:
    kept = {"last": {"what": "keys", "count": 1, "bytes": 5}, "index": {"what": "keys", "count": 1, "bytes": 9}}
    disk = {"folder": "/state/2", "free_bytes": MIB, "size_bytes": GIB}
    seen = the_one(moment(workers=[worker("2/0", kept=kept, disk=disk), worker("2/1", disk=disk)]))
    assert seen.name == "/state/2"
    assert seen.says.endswith(
        'the disk of the state is nearly full: /state/2 has 1 MiB left of 1,024 MiB; step "index" has most of it'
    )


# -- all of them -------------------------------------------------------------------------------------------------------


def everything(lag_ms: int = 4) -> Moment:
    gauges = {"sinks": {"index": {"waiting": 3, "waits_s": 9.0}}, "letters": {"changes": {"records": 1, "why": "no"}}}
    ill = replaced(worker("2/0", **gauges), stands=StepStands(step="index", function="", for_s=5.0))
    rooms = [Room("log", "/jobs", 0, GIB)]
    return moment(lag_ms, workers=[ill], rooms=rooms, open_transactions={3: (17, OPEN_S)})


def test_those_that_may_hold_min_time_come_first() -> None:
    kinds = [kind for kind, _ in found(everything())]
    assert kinds == ["slow step", "silent partition", "dry sink", "full disk", "dead letters"]


def test_each_says_its_headline_since_when_and_what_to_do_in_sentences() -> None:
    view = watched(everything())
    assert view.troubles == [each.says for each in view.found]
    for each in view.found:
        assert each.says.startswith("since ")
        assert each.headline in each.says
        assert each.name in each.says
        assert each.to_do
        assert all(way[-1] in ".?" for way in each.to_do), each.to_do


def test_since_when_does_not_move_from_look_to_look_and_begins_again_after_an_end() -> None:
    full = {"rooms": [Room("log", "/jobs", 0, GIB)]}
    first = 2 * MIN_TIME
    assert the_one(moment(0, **full), moment(1000, **full), moment(2000, **full)).since_ms == first
    assert the_one(moment(0, **full), moment(1000), moment(2000, **full)).since_ms == first + 2000


def test_advice_on_the_holder_gives_way_to_a_trouble_that_explains_it() -> None:
    held = held_back(9_000)
    assert watched(held).to_do
    assert watched(replace(held, workers=[standing(9.0)])).to_do == []
    assert watched(replace(held, rooms=[Room("log", "/jobs", 0, GIB)])).to_do, "a full log holds nothing"


def test_a_job_that_is_well_has_none() -> None:
    workers = [reader("0/documents-0", 0), loop("2/0", 100, 90), worker("1/0", sinks={"index": {"records": 7}})]
    assert found(moment(workers=workers, rooms=[Room("log", "/jobs", 90 * GIB, 100 * GIB)])) == []


def test_status_prints_each_with_its_way_out_above_all_else() -> None:
    printed = io.StringIO()
    show(watched(everything()), printed)
    lines = printed.getvalue().splitlines()
    marks = [line.split()[0] for line in lines if line.startswith(("trouble ", "to do "))]
    assert marks.count("trouble") == 5
    assert marks.count("to") >= 10
    assert max(place for place, line in enumerate(lines) if line.startswith("to do ")) < min(
        place for place, line in enumerate(lines) if line.startswith("rate ")
    )
    assert "`" not in printed.getvalue()
