"""Tombstones without their record, and two records at one place: what only a function that varies can cause."""

from __future__ import annotations

from lowtide.core.operators.order.order import OrderKey
from lowtide.errors import LifeEnded


class UnmatchedTombstone(LifeEnded):
    """Make the functions of the named flow deterministic: one gave something else when it was called again."""


def unmatched(owner: str, at: bytes, tombstone: bool) -> UnmatchedTombstone:
    """The error for a tombstone without its item, or a second item with the same key."""
    key = OrderKey.of(at)
    what = "a tombstone came without its item" if tombstone else "a second item came with the same order key"
    return UnmatchedTombstone(
        f"{what} at {owner}: tick {key.tick}, front {key.front}, offset {key.sequence}, child {list(key.child)}",
        way_out="a function on the way gave another result when called again with the same record: make it "
        "deterministic (no clock, no random numbers, no order of sets), then start the job again; `lowtide check` "
        "calls each function twice under two hash seeds, and names it",
    )
