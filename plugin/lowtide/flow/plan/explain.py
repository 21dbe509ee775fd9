"""Explains a plan: what runs where, and which records pass."""

from __future__ import annotations

from datetime import timedelta

from lowtide.flow.plan.own_topics import loop_topics
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.plan.waiting import waiting
from lowtide.flow.steps.signature import said
from lowtide.flow.steps.steps import (
    WORD,
    Again,
    Broadcast,
    Clock,
    Connect,
    Deduplicate,
    Feedback,
    FlatMap,
    Join,
    JoinTable,
    KeyBy,
    Last,
    Late,
    Map,
    MapBatches,
    Merge,
    Read,
    Relay,
    Scan,
    Sign,
    Step,
    Table,
    TimedScan,
    WhenDone,
    WindowBy,
    Write,
)
from lowtide.flow.time.moments import said_duration
from lowtide.flow.types.join_types import said_nearness


def explain(plan: Plan) -> str:
    """Describe a plan level by level: each vertex with what it takes, does and gives."""
    noun = "level" if plan.levels == 1 else "levels"
    lines = [f"flow {plan.name}: {plan.levels} {noun}, {plan.units} hash units, {_lanes(plan.lanes)} per sink"]
    if plan.needs_tracking():
        lines[0] += f", ticks of {plan.slack_ms} ms, {plan.grouping} grouping"
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
    """What a vertex is, takes and gives."""
    step, gives = vertex.step, said(vertex.gives)
    if isinstance(step, Read):
        return f"{WORD[Read]} {step.source} -> {gives}"
    origins = [plan.vertices[parent].name for parent in vertex.parents]
    if isinstance(step, Connect):
        takes = ", ".join(f"{said(plan.vertices[each].gives)} of {plan.vertices[each].name}" for each in vertex.parents)
        return f"{_verb(step)}: {takes}"
    if isinstance(step, Feedback):
        return f"{_way_back(plan, vertex, step)}: {said(vertex.takes)} of {origins[0]}"
    takes = f"{said(vertex.takes)} of {', '.join(origins) if isinstance(step, Merge) else origins[0]}"
    return f"{_verb(step)}: {takes}{_result(plan, vertex, origins)}"


def _way_back(plan: Plan, vertex: Vertex, step: Feedback) -> str:
    assert vertex.back is not None, "a way back leads to a head"
    by = f" by {', '.join(step.columns)}" if step.columns else ""
    return f"exchange back to {plan.vertices[vertex.back].name}{by}, through topic {loop_topics(plan)[vertex.id]}"


def _verb(step: Step) -> str:  # noqa: PLR0911 - one line per kind of step
    if isinstance(step, KeyBy):
        return f"exchange by {', '.join(step.columns) or 'source partition'}"
    if isinstance(step, Relay):
        return "exchange to the next level"
    if isinstance(step, Broadcast):
        return "exchange to all hash units"
    if isinstance(step, Sign):
        return "a sign for the clock of each span that has records"
    if isinstance(step, Clock):
        return f"clock {step.striking and step.striking.every}"
    if isinstance(step, WhenDone):
        return f"when done{'' if step.label is None else f', labelled by {step.label}'}"
    if isinstance(step, WindowBy):
        time = "log time" if step.time is None else f"{step.time}, waits {said_duration(step.wait)} for it"
        return f"{step.windows} by {time}{', with updates' if step.emit == 'update' else ''}"
    if isinstance(step, Late):
        return "what is late"
    return f"{WORD[Last]} {step.count}" if isinstance(step, Last) else WORD[type(step)]


def _result(plan: Plan, vertex: Vertex, origins: list[str]) -> str:  # noqa: PLR0911 - one line per kind of step
    step, gives = vertex.step, said(vertex.gives)
    if isinstance(step, Write):
        return f" -> {step.sink}"
    if isinstance(step, Broadcast):
        return f" into the state {said(step.state)}"
    if isinstance(step, Scan):
        beside = "".join(f" beside {origin}" for origin in origins[1:])
        timer = ", with a timer" if isinstance(step, TimedScan) else ""
        return f"{beside} -> {gives}, with the state {said(step.state)}{timer}{_until(step.ttl)}"
    if isinstance(step, Table):
        return f"{'' if step.deleted is None else f', gone where {step.deleted} is True'}{_until(step.ttl)}"
    if isinstance(step, JoinTable):
        return f" with {origins[1]}, {step.how} -> {gives}"
    if isinstance(step, Join):
        return f" with {origins[1]}, {step.how}, {said_nearness(step)} -> {gives}"
    if isinstance(step, Deduplicate):
        return f" within {step.within}"
    if isinstance(step, Again):
        assert vertex.back is not None, "a loop's tail knows its head"
        return f", back to {plan.vertices[vertex.back].name} for at most {step.limit_turns} turns"
    if isinstance(step, Last):
        return f" -> {gives}{_until(step.ttl)}"
    return f" -> {gives}" if isinstance(step, Map | FlatMap | MapBatches | WindowBy | Late) else ""


def _until(ttl: timedelta | None) -> str:
    return "" if ttl is None else f", forgotten after {ttl}"
