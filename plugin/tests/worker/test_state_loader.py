"""The parts that a worker loads, whatever kinds of state the flow has."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from state_flows import FLOWS

from lowtide import Flow
from lowtide.core.operators.state.packing import packing_of, packs
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.flow.plan.compiler import compile_flow
from lowtide.worker.state_loader import as_on_disk
from lowtide_snapshots.format.manifest import Part


@pytest.mark.parametrize("write", FLOWS)
def test_parts_of_all_kinds_come_as_their_keys_lie_on_disk(write: Callable[[Flow], None]) -> None:
    flow = Flow("flow")
    write(flow)
    plan = compile_flow(flow, units=16, parallelism=2)
    steps = saved_steps(plan)
    parts = [
        Part(name, step.kind, unit, 5, "000001-0001", 1, 10, "0" * 64)
        for name, step in steps.items()
        for unit in (3, 1, 2)
    ]
    loaded = [part for chain in as_on_disk(parts, plan).values() for part in chain]
    assert sorted(loaded, key=repr) == sorted(parts, key=repr)
    assert [part.unit for part in loaded] == sorted(part.unit for part in parts)
    packings = {vertex.name: packing_of(plan, vertex) for vertex in plan.vertices if packs(plan, vertex)}
    bounds = [packings[part.vertex].bounds(part.unit) for part in loaded if part.vertex in packings]
    assert bounds == sorted(bounds)
