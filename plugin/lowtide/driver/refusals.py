"""The fence at the start of a life and in it: what ends the life."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lowtide.errors import LifeEnded
from lowtide_snapshots.errors import EntryDiffers, Fenced


@contextmanager
def fence_ends_life() -> Iterator[None]:
    """Raise `LifeEnded` where ZooKeeper fences the block off, or has something else in the place of its write."""
    try:
        yield
    except (EntryDiffers, Fenced) as error:
        raise LifeEnded(error.what, where=error.where, way_out=error.way_out) from error
