"""The difference of two snapshots."""

import dataclasses
from typing import Any

import pytest

from lowtide_snapshots.errors import RecordRefused
from lowtide_snapshots.format.difference import FrontDiff, VertexDiff, diff
from lowtide_snapshots.format.manifest import FrontAt


def test_a_diff_counts_records_rows_and_changed_units(takes: Any) -> None:
    taker = takes("counts")
    before = taker.take(10, 1, 2, 3)
    after = taker.take(25, 2, 4, base=before)
    after = dataclasses.replace(
        after,
        fronts=(*after.fronts, FrontAt(1, "documents", "x", 1, 7, None)),
        parts=tuple(part for part in after.parts if part.unit != 3),
    )
    found = diff(before, after)
    assert (found.ids, found.ticks, found.shape) == (("000001-0001", "000001-0002"), (10, 25), ())
    assert found.fronts == (FrontDiff(0, "documents", 0, 20, 50), FrontDiff(1, "documents", 1, None, 7))
    assert [front.records for front in found.fronts] == [30, None]
    assert found.vertices == (VertexDiff("counts", 3, 3, before.bytes, after.bytes, units=3, changed=3),)
    assert diff(after, before).fronts[1].records is None


def test_a_unit_that_leaves_a_part_of_several_changes_no_other(takes: Any) -> None:
    before = takes("counts").take(10, 1, 2, 3)
    shared = dataclasses.replace(before.parts[0], tick=8, since=5, units=(1, 2, 3))
    whole = dataclasses.replace(before.parts[0], tick=9)
    first = dataclasses.replace(before, parts=(*before.parts, shared))
    after = dataclasses.replace(before, parts=(*before.parts[1:], dataclasses.replace(shared, units=(2, 3)), whole))
    (found,) = diff(first, after).vertices
    assert (found.units, found.changed, found.rows_before, found.rows_after) == (3, 1, 4, 4)


def test_a_diff_tells_what_changed_in_the_flow_and_refuses_two_jobs(takes: Any) -> None:
    before, other = takes("counts").take(10, 1), takes("other").take(10, 1)
    (gone,) = diff(before, dataclasses.replace(before, flow=(), parts=())).shape
    assert 'step "counts" is gone' in gone.what
    assert diff(before, dataclasses.replace(before, parts=())).vertices[0].changed == 1
    with pytest.raises(RecordRefused, match="job 'counts', and 000001-0001 of job 'other'"):
        diff(before, other)
