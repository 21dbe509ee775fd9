"""Lowtide's tracking protocol: what of a stream has been processed, for good.

The core (`Tracker`, `LocalTracker` and the values between them) does no I/O. `README.md` of this distribution is the
protocol's normative description. It needs msgspec and nothing else. Names are loaded on use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowtide_tracker.ack_values import AckValues
    from lowtide_tracker.client import TrackerClient
    from lowtide_tracker.errors import (
        ConnectionLost,
        DuePassed,
        FlushGap,
        FrontIsClosed,
        GraphError,
        HeartbeatWentBack,
        LifeEnded,
        NoticeGap,
        ProtocolError,
        Refused,
        StillRebuilding,
        TableFull,
        TimeWentBack,
        TrackerError,
        UnknownFront,
        UnknownOwner,
        UnknownSegment,
        UnknownWorker,
    )
    from lowtide_tracker.floors import Floor, Floors
    from lowtide_tracker.graph import Graph
    from lowtide_tracker.handshake import ClientHandshake, HandshakeError, ServerHandshake
    from lowtide_tracker.holder import Holder
    from lowtide_tracker.local_tracker import LocalTracker
    from lowtide_tracker.messages import Absolute, Flush, Notice, Request
    from lowtide_tracker.min_times import MinTimes
    from lowtide_tracker.server import TrackerServer
    from lowtide_tracker.shards.merge import Merge
    from lowtide_tracker.shards.merge_server import MergeServer
    from lowtide_tracker.shards.shard import Shard
    from lowtide_tracker.shards.shard_server import ShardServer
    from lowtide_tracker.shards.sharded_client import ShardedClient
    from lowtide_tracker.table import Table
    from lowtide_tracker.tracker import Tracker
    from lowtide_tracker.traffic import Traffic

__all__ = [
    "Absolute",
    "AckValues",
    "ClientHandshake",
    "ConnectionLost",
    "DuePassed",
    "Floor",
    "Floors",
    "Flush",
    "FlushGap",
    "FrontIsClosed",
    "Graph",
    "GraphError",
    "HandshakeError",
    "HeartbeatWentBack",
    "Holder",
    "LifeEnded",
    "LocalTracker",
    "Merge",
    "MergeServer",
    "MinTimes",
    "Notice",
    "NoticeGap",
    "ProtocolError",
    "Refused",
    "Request",
    "ServerHandshake",
    "Shard",
    "ShardServer",
    "ShardedClient",
    "StillRebuilding",
    "Table",
    "TableFull",
    "TimeWentBack",
    "Tracker",
    "TrackerClient",
    "TrackerError",
    "TrackerServer",
    "Traffic",
    "UnknownFront",
    "UnknownOwner",
    "UnknownSegment",
    "UnknownWorker",
]

_HOME = {
    "AckValues": "ack_values",
    "TrackerClient": "client",
    "ConnectionLost": "errors",
    "DuePassed": "errors",
    "FlushGap": "errors",
    "FrontIsClosed": "errors",
    "GraphError": "errors",
    "HeartbeatWentBack": "errors",
    "LifeEnded": "errors",
    "NoticeGap": "errors",
    "ProtocolError": "errors",
    "Refused": "errors",
    "StillRebuilding": "errors",
    "TableFull": "errors",
    "TimeWentBack": "errors",
    "TrackerError": "errors",
    "UnknownFront": "errors",
    "UnknownOwner": "errors",
    "UnknownSegment": "errors",
    "UnknownWorker": "errors",
    "Floor": "floors",
    "Floors": "floors",
    "Graph": "graph",
    "ClientHandshake": "handshake",
    "HandshakeError": "handshake",
    "ServerHandshake": "handshake",
    "Holder": "holder",
    "LocalTracker": "local_tracker",
    "Merge": "shards.merge",
    "MergeServer": "shards.merge_server",
    "Absolute": "messages",
    "Flush": "messages",
    "Notice": "messages",
    "Request": "messages",
    "MinTimes": "min_times",
    "TrackerServer": "server",
    "Shard": "shards.shard",
    "ShardServer": "shards.shard_server",
    "ShardedClient": "shards.sharded_client",
    "Table": "table",
    "Tracker": "tracker",
    "Traffic": "traffic",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value
