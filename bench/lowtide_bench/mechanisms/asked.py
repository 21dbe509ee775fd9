"""Settings of `lowtide bench tracking`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

NOTHING, MARKERS, TRACKER = "nothing", "markers", "tracker"
MECHANISMS = (NOTHING, MARKERS, TRACKER)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Setting of one run.

    Attributes:
        nodes: Number of nodes; each has a front and a part of every level.
        depth: Number of shuffles.
        period: Ms between two notices, the length of a tick: every node is to learn of the end of each.
        rate: Records per second of all nodes together.
        flush: Least ms between two flushes of a node to the tracker.
    """

    nodes: int
    depth: int
    period: int
    rate: int
    flush: int


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Settings of the measurement.

    Attributes:
        seconds: Duration of each run.
        nodes: Numbers of nodes, for cost by nodes; so for the others.
        depths: Numbers of shuffles.
        periods: Ms between two notices.
        rates: Records per second of all nodes together.
        flushes: Ms of `Setting.flush`, of the tracker alone.
        usual: The values of all but the one that changes.
    """

    seconds: float
    nodes: Sequence[int]
    depths: Sequence[int]
    periods: Sequence[int]
    rates: Sequence[int]
    flushes: Sequence[int]
    usual: Setting


class Task(Struct, frozen=True, kw_only=True):
    """Task of the process that has all nodes.

    Attributes:
        mechanism: One of `MECHANISMS`.
        setting: The flow, its load and its notices.
        seconds: Duration.
        address: The tracker's.
        secret: The life's, in hexadecimal.
    """

    mechanism: str
    setting: Setting
    seconds: float
    address: str = ""
    secret: str = ""


class Said(Struct, frozen=True, kw_only=True):
    """Result of a run.

    Attributes:
        records: Records that have left the last level.
        seconds: From the first record to the last notice.
        cpu_s: CPU time of the process.
        frames: Frames between nodes.
        frame_bytes: Their bytes, without what the mechanism adds to them.
        messages: Messages that only the mechanism needs: markers, or those to and from the tracker.
        bytes: Bytes that only the mechanism needs, also those within frames.
        delays_ms: By tick and node: from the moment at which it was true that the node has nothing of the tick to
            come, until it was told.
        behind_ms: By turn of the sources: how late it came.
    """

    records: int
    seconds: float
    cpu_s: float
    frames: int
    frame_bytes: int
    messages: int
    bytes: int
    delays_ms: list[float] = []
    behind_ms: list[float] = []
