"""Lowtide's tracking protocol: what of a stream has been processed, for good.

The core (`Tracker`, `LocalTracker` and the values between them) does no I/O. `README.md` of this distribution is the
protocol's normative description.
"""

from lowtide_tracker.ack_values import AckValues
from lowtide_tracker.errors import (
    ConnectionLost,
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
    UnknownSegment,
    UnknownWorker,
)
from lowtide_tracker.floors import Floor, Floors
from lowtide_tracker.graph import Graph
from lowtide_tracker.handshake import ClientHandshake, HandshakeError, ServerHandshake
from lowtide_tracker.holder import Holder
from lowtide_tracker.local_tracker import LocalTracker
from lowtide_tracker.messages import Absolute, Flush, Notice
from lowtide_tracker.table import Table
from lowtide_tracker.tracker import Tracker

__all__ = [
    "Absolute",
    "AckValues",
    "ClientHandshake",
    "ConnectionLost",
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
    "Notice",
    "NoticeGap",
    "ProtocolError",
    "Refused",
    "ServerHandshake",
    "StillRebuilding",
    "Table",
    "TableFull",
    "TimeWentBack",
    "Tracker",
    "TrackerError",
    "UnknownFront",
    "UnknownSegment",
    "UnknownWorker",
]
