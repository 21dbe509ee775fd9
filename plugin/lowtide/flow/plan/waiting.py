"""Says in plain words what each sink of a plan waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.plan.segments import Segments, segments_of


def waiting(plan: Plan) -> list[str]:
    """List for each sink the sources and steps that can hold it back, and why if that is not obvious.

    Where there are several workers, a second line says whether its lanes wait for those of other workers.

    A sink waits for what its records come from. It also waits for what else comes after the same exchanges, and for
    steps at which a record may end the life, if that may be corrected further up (`Segments`).
    """
    segments = segments_of(plan)
    lines = []
    for sink in plan.sinks():
        lines.append(f'sink "{sink.name}" waits for {_behind(plan, segments, sink)}')
        if sink.level and plan.parallelism > 1:
            lines.append(f"  {_apart(plan, segments, sink)}")
    if segments.letters is not None:
        lines.append("dead letters wait for all sources and steps")
    return lines


def _behind(plan: Plan, segments: Segments, sink: Vertex) -> str:
    before = _ancestors(plan, [sink.id])
    own = f"{_named(plan, before, 'source', _reads)}{_named(plan, before, ', step', _keeps)}"
    outlet = segments.outlet_of.get(sink.id)
    if outlet is None:
        return own
    failing = [vertex for vertex, held in segments.outlets.items() if outlet in held]
    others = _ancestors(plan, failing) - before
    steps = sorted({plan.vertices[each].name for each in others if _keeps(plan.vertices[each])})
    if not others:
        return own
    also = f" (with {', '.join(steps)})" if steps else ""
    return f"{own}; and for the other branches of its sources{also}, as a record that fails there may end the job"


def _apart(plan: Plan, segments: Segments, sink: Vertex) -> str:
    """Say whether lanes of different workers wait for one another before a sink, and why if so."""
    others = {part for parts in segments.parts.values() for part in parts}
    outlet = segments.outlet_of.get(sink.id)
    held = set[int]() if outlet is None else others.intersection(segments.inbound[outlet])
    if segments.waits[sink.id] and segments.parts.keys() >= {*segments.waits[sink.id]} and not held:
        return "lanes wait for their own worker alone"
    together = "lanes of all workers wait for one another"
    if not plan.early_keys:
        return f"{together}, as job.early_keys is off"
    if plan.dead_letters is None:
        return f"{together}, as without dead letters a record that fails ends the job"
    feeding = {each for exchange in segments.of_exchange.values() for each in segments.inbound[exchange]}
    if feeding.intersection(segments.waits[sink.id]):
        return f"{together}, as a further level, or another turn of a loop, comes after the same exchange"
    failing = [] if outlet is None else [each for each, ends in segments.outlets.items() if outlet in ends]
    names = sorted({plan.vertices[each].name for each in failing if plan.vertices[each].level == sink.level})
    if names:
        return f"{together}, as a record that fails at {', '.join(names)} ends the job"
    return f"{together}, as a when_done tells of all of them"


def _reads(vertex: Vertex) -> bool:
    return vertex.step.reads


def _keeps(vertex: Vertex) -> bool:
    return vertex.step.stateful and not vertex.step.exchange


def _named(plan: Plan, among: Iterable[int], word: str, is_meant: Callable[[Vertex], bool]) -> str:
    names = [f'"{plan.vertices[each].name}"' for each in sorted(among) if is_meant(plan.vertices[each])]
    return f"{word}{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


def _ancestors(plan: Plan, vertices: Iterable[int]) -> set[int]:
    """Return these vertices and all that records reach them from."""
    seen = set(vertices)
    left = list(seen)
    while left:
        for parent in plan.vertices[left.pop()].parents:
            if parent not in seen:
                seen.add(parent)
                left.append(parent)
    return seen
