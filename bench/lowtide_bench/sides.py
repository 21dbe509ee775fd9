"""Subjects of a run beside each other: the flow, the skeleton, the bare loop. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lowtide_bench.quiet import NOTE, mark

SUBJECTS = ("bare", "skeleton", "flow")
"""In the order of measurement."""
OTHERS = ("bare", "skeleton")
"""The subjects to compare a flow with; each has its figures under its name, while the flow's own are the object's."""
RATIOS = ("p50_ms", "p90_ms", "p99_ms", "sustained_per_s")

Figures = Mapping[str, Any]


def sides(result: Figures, name: str) -> list[tuple[str, Figures]]:
    """Return the subjects of a run, the flow first: a heading (the flow's is given) with its mark, and figures."""
    found = [(name, result if "flow" in result["subjects"] else None)]
    found += [("skeleton", result["skeleton"]), ("bare loop", result["bare"])]
    return [(heading + mark(figures), figures) for heading, figures in found if figures is not None]


def note(columns: Sequence[tuple[str, Figures]]) -> list[str]:
    """Return the meaning of the mark, if a subject has it."""
    return [NOTE] if any(mark(figures) for _, figures in columns) else []


def ratios(figures: Figures, others: Mapping[str, Figures | None]) -> dict[str, dict[str, float | None]]:
    """Return the ratios of a flow's figures to those of each other subject; null for a missing one."""
    return {
        name: {figure: ratio(figures.get(figure), (other or {}).get(figure)) for figure in RATIOS}
        for name, other in others.items()
    }


def ratio(figure: float | None, of: float | None) -> float | None:
    """Return a figure divided by another; None if either is missing or 0."""
    return round(figure / of, 3) if figure and of else None


def origin(result: Figures) -> str:
    """Return the ratios in words: `p50 3.1 x bare, 1.2 x skeleton; p99 4.0 x bare, 1.1 x skeleton`; empty for none."""
    lines = []
    for label, figure in (("p50", "p50_ms"), ("p99", "p99_ms")):
        known = [(name, result["ratios"][name][figure]) for name in OTHERS]
        parts = [f"{value:.1f} x {name}" for name, value in known if value is not None]
        if parts:
            lines.append(f"{label} {', '.join(parts)}")
    return "; ".join(lines)
