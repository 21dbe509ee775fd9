"""A tick that is too large is named with its partition, and not any more once it is over."""

from __future__ import annotations

from datetime import UTC, datetime

from seen import reader

from lowtide.service.fronts.large_ticks import LargeTicks

NAMES = {0: "orders-0", 1: "orders-1"}
NOON, LATER = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=UTC)


def test_a_partition_is_named_with_what_it_has_since_when() -> None:
    ticks = LargeTicks()
    large = reader("0/orders-0", 0, overfull=True, tick_bytes=200 << 20)
    small = reader("0/orders-1", 1, tick_bytes=3)
    assert ticks.look([large, small], NAMES, NOON)
    assert not ticks.look([large, small], NAMES, LATER)
    assert ticks.trouble.startswith("since 12:00:00 UTC: ")
    assert "orders-0 (200 MiB)" in ticks.trouble
    assert "orders-1" not in ticks.trouble
    assert ticks.look([small], NAMES, LATER)
    assert ticks.trouble == ""
    assert not ticks.look([], NAMES, LATER)
