"""The record of one method call on a flow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeGuard

from typing_extensions import TypeVar

from lowtide.errors import FlowError
from lowtide.flow.formats.bounds import EARLIEST
from lowtide.flow.formats.endpoints import Kafka, KafkaSink, Sink
from lowtide.flow.site import Site, user_site
from lowtide.flow.steps.steps import Step

T = TypeVar("T")
K = TypeVar("K", bound=Step)
S_co = TypeVar("S_co", bound=Step, covariant=True, default=Step)


@dataclass(frozen=True, slots=True)
class Call(Generic[S_co]):
    """One step as the user wrote it; `Call[Scan]` is one whose step is a scan.

    Attributes:
        step: The step.
        name: Its name, None if it has none.
        parents: Indices of the calls whose records it takes, by port; none for a source.
        site: The place in the user's code.
        back: Of a loop's tail, the index of its head; else None.
    """

    step: S_co
    name: str | None
    parents: tuple[int, ...]
    site: Site
    back: int | None = None


def calls_of(calls: Iterable[Call], kind: type[K]) -> Iterator[Call[K]]:
    """Yield the calls whose steps are of a kind, in order."""

    def is_of(call: Call) -> TypeGuard[Call[K]]:
        return isinstance(call.step, kind)

    return filter(is_of, calls)


_ABOUT = ("store", "place", "record", "form", "key_column", "by_key", "writable", "faults")
_OF_DIRECT = (*_ABOUT, "settings", "encoder", "home", "way")
_OF_STAGED = (*_ABOUT, "settings", "staged", "mark_every_ms", "carrier")
"""Sinks of other stores than Kafka: ones that take records with their marks, and ones that cannot."""


def sink_elsewhere(sink: Any) -> Sink:
    """Return the sink of another store than Kafka, as the plan keeps it (errors: FlowError if it is none)."""
    is_sink = any(all(hasattr(sink, word) for word in words) for words in (_OF_DIRECT, _OF_STAGED))
    if isinstance(sink, type) or not is_sink:
        raise FlowError(
            f"write takes kafka(topic, format) or the sink of another store, found {sink!r}",
            where=str(user_site()),
            way_out='name a topic and its format: lt.kafka("topic", lt.json(Type))',
        )
    found: Sink = sink
    return found


def sink_of(sink: Kafka[T], taker: str) -> KafkaSink:
    """Return a sink as the plan keeps it."""
    if not isinstance(sink, Kafka):
        raise FlowError(f"{taker} takes kafka(topic, format), found {sink!r}", where=str(user_site()))
    if sink.start != EARLIEST:
        raise FlowError(f"{taker} has no start=, found {sink.start}", where=str(user_site()), way_out="leave it out")
    if sink.stop is not None:
        raise FlowError(f"{taker} has no stop=, found {sink.stop}", where=str(user_site()), way_out="leave it out")
    words = {"preload=": sink.preload, "compacted=": sink.compacted, "timestamps=": sink.timestamps is not None}
    if word := next((each for each, said in words.items() if said), None):
        raise FlowError(f"{taker} has no {word}, which is for sources", where=str(user_site()), way_out="leave it out")
    return KafkaSink(sink.topic, sink.format, sink.key)
