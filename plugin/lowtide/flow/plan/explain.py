"""Explains a plan: what runs where, and which records pass."""

from __future__ import annotations

from lowtide.flow.plan.own_topics import loop_topics
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.plan.waiting import waiting
from lowtide.flow.steps.signature import said


def explain(plan: Plan) -> str:
    """Describe a plan level by level: each vertex with what it takes, does and gives."""
    noun = "level" if plan.levels == 1 else "levels"
    lines = [f"flow {plan.name}: {plan.levels} {noun}, {plan.units} hash units, {_lanes(plan.lanes)} per sink"]
    if plan.needs_tracking():
        lines[0] += f", ticks of {plan.slack_ms} ms, {plan.grouping} grouping"
    if plan.parameters:
        lines.append("parameters: " + ", ".join(f"{name} = {value!r}" for name, value in plan.parameters.items()))
    width = max(len(vertex.name) for vertex in plan.vertices)
    for level in range(plan.levels):
        lines += ["", f"level {level}: {_workers(plan, level)}"]
        vertices = [vertex for vertex in plan.vertices if vertex.level == level]
        lines += [f"  {vertex.name:<{width}}  {_does(plan, vertex)}" for vertex in vertices]
    lines += ["", *waiting(plan)]
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
    """Describe what a vertex is, takes and gives."""
    step, gives = vertex.step, said(vertex.gives)
    origins = [plan.vertices[parent].name for parent in vertex.parents]
    topic = loop_topics(plan).get(vertex.id)
    if topic is not None:
        return f"{_way_back(plan, vertex, topic)}: {said(vertex.takes)} of {origins[0]}"
    types = [said(vertex.takes), *(said(plan.vertices[parent].gives) for parent in vertex.parents[1:])]
    others = origins[1:] if vertex.back is None else [plan.vertices[vertex.back].name]
    return step.explained(types, origins, gives, others)


def _way_back(plan: Plan, vertex: Vertex, topic: str) -> str:
    assert vertex.back is not None, "a way back leads to a head"
    by = f" by {', '.join(vertex.step.by)}" if vertex.step.by else ""
    return f"exchange back to {plan.vertices[vertex.back].name}{by}, through topic {topic}"
