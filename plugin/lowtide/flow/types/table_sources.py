"""Sources that only tables may take: preloaded ones, and compacted topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowtide.flow.steps.calls import Call, calls_of
from lowtide.flow.steps.steps import Filter, FlatMap, KeyBy, Map, MapBatches, Merge, Read, Side, Split, Table

ON_THE_WAY = (Map, FlatMap, MapBatches, Filter, Split, Side, Merge, KeyBy)
"""The steps that records may pass on their way to a table: they keep nothing, so that a key's last record decides."""


def source_faults(calls: Sequence[Call], names: Sequence[str]) -> Iterator[tuple[Call, str]]:
    """Yield the faults of preloaded or compacted sources: each step at fault, and why.

    Args:
        calls: The steps as the user wrote them.
        names: Their names.
    """
    for call in calls_of(calls, Read):
        source = call.step.source
        if source.preload and source.start.word == "latest":
            yield call, 'start="latest" skips the records that preload=True loads; leave out one of the two'
        if not (source.preload or source.compacted):
            continue
        what = "preload=True" if source.preload else "compacted=True"
        for taker in _takers(calls, call):
            step = calls[taker].step
            if not isinstance(step, Table):
                why = f"{what} is only for sources of tables, but {names[taker]!r} takes these records"
                yield call, f"{why}; end them with .key_by(...).table(...), or leave out {what}"
            elif source.preload and step.ttl is not None:
                yield (
                    call,
                    "preload=True makes rows older than any record, so ttl= would drop them; leave one of the two out",
                )


def _takers(calls: Sequence[Call], source: Call) -> list[int]:
    """Return the calls that take a source's records in the end, past the steps that keep nothing."""
    found, reached = [], set[int]()
    for index, call in enumerate(calls):
        if call is source or (reached.intersection(call.parents) and isinstance(call.step, ON_THE_WAY)):
            reached.add(index)
        elif reached.intersection(call.parents):
            found.append(index)
    return found
