"""Sources and sinks as a flow names them: frozen values, no connection and no I/O.

Where the broker is, and how to log in, is configuration (the `[kafka]` table), not part of a flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, Protocol, TypeGuard, TypeVar, runtime_checkable

from lowtide.errors import FlowError
from lowtide.flow.formats.bounds import EARLIEST, Bound, StartAt, StopAt, start_of, stop_of
from lowtide.flow.formats.formats import Format, RawFormat
from lowtide.flow.formats.writable import Writable
from lowtide.flow.site import user_site

T = TypeVar("T")
KAFKA = "kafka"
"""The name of Kafka as a store."""
Dater = Literal["producer", "broker"]
"""The one that sets the timestamps of a topic's records."""
_KEY_KINDS = {"str", "int", "bytes", "UUID"}


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
    timestamps: Dater | None = None


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A topic that a flow reads; each of its partitions is one front.

    Attributes:
        topic: The topic.
        format: How its messages become records.
        start: Where the job begins to read it.
        preload: True if the records there at the job's first start count as known from the beginning.
        compacted: True if the topic may be compacted.
        timestamps: Who dates its records, as the flow says; None if it does not.
    """

    topic: str
    format: Format[object]
    start: Bound = EARLIEST
    stop: Bound | None = None
    preload: bool = False
    compacted: bool = False
    timestamps: Dater | None = None

    def __str__(self) -> str:
        start = "" if self.start == EARLIEST else f" from {self.start} on"
        stop = "" if self.stop is None else f" to {self.stop}"
        words = f"{', preloaded' if self.preload else ''}{', compacted' if self.compacted else ''}"
        dated = "" if self.timestamps is None else f", dated by the {self.timestamps}"
        return f'kafka topic "{self.topic}" as {self.format}{start}{stop}{words}{dated}'


class Sink(Protocol):
    """Destination of a flow's records: a frozen value that pickles with the plan, and opens nothing.

    `str()` of it completes "-> ..." in `lowtide check --explain`.
    """

    @property
    def store(self) -> str:
        """The store's name, as "kafka" or "postgres:default": sinks of one store share its connection and claim."""

    @property
    def place(self) -> str:
        """Place in the store, as `topic "orders"`; two sinks of a flow have different ones, see `Overlapping` too."""

    @property
    def record(self) -> type:
        """The dataclass of the records that it takes."""

    @property
    def form(self) -> str:
        """Form of the records there, as "json(Order)": for errors."""

    @property
    def key_column(self) -> str | None:
        """The column that tells which records belong together: a message's key, a table's; None for none."""

    @property
    def by_key(self) -> bool:
        """True if all records of one key have to come through one lane, as later ones replace earlier ones."""

    @property
    def writable(self) -> Writable:
        """Records that can be written."""

    def faults(self) -> Sequence[str]:
        """Return why the flow cannot write there, as far as the flow alone tells; for `lowtide check`."""


@runtime_checkable
class Overlapping(Protocol):
    """Addition to `Sink` for a sink whose place may have another name, or lie within another one.

    A sink without it shares a place with those of its store that have the same `place`.

    Example:
        >>> @dataclass(frozen=True)
        ... class Folder:
        ...     path: str
        ...     def meets(self, other: object) -> bool:
        ...         return isinstance(other, Folder) and other.path.startswith(self.path.rstrip("/") + "/")
        >>> isinstance(Folder("/lake"), Overlapping), Folder("/lake").meets(Folder("/lake/old"))
        (True, True)
    """

    def meets(self, other: Sink, /) -> bool:
        """Return whether a record of one may come to lie where one of the other does.

        Args:
            other: A sink of the same store, perhaps of another class. Each of two is asked about the other, and it is
                enough if one says so.
        """


class StagedSink(Sink, Protocol):
    """A sink whose store has no transactions: its records go to a topic of the job's own, and on from there.

    Attributes:
        staged: True.
    """

    staged: ClassVar[bool]

    @property
    def mark_every_ms(self) -> int:
        """Distance in log time between the moments up to which lanes say that they are complete, also silent ones."""


def mark_ticks(sink: StagedSink, slack_ms: int) -> int:
    """Return the distance of a sink's marks in ticks of `slack_ms`."""
    return max(1, sink.mark_every_ms // slack_ms)


def last_visible_tick(sink: StagedSink, slack_ms: int, end: int) -> int:
    """Return the last tick below which a sink's carrier says that all is visible.

    Args:
        sink: It may have a `visible_every_ms`, as files of one period become visible together.
        slack_ms: Length of a tick.
        end: The end of time, up to which lanes are marked.
    """
    every = mark_ticks(sink, slack_ms)
    last_ms = end // every * every * slack_ms
    return (last_ms - last_ms % getattr(sink, "visible_every_ms", 1)) // slack_ms


def is_staged(sink: Sink) -> TypeGuard[StagedSink]:
    """Return whether a sink's records are staged."""
    return bool(getattr(sink, "staged", False))


@dataclass(frozen=True, slots=True)
class KafkaSink:
    """A topic that a flow writes; `key` names the column that becomes the message's key, None for no key."""

    topic: str
    format: Format[object]
    key: str | None
    store: ClassVar[str] = KAFKA
    by_key: ClassVar[bool] = False

    @property
    def place(self) -> str:
        """The topic."""
        return f'topic "{self.topic}"'

    @property
    def record(self) -> type:
        """The dataclass of the format."""
        return self.format.record

    @property
    def form(self) -> str:
        """The format."""
        return str(self.format)

    @property
    def writable(self) -> Writable:
        """Records that the format can write."""
        return self.format.writable

    @property
    def key_column(self) -> str | None:
        """The column of the records that becomes the message's key: `key`, or the one marked so."""
        from lowtide.flow.schema.columns import columns_of

        return self.key if self.key is not None else columns_of(self.format.record).key

    @property
    def message_column(self) -> str | None:
        """The column whose value becomes the message's key: `key_column`, or the key that `Raw` brings."""
        return "key" if isinstance(self.format, RawFormat) else self.key_column

    def faults(self) -> Sequence[str]:
        """Return what is wrong with the key."""
        from lowtide.flow.schema.columns import columns_of
        from lowtide.flow.schema.schema import schema_of

        if self.key is None:
            return []
        if isinstance(self.format, RawFormat):
            return ["raw() records bring their own key; leave out key="]
        if (marked := columns_of(self.record).key) is not None:
            name = self.record.__qualname__
            return [f"{name}.{marked} is already the key, by lt.Key(); leave out key={self.key!r}"]
        kind = schema_of(self.record).kinds.get(self.key)
        if kind is not None and kind.name.removesuffix(" | None") not in _KEY_KINDS:
            return [f"a message's key must be str, int, bytes or UUID, but {self.key!r} is {kind.name}"]
        return []

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
    timestamps: Dater | None = None,
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
        timestamps: For `read` only: who dates the records, and so whose clock log time follows, "producer" or "broker".
            A topic whose message.timestamp.type says otherwise is refused. Left out, the topic decides.

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
    if timestamps not in (None, "producer", "broker"):
        raise FlowError(
            f"timestamps= is {timestamps!r}",
            where=str(user_site()),
            way_out='write "producer" or "broker"; or leave it out: the topic decides',
        )
    return Kafka(topic, format, key, start_of(start), stop_of(stop), preload, compacted, timestamps)
