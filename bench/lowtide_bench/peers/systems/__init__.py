"""The systems to measure, in the order of the README's table."""

from __future__ import annotations

from collections.abc import Mapping

from lowtide_bench.peers.program import Kind
from lowtide_bench.peers.systems import bare, bytewax, flink, lowtide, spark

__all__ = ["SYSTEMS"]

_ALL = (
    lowtide.KIND,
    flink.kind("thread", 50),
    flink.kind("thread", 1_000),
    flink.kind("process", 50),
    flink.kind("process", 1_000),
    spark.MICRO_BATCH,
    bytewax.KIND,
    spark.REAL_TIME,
    bare.KIND,
)
SYSTEMS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}
