"""What a job's place keeps, on a real ZooKeeper."""

import dataclasses
from typing import Any

import pytest

from lowtide_snapshots.errors import (
    EntryDiffers,
    Fenced,
    RecordDiffers,
    RecordRefused,
    SubmissionTaken,
    ZooKeeperRefused,
)
from lowtide_snapshots.job.record import JobRecord

pytest.importorskip("kazoo", reason="kazoo is an extra")

from lowtide_snapshots.job.registry import jobs
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.job.submissions import refuse_again

pytestmark = pytest.mark.zookeeper

ENTRY = {"number": 0, "source": "documents", "topic_id": "x", "partition": 0, "offset": 0, "opening": 0}
WRITES = (
    "add_fronts",
    "add_sink_ids",
    "set_lasts",
    "set_steps",
    "set_records",
    "set_places",
    "set_partitions",
    "set_borrowed",
    "publish",
    "set_life",
)


def test_the_record_is_frozen_at_the_first_start_and_stays(place: Any) -> None:
    first = JobRecord(place.job, 2, 128, 4, "log", 1, ("documents=docs",))
    assert place.open().record() is None
    assert place.open().freeze(first) == place.open().record() == first
    for other in (
        {"slack_ms": 3},
        {"units": 64},
        {"lanes": 5},
        {"timestamps": "x"},
        {"hash_version": 2},
        {"sources": ()},
    ):
        with pytest.raises(RecordDiffers) as raised:
            place.open().freeze(dataclasses.replace(first, **other))
        assert raised.value.fields == tuple(other)
    assert place.open().freeze(first) == place.open().record() == first
    with pytest.raises(RecordRefused, match="same name"):
        place.open().freeze(dataclasses.replace(first, job="other"))


def test_the_newest_life_adds_sources_to_the_record(place: Any) -> None:
    first = JobRecord(place.job, 2, 128, 4, "log", 1, ("documents=docs",))
    more = dataclasses.replace(first, sources=("documents=docs", "words=w"))
    old, new = place.open(), place.open()
    old.freeze(first)
    old.add_sources(place.living(old), first)
    assert old.freeze(more) == more
    assert old.record() == first, "a start that asks for more may still be refused"
    place.expire(old)
    number = place.living(new)
    with pytest.raises(Fenced):
        new.add_sources(number - 1, more)
    new.add_sources(number, more)
    assert new.record() == more
    with pytest.raises(RecordDiffers, match="has read words=w"):
        place.open().freeze(first)
    with pytest.raises(RecordDiffers, match="lanes"):
        new.add_sources(number, dataclasses.replace(more, lanes=5))


@pytest.mark.parametrize("write", WRITES)
def test_an_older_life_writes_nothing(place: Any, write: str) -> None:
    old, new = place.open(), place.open()
    place.write(write, old, place.living(old))
    place.expire(old)
    assert place.living(new) == 2
    before = place.content(new)
    for late in (old, new):
        with pytest.raises(Fenced, match=r"incarnation 1 .* is over: incarnation 2 is the current one") as raised:
            place.write(write, late, 1)
        assert raised.value.current == 2
        with pytest.raises(Fenced):
            late.check(1)
    assert place.content(new) == before
    place.write(write, new, 2)
    new.check(2)


