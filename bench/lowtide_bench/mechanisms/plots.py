"""Pictures of what progress costs, by mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowtide_bench.mechanisms.asked import MARKERS, TRACKER
from lowtide_bench.mechanisms.report import SWEEPS
from lowtide_bench.plot import Plot, points

_UP = {
    "messages": ("messages_per_s", "messages a second", "Messages"),
    "delay": ("delay_p50_ms", "ms, p50", "From the truth to the notice"),
    "cpu": ("added_us_per_record", "µs a record", "CPU above that of the flow alone"),
}
_DRAWN = {
    "by_nodes": ("messages", "delay", "cpu"),
    "by_depth": ("messages", "delay"),
    "by_period": ("messages", "delay"),
    "by_rate": ("messages", "cpu"),
    "by_flush": ("messages", "delay"),
}


def plots(result: Mapping[str, Any]) -> dict[str, Plot]:
    """Return the pictures of a result of `lowtide bench tracking`, by the names of their files."""
    found = {}
    for name, kinds in _DRAWN.items():
        across, heading, _ = SWEEPS[name]
        for kind in kinds:
            key, up, title = _UP[kind]
            lines = {}
            for mechanism in (MARKERS, TRACKER):
                cases = [{across: case[across], **case[mechanism]} for case in result[name]]
                # A single node has no markers, and what is lost in the noise has no logarithm.
                if line := points(cases, across, key):
                    lines[mechanism] = line
            if lines:
                found[f"tracking-{across}-{kind}.svg"] = Plot(f"{title}, by {heading}", heading, up, lines)
    return found
