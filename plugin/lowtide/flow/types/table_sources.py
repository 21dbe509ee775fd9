"""Sources that only tables may take: preloaded ones, and compacted topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowtide.flow.steps.calls import Call
from lowtide.flow.steps.steps import Filter, FlatMap, KeyBy, Map, MapBatches, Merge, Read, Side, Split, Table

__all__ = ["source_faults"]

ON_THE_WAY = (Map, FlatMap, MapBatches, Filter, Split, Side, Merge, KeyBy)
"""What records may pass on their way to a table: steps that keep nothing, so that a key's last record decides."""


def source_faults(calls: Sequence[Call], names: Sequence[str]) -> Iterator[tuple[Call, str]]:
    """What is wrong with the sources of a flow that are preloaded or compacted: each step at fault, and why.

    Args:
        calls: The steps as they were written down.
        names: Their names.
    """
    for index, call in enumerate(calls):
        if not isinstance(call.step, Read):
            continue
        source = call.step.source
        if source.preload and source.start.word == "latest":
            yield call, 'start="latest" leaves out what preload=True takes as known; leave out one of the two'
        if not (source.preload or source.compacted):
            continue
        what = "preload=True" if source.preload else "compacted=True"
        for taker in _takers(calls, index):
            step = calls[taker].step
            if not isinstance(step, Table):
                why = f"{what} is for sources of tables alone, and {names[taker]!r} takes these records"
                yield call, f"{why}; end them with .key_by(...).table(...), or leave out {what}"
            elif source.preload and step.ttl is not None:
                yield call, "preload=True makes rows older than any record, so ttl= would let them go at once"


def _takers(calls: Sequence[Call], source: int) -> list[int]:
    """What takes the records of a source in the end, beyond the steps that keep nothing."""
    found, reached = [], {source}
    for index, call in enumerate(calls):
        if reached.intersection(call.parents):
            if isinstance(call.step, ON_THE_WAY):
                reached.add(index)
            else:
                found.append(index)
    return found
