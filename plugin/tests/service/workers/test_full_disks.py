"""A process whose state on disk comes near to its limit is named, and not any more once it does not."""

from __future__ import annotations

from datetime import UTC, datetime

from seen import worker

from lowtide.service.workers.full_disks import FullDisks

NOON, LATER = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=UTC)


def test_a_process_is_named_with_what_it_has_used_since_when() -> None:
    disks = FullDisks()
    some = [worker("1/0", disk={"fullest": 0.83}), worker("1/1", disk={"fullest": 0.79}), worker("1/2")]
    assert disks.look(some, NOON)
    assert not disks.look([worker("1/0", disk={"fullest": 0.92})], LATER)
    assert disks.trouble.startswith("since 12:00:00 UTC: ")
    assert "of 1/0 (92%)" in disks.trouble
    assert "1/1" not in disks.trouble
    assert disks.look([worker("1/0", disk={"fullest": 0.1})], LATER)
    assert disks.trouble == ""
    assert not disks.look([], LATER)
