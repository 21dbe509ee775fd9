"""Places that two sinks of a flow would write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowtide.flow.formats.endpoints import Overlapping, Sink
from lowtide.flow.steps.calls import Call
from lowtide.flow.steps.graph import DEAD_LETTERS, FlowGraph
from lowtide.flow.steps.steps import Write


def place_faults(flow: FlowGraph, names: Sequence[str]) -> Iterator[tuple[Call, str]]:
    """Yield the sinks whose place another one writes already, and why that is a fault.

    Each sink keeps its own order, so what one place has of two would be mixed by chance; of one key either could win.

    Args:
        flow: The flow.
        names: The names of its calls.
    """
    writers: dict[str, Sink] = {} if flow.dead_letters is None else {DEAD_LETTERS: flow.dead_letters}
    for own, call in zip(names, flow.calls, strict=True):
        if not isinstance(call.step, Write):
            continue
        sink = call.step.sink
        for name, other in writers.items():
            if _shared(sink, other):
                named = "the dead letters are" if name == DEAD_LETTERS else f'sink "{name}" is'
                also = ", too" if sink.place == other.place else f", which has places in common with {sink.place}"
                why = f"{named} written to {other.place}{also}: their order would be by chance"
                yield call, f"{why}; merge the streams before one sink, or give each a place of its own"
                break
        writers.setdefault(own, sink)


def _shared(one: Sink, other: Sink) -> bool:
    if one.store != other.store:
        return False
    return one.place == other.place or _meets(one, other) or _meets(other, one)


def _meets(one: Sink, other: Sink) -> bool:
    return isinstance(one, Overlapping) and one.meets(other)
