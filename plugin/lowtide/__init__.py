"""Lowtide: Python streaming flows inside Spark's Real-Time Mode.

    import lowtide as lt

Importing this package loads none of Spark, Arrow, numpy or a service's client: they are loaded on use.
"""

from typing import TYPE_CHECKING, Any

from lowtide.api import Flow, Subject, begun, committed, delivered, done, main, min_time, state, subscribe
from lowtide.calls.inside import CallRefused, call_key
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
from lowtide.flow.steps.ask import CallFailed
from lowtide.flow.steps.clocks import Moment
from lowtide.flow.steps.windows import Window
from lowtide.flow.time.durations import days, hours, millis, minutes, seconds
from lowtide.flow.time.event_time import event_time
from lowtide.flow.words.joins import Joined, Table
from lowtide.flow.words.streams import Broadcast, KeyedStream, Stream
from lowtide.flow.words.substreams import Substream
from lowtide.flow.words.window_words import calendar, session, sliding, tumbling
from lowtide.flow.words.windowed import Windowed
from lowtide.version import __version__

if TYPE_CHECKING:
    from lowtide.flow.schema.raw_record import Raw
    from lowtide.sinks.files.endpoint import files
    from lowtide.sinks.files.formats import json_lines, parquet
    from lowtide.sinks.postgres.endpoint import postgres
    from lowtide.sinks.puts.elasticsearch import elasticsearch
    from lowtide.sinks.puts.endpoint import puts
    from lowtide.sinks.puts.http import http
    from lowtide.sinks.puts.redis import redis
    from lowtide.sinks.tables.endpoint import delta, iceberg
    from lowtide.status.key_state import KeyState
    from lowtide_snapshots.job.news import News

__all__ = [
    "Aggregate",
    "Alias",
    "Broadcast",
    "CallFailed",
    "CallRefused",
    "ConfError",
    "Epoch",
    "Flow",
    "FlowError",
    "Header",
    "Joined",
    "Key",
    "KeyState",
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
    "Substream",
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
    "begun",
    "calendar",
    "call_key",
    "committed",
    "days",
    "delivered",
    "delta",
    "done",
    "elasticsearch",
    "event_time",
    "files",
    "hours",
    "http",
    "iceberg",
    "json",
    "json_lines",
    "kafka",
    "main",
    "millis",
    "min_time",
    "minutes",
    "parquet",
    "postgres",
    "protobuf",
    "puts",
    "raw",
    "redis",
    "seconds",
    "session",
    "sliding",
    "stamped",
    "state",
    "subscribe",
    "tumbling",
]


_ON_USE = {
    "KeyState": "lowtide.status.key_state",
    "News": "lowtide_snapshots.job.news",
    "Raw": "lowtide.flow.schema.raw_record",
    "delta": "lowtide.sinks.tables.endpoint",
    "elasticsearch": "lowtide.sinks.puts.elasticsearch",
    "files": "lowtide.sinks.files.endpoint",
    "http": "lowtide.sinks.puts.http",
    "iceberg": "lowtide.sinks.tables.endpoint",
    "json_lines": "lowtide.sinks.files.formats",
    "parquet": "lowtide.sinks.files.formats",
    "postgres": "lowtide.sinks.postgres.endpoint",
    "puts": "lowtide.sinks.puts.endpoint",
    "redis": "lowtide.sinks.puts.redis",
}
"""Names that are loaded on use, and their modules."""


def __getattr__(name: str) -> Any:
    """Load a name on its first use."""
    if (module := _ON_USE.get(name)) is not None:
        from importlib import import_module

        return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
