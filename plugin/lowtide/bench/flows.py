"""The flows that can be measured, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lowtide import Flow, json, kafka
from lowtide.bench.record import Sample


def passthrough(source: str, sink: str) -> Flow:
    """Return a flow that passes records on through one exchange: decoded, sent to their key's worker, encoded."""
    flow = Flow("passthrough")
    flow.read("source", kafka(source, json(Sample))).key_by("key").write("sink", kafka(sink, json(Sample), key="key"))
    return flow


FLOWS: Mapping[str, Callable[[str, str], Flow]] = {"passthrough": passthrough}
