"""`lowtide check`: finds all that can be found in a flow without running it; no Spark, no services."""

from __future__ import annotations

from collections.abc import Sequence

from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.flow_file import load_flow
from lowtide.flow.plan.plan import Plan
from lowtide.flow.plan.plan_pickle import dump_plan, load_plan, unpicklable
from lowtide.flow.plan.reads_outside import outside_reads
from lowtide.flow.steps.graph import FlowGraph
from lowtide.flow.types.findings import Finding, FlowRefused

__all__ = ["advice", "check_flow", "dump_plan", "load_flow", "load_plan", "render"]


def check_flow(flow: FlowGraph) -> list[Finding]:
    """Find types that do not fit, unknown columns, names missing or taken, loose ends, and what cannot be pickled."""
    try:
        plan = compile_flow(flow, parallelism=1)
    except FlowRefused as refused:
        return list(refused.findings)
    return unpicklable(plan)


def advice(plan: Plan) -> list[Finding]:
    """Find what is allowed but rarely intended.

    Functions that read a clock, random numbers or the environment; sinks whose messages of one key may go to several
    partitions; and sinks whose format may not hold a field's values.
    """
    found = outside_reads(plan)
    for vertex in plan.sinks():
        key, exchange = vertex.step.sink.key_column, plan.vertices[vertex.parents[0]]
        while not exchange.is_exchange:
            exchange = plan.vertices[exchange.parents[0]]
        columns = exchange.step.by
        if key is not None and columns and columns != (key,):
            text = (
                f"records go to partitions by {', '.join(columns)}, the columns of {exchange.name}, not by the key "
                f"{key}: records of one {key} may land in several partitions, with no order among them; "
                f'if that matters, put .key_by("{key}") before the write'
            )
            found.append(Finding(vertex.site, vertex.name, text))
        found += [Finding(vertex.site, vertex.name, each) for each in vertex.step.sink.writable.perhaps]
    return found


def render(flow: FlowGraph, findings: Sequence[Finding]) -> str:
    """Format findings for people: one line each, and their number in the last."""
    if not findings:
        steps = len(flow.calls)
        return f'flow "{flow.name}" is sound: {steps} steps'
    faults = "1 fault" if len(findings) == 1 else f"{len(findings)} faults"
    return "\n".join([*map(str, findings), f'flow "{flow.name}" has {faults}'])