@pytest.mark.parametrize("write", WRITES)
def test_a_life_that_ends_between_its_check_and_its_write_writes_nothing(
    place: Any, write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = place.open(), place.open()
    life = place.living(old)
    place.expire(old)
    asked = old._lease.checked

    def overtaken(incarnation: int) -> Any:
        found = asked(incarnation)
        if new.incarnation() == life:
            place.living(new)
        return found

    monkeypatch.setattr(old._lease, "checked", overtaken)
    before = place.content(new)
    with pytest.raises(Fenced, match="incarnation 2 is the current one"):
        place.write(write, old, life)
    assert place.content(new) == before


def test_without_a_life_nothing_is_written(place: Any) -> None:
    with pytest.raises(Fenced, match="it has no incarnation"):
        place.open().publish(0, 1)
    with pytest.raises(Fenced, match="it has no incarnation"):
        place.open().check(0)


def test_the_front_register_only_grows_and_takes_all_or_none(place: Any) -> None:
    mine = place.open()
    life = place.living(mine)
    entries = [ENTRY | {"number": number, "partition": number} for number in range(12)]
    mine.add_fronts(life, reversed(entries[:11]))
    mine.add_fronts(life, entries[9:])
    assert place.open().fronts() == entries
    with pytest.raises(EntryDiffers, match="fronts/0000000003"):
        mine.add_fronts(life, [ENTRY | {"number": 12}, ENTRY | {"number": 3, "topic_id": "recreated"}])
    with pytest.raises(EntryDiffers):
        mine.add_fronts(life, [ENTRY | {"number": 12}, ENTRY | {"number": 12, "offset": 7}])
    assert mine.fronts() == entries
    with pytest.raises(RecordRefused, match="number"):
        mine.add_fronts(life, [ENTRY | {"number": None}])


def test_what_was_reported_never_falls(place: Any) -> None:
    mine = place.open()
    assert mine.published() is None
    life = place.living(mine)
    for tick, reported in ((5, 5), (3, 5), (5, 5), (17, 17), (-1, 17)):
        mine.publish(life, tick)
        assert place.open().published() == reported


def test_each_output_generation_has_a_delivered_time_of_its_own(place: Any) -> None:
    mine = place.open()
    life = place.living(mine)
    assert mine.published_in(0) is None
    mine.publish(life, 100)
    for tick, in_generation, reported in (
        (50, 50, 100),
        (40, 50, 100),
        (100, 100, 100),
        (120, 120, 120),
        (110, 120, 120),
    ):
        mine.publish(life, tick, 1)
        assert (place.open().published_in(1), place.open().published()) == (in_generation, reported)
        assert place.open().published_in(0) is place.open().published_in(2) is None
    mine.publish(life, 70, 2)
    assert (mine.published_in(2), mine.published()) == (70, 120)


def test_a_job_is_called_the_same_over_its_lives_and_otherwise_elsewhere(place: Any) -> None:
    mine = place.open()
    ids = {mine.identity(place.living(mine))}
    mine.close()
    again = place.open()
    ids.add(again.identity(place.living(again)))
    assert len(ids) == 1
    elsewhere = place.open(root="elsewhere")
    ids.add(elsewhere.identity(place.living(elsewhere)))
    assert len(ids) == 2


def test_transactional_ids_are_never_forgotten(place: Any) -> None:
    mine = place.open()
    life = place.living(mine)
    mine.add_sink_ids(life, ["lowtide.a/b.1.0", "."])
    many = {f"lowtide.ü.1.{lane}" for lane in range(1500)}
    mine.add_sink_ids(life, many)
    mine.add_sink_ids(life, [])
    assert place.open().sink_ids() == many | {"lowtide.a/b.1.0", "."}


def test_the_steps_of_the_flow_that_delivers_take_the_place_of_those_before(place: Any) -> None:
    mine = place.open()
    life = place.living(mine)
    assert mine.steps() is None
    for steps in ({"steps": [["read", []]], "since": 0}, {"steps": [["other", None]], "since": 7}):
        mine.set_steps(life, steps)
        assert place.open().steps() == steps


def test_the_types_of_records_take_the_place_of_those_before(place: Any) -> None:
    mine = place.open()
    life = place.living(mine)
    assert mine.records() is None
    for kind in ("int", "float"):
        mine.set_records(life, {"source": {"read": {"number": kind}}, "sink": {}})
        assert place.open().records() == {"source": {"read": {"number": kind}}, "sink": {}}


def test_where_files_are_takes_the_place_of_where_they_were(place: Any) -> None:
    mine = place.open()
    life = place.living(mine)
    assert mine.places() == {}
    for folders in ("/lake/{tick:%Y}/", "/lake/{tick:%Y-%m}/"):
        mine.set_places(life, {"archive": {"folders": folders}})
        assert place.open().places() == {"archive": {"folders": folders}}


def test_a_job_gets_more_lanes_and_keeps_all_else(place: Any) -> None:
    first = JobRecord(place.job, 2, 128, 4, "log", 1, ("documents=docs",))
    mine = place.open()
    mine.freeze(first)
    life = place.living(mine)
    mine.set_lanes(life, 8)
    assert place.open().record() == dataclasses.replace(first, lanes=8, grown=(4,))
    mine.set_lanes(life, 8)
    assert place.open().record() == dataclasses.replace(first, lanes=8, grown=(4,)), "asked again after a lost answer"
    place.expire(mine)
    place.living(place.open())
    with pytest.raises(Fenced):
        mine.set_lanes(life, 16)


def test_the_partitions_that_a_job_writes_are_kept(place: Any) -> None:
    mine = place.open()
    life = place.living(mine)
    assert mine.partitions() == {}
    for written in ({"out": 4}, {"out": 4, "other": 2}):
        mine.set_partitions(life, written)
        assert place.open().partitions() == written


def test_the_lasts_topic_is_set_once(place: Any) -> None:
    mine = place.open()
    life = place.living(mine)
    assert mine.lasts() == (None, 0)
    mine.set_lasts(life, "one")
    mine.set_lasts(life, "one")
    with pytest.raises(EntryDiffers, match=r"(?s)one.*two.*another name"):
        mine.set_lasts(life, "two")
    assert mine.lasts() == ("one", 0)
    mine.set_lasts(life, "three", 1)
    assert mine.lasts() == ("three", 1), "another output generation has another"
    with pytest.raises(EntryDiffers):
        mine.set_lasts(life, "one")


def test_a_life_says_what_there_is_to_know_of_it(place: Any) -> None:
    mine = place.open()
    life = place.living(mine, "host 1, pid 2")
    for said in ({"control": "127.0.0.1:1", "phase": "running"}, {"phase": "ended", "cause": "ü" * 1000}):
        mine.set_life(life, said)
        assert place.open().life() == said
    with pytest.raises(RecordRefused, match="as JSON"):
        mine.set_life(life, {"phase": object()})
    with pytest.raises(RecordRefused, match="too large"):
        mine.set_life(life, {"phase": "x" * 1_000_000})
    mine.close()
    assert (place.open().holder(), place.open().life()) == (None, said)


def test_to_look_makes_nothing(place: Any) -> None:
    mine = place.open()
    assert (mine.record(), mine.holder(), mine.alive(), mine.incarnation()) == (None, None, False, 0)
    assert place.content(mine) == ([], set(), (None, 0), None, None, None, {}, {}, None, None)
    assert place.job not in jobs(place.hosts)
    assert jobs(place.hosts, root="nothing/here") == []


def test_a_job_may_have_any_name(place: Any) -> None:
    names = ["a/b", "潮 & Ebbe", "%2F", ".", "..", "zookeeper", "a b"]
    for number, name in enumerate(names):
        mine = JobStore(place.hosts, name, root="by/name")
        with mine:
            mine.freeze(JobRecord(name, number + 1, 128, 4, "log", 1, ()))
    assert jobs(place.hosts, root="by/name") == sorted(names)
    for number, name in enumerate(names):
        with JobStore(place.hosts, name, root="/by/name/") as mine:
            record = mine.record()
            assert record is not None
            assert (record.job, record.slack_ms) == (name, number + 1)
    with pytest.raises(RecordRefused, match="not a valid name"):
        JobStore(place.hosts, "")


def test_a_job_with_a_password_is_closed_to_others(place: Any) -> None:
    mine = place.open(auth="user:right", root="locked")
    life = place.living(mine)
    mine.publish(life, 5)
    assert place.open(auth="user:right", root="locked").published() == 5
    for auth in ("user:wrong", None):
        other = place.open(auth=auth, root="locked")
        with pytest.raises(ZooKeeperRefused, match="user and password"):
            other.published()
        with pytest.raises(ZooKeeperRefused):
            other.take_lease("other", 0, place.nobody)
    place.open("beside it", auth="user:wrong", root="locked").freeze(JobRecord("beside it", 1, 1, 1, "log", 1, ()))
    assert jobs(place.hosts, root="locked") == ["beside it", place.job]


def test_a_submission_begins_one_life(place: Any) -> None:
    mine = place.open()
    mine.take_lease("one", 0, place.nobody)
    assert mine.submission("run 7/submit") is None
    assert [mine.raise_incarnation("run 7/submit") for _ in range(2)] == [1, 2]
    assert mine.submission("run 7/submit") == 2
    mine.close()
    other = place.open()
    other.take_lease("two", 5, lambda _: None)
    zk, paths = other.nodes
    with pytest.raises(SubmissionTaken, match="already begun life 2") as caught:
        other.raise_incarnation("run 7/submit")
    assert (caught.value.incarnation, other.incarnation()) == (2, 2)
    with pytest.raises(SubmissionTaken):
        refuse_again(zk, paths, place.job, "run 7/submit")
    refuse_again(zk, paths, place.job, "run 8/submit")
    assert other.raise_incarnation("run 8/submit") == 3


def test_old_submissions_and_lives_are_forgotten(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide_snapshots.job.submissions.KEPT", 3)
    monkeypatch.setattr("lowtide_snapshots.job.lives.KEPT", 3)
    mine = place.open()
    mine.take_lease("one", 0, place.nobody)
    for number in range(1, 6):
        life = mine.raise_incarnation(f"run {number}")
        mine.set_life(life, {"phase": "running", "at": f"{number}"})
    assert [mine.submission(f"run {number}") for number in range(1, 6)] == [None, None, 3, 4, 5]
    mine.set_life(5, {"phase": "failed", "cause": "it was cold", "at": "6"})
    assert mine.lives() == [
        {"incarnation": 1, "phase": "running", "at": "1", "since": "1"},
        {"incarnation": 4, "phase": "running", "at": "4", "since": "4"},
        {"incarnation": 5, "phase": "failed", "cause": "it was cold", "at": "6", "since": "5"},
    ]
    assert mine.life() == {"phase": "failed", "cause": "it was cold", "at": "6"}
