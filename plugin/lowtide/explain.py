"""A plan for people: what runs where, and which records pass."""

from __future__ import annotations

from lowtide.plan import Plan, Vertex
from lowtide.steps import WORD, Filter, FlatMap, KeyBy, Map, MapBatches, Read


def explain(plan: Plan) -> str:
    """Describe a plan level by level: each vertex with what it takes, does and gives."""
    noun = "level" if plan.levels == 1 else "levels"
    lines = [f"flow {plan.name}: {plan.levels} {noun}, {plan.units} hash units, {_lanes(plan.lanes)} per sink"]
    width = max(len(vertex.name) for vertex in plan.vertices)
    for level in range(plan.levels):
        lines += ["", f"level {level}: {_workers(plan, level)}"]
        vertices = [vertex for vertex in plan.vertices if vertex.level == level]
        lines += [f"  {vertex.name:<{width}}  {_does(plan, vertex)}" for vertex in vertices]
    letters = "they stop the job" if plan.dead_letters is None else f"they go to {plan.dead_letters}"
    lines += ["", f"records that fail: {letters}"]
    return "\n".join(lines)


def _workers(plan: Plan, level: int) -> str:
    if level == 0:
        return "one worker per source partition"
    return "1 worker" if plan.parallelism == 1 else f"{plan.parallelism} workers"


def _lanes(lanes: int) -> str:
    return "1 lane" if lanes == 1 else f"{lanes} lanes"


def _does(plan: Plan, vertex: Vertex) -> str:
    step = vertex.step
    word = WORD[type(step)]
    if isinstance(step, Read):
        return f"{word} {step.source} -> {vertex.gives.__qualname__}"
    origin = plan.vertices[vertex.parents[0]].name
    takes = f"{vertex.takes.__qualname__} of {origin}"
    if isinstance(step, KeyBy):
        key = "source partition" if not step.columns else ", ".join(step.columns)
        return f"exchange by {key}: {takes}"
    if isinstance(step, Map | FlatMap | MapBatches):
        return f"{word}: {takes} -> {vertex.gives.__qualname__}"
    if isinstance(step, Filter):
        return f"{word}: {takes}"
    return f"{word}: {takes} -> {step.sink}"
