"""`lowtide check`: everything about a flow that can be told without running it; no Spark, no services."""

from __future__ import annotations

from collections.abc import Sequence

from lowtide.compiler import compile_flow
from lowtide.findings import Finding, FlowRefused
from lowtide.flow import Flow
from lowtide.loading import load_flow
from lowtide.pickling import dump_plan, load_plan, unpicklable

__all__ = ["check_flow", "dump_plan", "load_flow", "load_plan", "render"]


def check_flow(flow: Flow) -> list[Finding]:
    """Find types that do not fit, unknown columns, names missing or taken, loose ends, and what cannot be pickled."""
    try:
        plan = compile_flow(flow, parallelism=1)
    except FlowRefused as refused:
        return list(refused.findings)
    return unpicklable(plan)


def render(flow: Flow, findings: Sequence[Finding]) -> str:
    """Findings for people: one line each, and a last line that says how many."""
    if not findings:
        steps = len(flow.calls)
        return f'flow "{flow.name}" is sound: {steps} steps'
    faults = "1 fault" if len(findings) == 1 else f"{len(findings)} faults"
    return "\n".join([*map(str, findings), f'flow "{flow.name}" has {faults}'])
