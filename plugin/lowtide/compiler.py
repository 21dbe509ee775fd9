"""From a flow to its plan: a pure function."""

from __future__ import annotations

from lowtide.errors import FlowError
from lowtide.findings import FlowRefused
from lowtide.flow import Flow
from lowtide.inference import Inference, key_column
from lowtide.plan import Plan, Vertex
from lowtide.steps import KeyBy, Step, Write

DEFAULT_UNITS = 128


def compile_flow(flow: Flow, *, units: int = DEFAULT_UNITS, parallelism: int, lanes: int | None = None) -> Plan:
    """Lay a flow out in levels, with an exchange before every sink that has none.

    A vertex is on its parent's level, and one further behind a `key_by`. A lane is a function of the last exchange's
    hash unit (R12), so a write without a `key_by` before it gets an exchange of its own, "<write>/exchange": by the
    sink's key column if it has one, else by source front.

    Args:
        flow: The flow.
        units: Number of hash units; frozen with the job's first start.
        parallelism: Number of workers of each level from 1 on, at most `lanes`.
        lanes: Number of lanes, frozen with the job's first start; by default as many as workers.

    Raises:
        FlowRefused: names everything that does not fit.
    """
    lanes = parallelism if lanes is None else lanes
    if not 1 <= parallelism <= lanes <= units:
        raise FlowError(
            f"parallelism {parallelism}, lanes {lanes} and hash units {units} do not fit",
            way_out="1 <= parallelism <= lanes <= units is needed: a lane has one worker, a hash unit one lane",
        )
    inference = Inference(flow)
    if inference.findings:
        raise FlowRefused(flow.name, inference.findings)
    return _Layout(flow, inference).plan(units, lanes, parallelism)


class _Layout:
    """Numbers the calls of a sound flow, and adds what they leave unsaid."""

    def __init__(self, flow: Flow, inference: Inference) -> None:
        self._flow = flow
        self._inference = inference
        self._vertices: list[Vertex] = []
        self._vertex_of_call: list[Vertex] = []

    def plan(self, units: int, lanes: int, parallelism: int) -> Plan:
        for index, call in enumerate(self._flow.calls):
            parent = None if call.parent is None else self._vertex_of_call[call.parent]
            if isinstance(call.step, Write) and parent is not None and parent.level == 0:
                key = key_column(call.step.sink) if call.step.sink.key is not None else None
                parent = self._add(index, f"{call.name}/exchange", KeyBy(() if key is None else (key,)), parent)
            self._vertex_of_call.append(self._add(index, self._inference.names[index], call.step, parent))
        vertices = tuple(self._vertices)
        levels = 1 + max(vertex.level for vertex in vertices)
        return Plan(self._flow.name, vertices, levels, units, lanes, parallelism, self._flow.dead_letters)

    def _add(self, call: int, name: str, step: Step, parent: Vertex | None) -> Vertex:
        gives = self._inference.gives[call]
        assert gives is not None, "a flow without findings has a type at every step"
        level = 0 if parent is None else parent.level + isinstance(step, KeyBy)
        vertex = Vertex(
            id=len(self._vertices),
            name=name,
            level=level,
            parents=() if parent is None else (parent.id,),
            step=step,
            takes=gives if parent is None else parent.gives,
            gives=gives,
            site=self._flow.calls[call].site,
        )
        self._vertices.append(vertex)
        return vertex
