"""The bare librdkafka loop: the floor, not a rival. Its counts are in memory only."""

from __future__ import annotations

import sys

from lowtide_bench.peers.program import PROGRAMS, Kind, Place, Program


def start(place: Place) -> Program:
    """Start it."""
    return Program([sys.executable, str(PROGRAMS / "bare_count.py")], lambda _: place.task(), place.folder, {})


KIND = Kind(
    name="bare",
    title="bare librdkafka loop: the floor, no rival",
    delivery="at least once",
    rates=(40_000, 55_000, 70_000, 90_000, 110_000, 140_000, 180_000),
    install=lambda: None,
    start=start,
)
