"""Pictures of what grows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowtide_bench.plot import Plot

_OF_JOB = ("frames", "acks", "flushes", "notices")
_DRAWN = {
    "fronts": _OF_JOB,
    "parallelism": _OF_JOB,
    "both": _OF_JOB,
    "ticks": ("sums in the table",),
    "state-keys": ("bytes kept", "bytes of parts", "bytes after changes", "parts"),
    "changes": ("bytes after changes", "bytes of parts", "parts after changes"),
}
"""By sweep the counts that its picture shows; the others are nearly all constant."""


def plots(result: Mapping[str, Any]) -> dict[str, Plot]:
    """Return the pictures of a result of `lowtide bench growth`, by the names of their files."""
    found = {}
    for name, counts in _DRAWN.items():
        if name in result["sweeps"]:
            sweep = result["sweeps"][name]
            lines = {
                count: list(zip(sweep["values"], sweep["counts"][count]["counted"], strict=True)) for count in counts
            }
            found[f"growth-{name}.svg"] = Plot(f"By {sweep['title']}", sweep["title"], "counted", lines)
    return found
