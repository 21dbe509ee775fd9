"""Pictures of what progress costs, by mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowtide_bench.mechanisms.asked import MARKERS, TRACKER
from lowtide_bench.mechanisms.report import SWEEPS
from lowtide_bench.plot import Plot, points

_UP = (
    ("messages", "messages_per_s", "messages a second", "Messages"),
    ("delay", "delay_p50_ms", "ms, p50", "From the truth to the notice"),
    ("cpu", "added_us_per_record", "µs a record", "CPU above that of the flow alone"),
)


def plots(result: Mapping[str, Any]) -> dict[str, Plot]:
    """Return the pictures of a result of `lowtide bench tracking`, by the names of their files."""
    found = {}
    for name, (across, heading, _) in SWEEPS.items():
        for kind, key, up, title in _UP:
            lines = {
                mechanism: points([{across: case[across], **case[mechanism]} for case in result[name]], across, key)
                for mechanism in (MARKERS, TRACKER)
            }
            shown = {mechanism: line for mechanism, line in lines.items() if line}
            if shown:
                found[f"tracking-{across}-{kind}.svg"] = Plot(f"{title}, by {heading}", heading, up, shown)
    return found
