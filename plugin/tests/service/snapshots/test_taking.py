"""One snapshot: who is waited for, and what the manifest says of what they have said. No I/O."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowtide.assignment.messages import PartCount, PartEmpty, PartWritten, Pinned, ShareDurable, ShareNews, ShareSaved
from lowtide.assignment.setting import SnapshotSetting
from lowtide.service.snapshots.taking import Taking
from lowtide_snapshots.format.manifest import FrontAt, LaneLast, Manifest, Part, VertexShape
from lowtide_snapshots.job.record import JobRecord
from lowtide_snapshots.stores.contract import StoreSetting
from lowtide_tracker import Floor

RECORD = JobRecord("index", 2, 128, 2, "log", 1, ("documents=docs",))
FLOW = (VertexShape("count", "scan", (("word", "string"),), ""), VertexShape("last", "last", (), ""))
SETTING = SnapshotSetting(
    store=StoreSetting("/nowhere"),
    record=RECORD.to_json(),
    flow=FLOW,
    base="",
    steps="",
    generation=0,
    taking_limit_s=60.0,
    max_commit_age_s=0.0,
    keep=2,
    max_age_s=None,
)
FRONTS = {0: FrontAt(0, "docs", "id", 0, 5, 11), 1: FrontAt(1, "docs", "id", 1, 0, 9)}
SHA = "0" * 64


def part(unit: int, tick: int, snapshot: str, vertex: str = "count") -> Part:
    return Part(vertex, "scan", unit, tick, snapshot, 3, 100, SHA)


def taking(number: int = 1) -> Taking:
    return Taking(number, "before", setting=SETTING, incarnation=3, record=RECORD, began_s=0.0)


def hear(it: Taking, worker: str, *news: ShareNews) -> None:
    for each in news:
        it.hear(worker, each)


def pinned(since: int | None = None, front: tuple[int, int, int] | None = None) -> Pinned:
    return Pinned(number=1, since=since, front=front)


def written(each: Part) -> PartWritten:
    return PartWritten(1, each)


SAVED = ShareSaved(1)
DURABLE = ShareDurable(1, [])


def test_it_waits_for_every_part_and_for_what_is_durable() -> None:
    """R15."""
    it = taking()
    it.begin(40, ["1/0", "0/docs-0"], FRONTS)
    assert it.waits_for == ["worker 0/docs-0 has saved 0 of ? parts", "worker 1/0 has saved 0 of ? parts"]
    assert [it.heard] == [False]
    hear(it, "0/docs-0", pinned(front=(0, 7, 12)), SAVED)
    it.hear("1/0", pinned())
    assert it.heard
    it.hear("1/0", PartCount(1, 1))
    it.hear("1/0", PartEmpty(1, "count", 5))
    assert it.waits_for[1] == "worker 1/0 has saved 0 of 1 parts", "a unit without state has no part"
    it.hear("1/0", written(part(4, 40, "000003-0001")))
    assert it.waits_for[1] == "worker 1/0 has saved 1 of 1 parts"
    it.hear("1/0", SAVED)
    lacks = "has records before it that are not durable in their sink"
    assert it.waits_for == [f"worker {name} {lacks}" for name in ("0/docs-0", "1/0")]
    with pytest.raises(AssertionError, match="R15"):
        it.seal(None, ())
    it.hear("0/docs-0", DURABLE)
    it.hear("1/0", ShareDurable(1, [LaneLast(0, "out", 1, "[39]")]))
    assert it.whole
    manifest = it.seal(None, [Floor(1, 0, 9)])
    assert (manifest.id, manifest.name, manifest.tick, manifest.base) == ("000003-0001", "before", 40, None)
    assert [(front.offset, front.label) for front in manifest.fronts] == [(7, 12), (0, 9)]
    assert manifest.lasts == (LaneLast(0, "out", 1, "[39]"),)
    assert [each.unit for each in manifest.parts] == [4]
    assert len(manifest.floors) == 1
    assert Manifest.from_json(manifest.to_json(), "here") == manifest


def test_a_front_is_read_again_from_behind_what_holds_no_record() -> None:
    it = taking()
    it.begin(40, ["0/docs-0"], FRONTS)
    hear(it, "0/docs-0", pinned(front=(0, 7, 12)), SAVED, DURABLE)
    it.skip(lambda front, offset: 9 if (front, offset) == (0, 7) else offset)
    assert it.starts == {0: 9, 1: 0}
    manifest = it.seal(None, [Floor(0, 7, 9), Floor(0, 8, 12), Floor(0, 10, 30)])
    assert [front.offset for front in manifest.fronts] == [9, 0]
    # What holds at 9 began below it.
    assert [(floor.offset, floor.tick) for floor in manifest.floors] == [(8, 12), (10, 30)]


def test_what_is_said_before_it_is_known_who_was_asked_counts() -> None:
    """Workers hear of a request from the tracker, perhaps sooner than the service does."""
    it = taking()
    it.hear("1/0", SAVED)
    it.hear("9/9", SAVED)
    it.begin(40, ["1/0"], {})
    it.hear("1/0", DURABLE)
    assert it.whole


def test_units_that_nobody_wrote_are_those_of_the_base() -> None:
    """W9: rewritten, gone, as it was; a step that the flow does not have any more goes."""
    first = taking()
    first.begin(40, ["1/0"], {})
    for unit in (1, 2, 3):
        first.hear("1/0", written(part(unit, 40, "000003-0001")))
    hear(first, "1/0", SAVED, DURABLE)
    base = first.seal(None, ())
    it = taking(2)
    it.begin(50, ["1/0"], {})
    it.hear("1/0", pinned(since=40))
    it.hear("1/0", written(part(1, 50, "000003-0002")))
    it.hear("1/0", PartEmpty(1, "count", 2))
    hear(it, "1/0", SAVED, DURABLE)
    manifest = it.seal(base, ())
    assert [(each.unit, each.snapshot) for each in manifest.parts] == [(3, "000003-0001"), (1, "000003-0002")]
    assert manifest.base == "000003-0001"
    view = it.view(1.0)
    assert (view.parts_done, view.rows, view.bytes) == (1, 6, 200)


def test_a_delta_is_added_to_the_parts_of_the_base() -> None:
    """Of the newest commit that any worker knew, and relative to that or an older one."""
    base = Manifest(
        "index", "000003-0001", None, 60, 3, "2026-01-31T12:00:00.000Z", None, RECORD, FLOW, (), (), (),
        parts=(part(1, 40, "000003-0001"), replace(part(1, 60, "000003-0001"), since=40), part(2, 60, "000003-0001")),
    )  # fmt: skip
    it = taking(2)
    it.begin(70, ["1/0", "1/1"], {})
    it.hear("1/0", pinned(since=40))
    it.hear("1/1", pinned(since=60))
    deltas = [replace(part(unit, 70, "000003-0002"), since=40) for unit in (1, 3)]
    for worker, each in zip(("1/0", "1/0"), deltas, strict=True):
        it.hear(worker, written(each))
    it.hear("1/1", written(part(2, 70, "000003-0002")))
    for worker in ("1/0", "1/1"):
        hear(it, worker, SAVED, DURABLE)
    manifest = it.seal(base, ())
    assert [(each.unit, each.tick, each.since) for each in manifest.parts] == [
        (1, 40, None),
        (1, 60, 40),
        (1, 70, 40),
        (2, 70, None),
        (3, 70, 40),
    ]
    assert Manifest.from_json(manifest.to_json(), "here") == manifest


def test_a_part_of_several_hash_units_counts_for_those_that_are_not_written_whole_since() -> None:
    """It stays as long as it counts for one, and goes with the last."""
    it = taking(1)
    it.begin(40, ["1/0"], {})
    for unit in (1, 2, 3):
        it.hear("1/0", written(part(unit, 40, "000003-0001")))
    hear(it, "1/0", SAVED, DURABLE)
    manifest, said = it.seal(None, ()), []
    for number, units in ((2, (1, 2, 3)), (3, (2, 3)), (4, ())):
        tick = 30 + 10 * number
        it = taking(number)
        it.begin(tick, ["1/0"], {})
        it.hear("1/0", pinned(since=tick - 10))
        made_by = f"000003-{number:04}"
        if units:
            delta = replace(part(units[0], tick, made_by), since=tick - 10, units=units)
            it.hear("1/0", written(delta))
        whole = {3: (1,), 4: (2, 3)}.get(number, ())
        for unit in whole:
            it.hear("1/0", written(part(unit, tick, made_by)))
        hear(it, "1/0", SAVED, DURABLE)
        assert it.view(1.0).parts_done == len(whole) + bool(units)
        manifest = it.seal(manifest, ())
        assert Manifest.from_json(manifest.to_json(), "here") == manifest
        said.append([(each.tick, each.unit, each.units) for each in manifest.parts])
    assert said == [
        [(40, 1, ()), (40, 2, ()), (40, 3, ()), (50, 1, (1, 2, 3))],
        [(40, 2, ()), (40, 3, ()), (50, 1, (2, 3)), (60, 1, ()), (60, 2, (2, 3))],
        [(60, 1, ()), (70, 2, ()), (70, 3, ())],
    ]


def test_a_delta_that_rests_on_more_than_its_snapshot_is_a_mistake() -> None:
    """W9."""
    it = taking(2)
    it.begin(70, ["1/0"], {})
    it.hear("1/0", written(replace(part(1, 70, "000003-0002"), since=60)))
    hear(it, "1/0", SAVED, DURABLE)
    with pytest.raises(AssertionError, match="a delta rests on a commit"):
        it.seal(None, ())


def test_what_workers_have_left_out_is_taken_from_the_newest_commit_that_one_of_them_knew() -> None:
    """W9: a worker may have heard of a commit that another had not when they were asked."""
    it = taking()
    it.begin(90, ["1/0", "1/1"], {})
    assert [it.since] == [None]
    it.hear("1/0", pinned(since=40))
    it.hear("1/1", pinned(since=60))
    assert it.since == 60
    for worker in ("1/0", "1/1"):
        hear(it, worker, SAVED, DURABLE)
    older = taking(7)
    older.begin(40, [], {})
    with pytest.raises(AssertionError, match="W9"):
        it.seal(older.seal(None, ()), ())
