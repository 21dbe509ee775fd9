"""Lowtide: Python streaming flows inside Spark's Real-Time Mode.

    import lowtide as lt

Importing this package loads none of Spark, Arrow, numpy or a service's client: they are loaded on use.
"""

from typing import TYPE_CHECKING, Any

from lowtide.api import Flow, Subject, committed, delivered, done, main, min_time, subscribe
from lowtide.errors import (
    ConfError,
    FlowError,
    LifeEnded,
    LowtideError,
    RecordRefused,
    ServiceUnavailable,
    SnapshotDamaged,
    SnapshotFailed,
    UserCodeFailed,
)
from lowtide.flow.formats.avro import avro
from lowtide.flow.formats.endpoints import kafka
from lowtide.flow.formats.formats import json, raw
from lowtide.flow.formats.protobuf import protobuf
from lowtide.flow.schema.markers import (
    Alias,
    Epoch,
    Header,
    Key,
    Offset,
    Partition,
    Precision,
    Timestamp,
    Tombstone,
    Topic,
)
from lowtide.flow.schema.message import Message
from lowtide.flow.schema.stamped import Stamped, stamped
from lowtide.flow.steps import agg
from lowtide.flow.steps.agg import Aggregate
from lowtide.flow.steps.clocks import Moment
from lowtide.flow.steps.windows import Window
from lowtide.flow.time.durations import days, hours, millis, minutes, seconds
from lowtide.flow.time.event_time import event_time
from lowtide.flow.words.joins import Joined, Table
from lowtide.flow.words.streams import Broadcast, KeyedStream, Stream
from lowtide.flow.words.window_words import calendar, session, sliding, tumbling
from lowtide.flow.words.windowed import Windowed
from lowtide.version import __version__

if TYPE_CHECKING:
    from lowtide.flow.schema.raw_record import Raw
    from lowtide_snapshots.job.news import News

__all__ = [
    "Aggregate",
    "Alias",
    "Broadcast",
    "ConfError",
    "Epoch",
    "Flow",
    "FlowError",
    "Header",
    "Joined",
    "Key",
    "KeyedStream",
    "LifeEnded",
    "LowtideError",
    "Message",
    "Moment",
    "News",
    "Offset",
    "Partition",
    "Precision",
    "Raw",
    "RecordRefused",
    "ServiceUnavailable",
    "SnapshotDamaged",
    "SnapshotFailed",
    "Stamped",
    "Stream",
    "Subject",
    "Table",
    "Timestamp",
    "Tombstone",
    "Topic",
    "UserCodeFailed",
    "Window",
    "Windowed",
    "__version__",
    "agg",
    "avro",
    "calendar",
    "committed",
    "days",
    "delivered",
    "done",
    "event_time",
    "hours",
    "json",
    "kafka",
    "main",
    "millis",
    "min_time",
    "minutes",
    "protobuf",
    "raw",
    "seconds",
    "session",
    "sliding",
    "stamped",
    "subscribe",
    "tumbling",
]


def __getattr__(name: str) -> Any:
    """`Raw` and `News`, loaded on use."""
    if name == "Raw":
        from lowtide.flow.schema.raw_record import Raw

        return Raw
    if name == "News":
        from lowtide_snapshots.job.news import News

        return News
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
