"""Sources and sinks as a flow names them: frozen values, no connection and no I/O.

Where the broker is, and how to log in, is configuration (the `[kafka]` table), not part of a flow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from lowtide.errors import FlowError
from lowtide.flow.formats.bounds import EARLIEST, Bound, StartAt, StopAt, start_of, stop_of
from lowtide.flow.formats.formats import Format
from lowtide.flow.site import user_site

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kafka(Generic[T]):
    """A topic and its format, before the flow reads or writes it."""

    topic: str
    format: Format[T]
    key: str | None = None
    start: Bound = EARLIEST
    stop: Bound | None = None
    preload: bool = False
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A topic that a flow reads; each of its partitions is one front.

    Attributes:
        topic: The topic.
        format: How its messages become records.
        start: Where the job begins to read it.
        preload: True if the records there at the job's first start count as known from the beginning.
        compacted: True if the topic may be compacted.
    """

    topic: str
    format: Format[object]
    start: Bound = EARLIEST
    stop: Bound | None = None
    preload: bool = False
    compacted: bool = False

    def __str__(self) -> str:
        start = "" if self.start == EARLIEST else f" from {self.start} on"
        stop = "" if self.stop is None else f" to {self.stop}"
        words = f"{', preloaded' if self.preload else ''}{', compacted' if self.compacted else ''}"
        return f'kafka topic "{self.topic}" as {self.format}{start}{stop}{words}'


@dataclass(frozen=True, slots=True)
class KafkaSink:
    """A topic that a flow writes; `key` names the column that becomes the message's key, None for no key."""

    topic: str
    format: Format[object]
    key: str | None

    @property
    def key_column(self) -> str | None:
        """The column of the records that becomes the message's key: `key`, or the one marked so."""
        if self.key is not None:
            return self.key
        from lowtide.flow.schema.columns import columns_of

        return columns_of(self.format.record).key

    def __str__(self) -> str:
        key = f', key "{self.key}"' if self.key is not None else ""
        return f'kafka topic "{self.topic}" as {self.format}{key}'


def kafka(
    topic: str,
    format: Format[T],  # noqa: A002 - reads best so
    *,
    key: str | None = None,
    start: StartAt = "earliest",
    stop: StopAt | None = None,
    preload: bool = False,
    compacted: bool = False,
) -> Kafka[T]:
    """Name a Kafka topic to read from or to write to.

    Args:
        topic: The topic's name.
        format: How a message's value becomes a record and back: `json(Type)` or `raw()`.
        key: For `write` only: the column whose value becomes the message's key (str as UTF-8, bytes as they are, int
            in decimal digits). Records of `raw()` bring their own key, and so do those of a dataclass with a field that
            is marked `lt.Key()`.
        start: For `read` only: where the job's first start begins to read; later ones go on from where it was. All
            that is there, what comes from now on, what the log has stamped from a moment on, or offsets by partition.
            Partitions that come later are read from their beginning.
        stop: For `read` only: where it ends, decided at the job's first start: what is there then ("now"), what the log
            stamped before a moment, or offsets by partition. A job all of whose sources end, ends itself.
        preload: For `read` of a table's records only: what is in the topic at the job's first start stands before all
            other records, so that each of them sees it, whenever it was written.
        compacted: For `read` of a table's records only: the topic may have cleanup.policy=compact. Its
            min.compaction.lag.ms has to be at least twice [snapshots] max_commit_age_s.

    Example:
        >>> source = lt.kafka("orders", lt.json(Order), start="latest")
        >>> sink = lt.kafka("totals", lt.json(Total), key="user")
        >>> source.topic, sink.key
        ('orders', 'user')
    """
    if isinstance(format, type) or not all(hasattr(type(format), word) for word in ("record", "decode", "writable")):
        kind = format.__name__ if isinstance(format, type) else repr(format)
        way_out = f"name the format of its messages: lt.kafka({topic!r}, lt.json({kind}))"
        raise FlowError(
            f"kafka takes a format, found {kind}",
            where=str(user_site()),
            way_out=way_out if isinstance(format, type) else "write lt.json(Type), lt.avro(Type) or lt.raw()",
        )
    return Kafka(topic, format, key, start_of(start), stop_of(stop), preload, compacted)
