"""The initial states of a local run: those that a test gives to steps, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowtide.core.operators.order.keys import plain
from lowtide.errors import FlowError
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.steps.steps import Scan
from lowtide.local.interpreter import Run

States = Mapping[str, Mapping[Any, Any]]
"""States by the step's name and then by key; a key of several columns is a tuple."""


def begin_with(run: Run, plan: Plan, states: States) -> None:
    """Give steps initial states, as a snapshot does for a job.

    Raises:
        FlowError: a step does not exist or keeps no such state, a key has other columns, or a state another type.
    """
    steps = {vertex.name: vertex for vertex in plan.those(Scan) if not vertex.step.own}
    for name, kept in states.items():
        vertex = steps.get(name)
        if vertex is None:
            raise FlowError(
                f'states= names "{name}", which is not a step that takes states; '
                f"those are {', '.join(sorted(steps)) if steps else 'none in this flow'}",
                way_out="name a scan, flat_scan, reduce or aggregate; give windows, joins and tables records",
            )
        for key, state in kept.items():
            run.begin(vertex, _key_of(plan, vertex, key), state)


def _key_of(plan: Plan, vertex: Vertex, key: Any) -> tuple[Any, ...]:
    columns = next(iter(plan.connected(vertex).values()), None) or plan.key_of(vertex)
    values = key if isinstance(key, tuple) else (key,)
    if len(values) != len(columns):
        raise FlowError(
            f'states= gives "{vertex.name}" a state for {key!r}, but its key is {", ".join(columns)}',
            way_out="give a value of the column, or a tuple with one value per column",
        )
    return tuple(map(plain, values))
