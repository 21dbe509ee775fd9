"""What an open window costs in memory, counted: windows of days with many keys have to fit into a worker."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

import lowtide as lt
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.program import Program
from lowtide.core.operators.windows.window_node import WindowNode
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.schema.raw_record import Raw

KEYS, AT_ONCE = 10_000, 1_000
GOAL_BYTES = 300
MORE_BYTES = 220
"""What one more record may cost a window that keeps them: order key, record, its key, and two places in a list."""


def counted(state: int, _: Raw) -> int:
    return state + 1


def joined(one: int, other: int) -> int:
    return one + other


def closed(window: lt.Window, state: int) -> Raw:
    return Raw(window.key[0], b"")


def listed(window: lt.Window, records: tuple[Raw, ...]) -> list[Raw]:
    return list(records)


TUMBLING, SESSION = lt.tumbling(lt.hours(1)), lt.session(lt.hours(1))


def bytes_of_a_window(windows: Any, applied: bool) -> tuple[float, float]:
    """What a window takes, its key among it, with one record and with two."""
    flow = lt.Flow("memory")
    windowed = flow.read("in", lt.kafka("in", lt.raw())).key_by("key").window("w", windows)
    made = windowed.apply(listed) if applied else windowed.fold(counted, 0, closed, merge=joined)
    made.write("out", lt.kafka("out", lt.raw()))
    program = Program(compile_flow(flow, units=8, parallelism=1), 1)
    (node,) = [each for each in program.holding if isinstance(each, WindowNode)]
    found = []
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for turn in range(2):
            for start in range(0, KEYS, AT_ONCE):
                tick = turn * KEYS // AT_ONCE + start // AT_ONCE
                ats = [OrderKey(tick, 0, turn * KEYS + start + each, (), 7).packed() for each in range(AT_ONCE)]
                rows = [Raw(b"%08d" % (start + each), b"") for each in range(AT_ONCE)]
                units = [each % 8 for each in range(AT_ONCE)]
                node.take(Batch(ats, units, rows, None, [tick]), 0, Feed())
                node.advance(tick + 1, Feed())
                node.prune(tick + 1)
            del ats, rows, units
            gc.collect()
            found.append((tracemalloc.get_traced_memory()[0] - before) / KEYS)
    finally:
        tracemalloc.stop()
    assert node.kept.number == KEYS
    return found[0], found[1]


@pytest.mark.parametrize("windows", [TUMBLING, SESSION], ids=["tumbling", "session"])
def test_an_open_window_takes_no_more_than_300_bytes(windows: Any) -> None:
    one, two = bytes_of_a_window(windows, applied=False)
    assert max(one, two) <= GOAL_BYTES


@pytest.mark.parametrize("windows", [TUMBLING, SESSION], ids=["tumbling", "session"])
def test_a_window_that_keeps_its_records_takes_as_much_beside_them(windows: Any) -> None:
    one, two = bytes_of_a_window(windows, applied=True)
    assert two - one <= MORE_BYTES
    assert one - (two - one) <= GOAL_BYTES
