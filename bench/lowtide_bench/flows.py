"""Flows to measure, by name, with their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lowtide import Flow, json, kafka, raw
from lowtide_bench.counted import Counted, Uncounted, count
from lowtide_bench.documents import Change, Document, Documents, Index, Versions, changes, update_index
from lowtide_bench.record import Records, Sample, Samples
from lowtide_bench.slow_key import SlowKeyed, slow_key
from lowtide_bench.words import Occurrence, Words, count_word, occurrences

Make = Callable[[str, str, str], Flow]
"""Returns a flow, given a name for the job, the source's topic and the sink's."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A flow to measure.

    Attributes:
        make: As in `Make`.
        records: The records that go in and come out.
        passed: The same for output equal to the input: of the bare loop.
    """

    make: Make
    records: Callable[[], Records]
    passed: Callable[[], Records]


def passthrough(name: str, source: str, sink: str) -> Flow:
    """Return a flow that passes records on through one exchange: decoded, sent to their key's worker, encoded."""
    flow = Flow(name)
    flow.read("source", kafka(source, json(Sample))).key_by("key").write("sink", kafka(sink, json(Sample), key="key"))
    return flow


def running_count(name: str, source: str, sink: str) -> Flow:
    """Return a flow that counts the records of each key."""
    flow = Flow(name)
    counts = flow.read("source", kafka(source, raw())).key_by("key").scan("count", count, 0)
    counts.write("sink", kafka(sink, raw()))
    return flow


def inverted_index(name: str, source: str, sink: str) -> Flow:
    """Return the flow that keeps the words of all documents."""
    flow = Flow(name)
    (
        flow.read("documents", kafka(source, json(Document)))
        .key_by("name").last(2).flat_map(changes)
        .key_by("word").scan("index", update_index, Index())
        .write("index", kafka(sink, json(Change), key="word"))
    )  # fmt: skip
    return flow


def word_count(name: str, source: str, sink: str) -> Flow:
    """Return a flow that counts the words of all documents."""
    flow = Flow(name)
    (
        flow.read("documents", kafka(source, json(Document))).flat_map(occurrences)
        .key_by("word").scan("count", count_word, 0)
        .write("counts", kafka(sink, json(Occurrence), key="word"))
    )  # fmt: skip
    return flow


COUNTING = "running-count"
"""The flow whose work the skeleton can do; it passes on the records of all others."""

FLOWS: Mapping[str, Measured] = {
    COUNTING: Measured(running_count, Counted, Uncounted),
    "inverted-index": Measured(inverted_index, Documents, Versions),
    "word-count": Measured(word_count, Words, Versions),
    "passthrough": Measured(passthrough, Samples, Samples),
    "slow-key": Measured(slow_key, SlowKeyed, Uncounted),
}


def records_of(flow: str, *, passed: bool = False) -> Records:
    """Return the records of a flow; `passed` as in `Measured`."""
    return FLOWS[flow].passed() if passed else FLOWS[flow].records()
