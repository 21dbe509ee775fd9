"""The three ways in which nodes learn of progress, as a node sees them. No I/O.

A *tick* is a period between two notices. A node's notice is a tick: nothing below it will come to the node's last level
any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from lowtide_bench.mechanisms.asked import MARKERS, NOTHING, TRACKER
from lowtide_bench.tracking.script import START
from lowtide_bench.tracking.served import INCARNATION
from lowtide_tracker import LocalTracker, Notice

VALUE_BYTES = 8
"""Bytes that a frame gains by a value in the place of 0; a tick takes one more."""


class Mechanism(Protocol):
    """The progress of one node's part of the flow."""

    in_frames: int
    """Bytes that it has added to frames."""

    def sent(self, level: int, ticks: Collection[int]) -> tuple[int, Sequence[int]]:
        """Note a frame that goes to a level; return the value and the ticks of its head."""

    def processed(self, level: int, ticks: Sequence[int], value: int) -> None:
        """Note that a frame's records have been processed; what they caused is sent with this turn."""

    def passed(self, tick: int) -> None:
        """Note that the node's front labels nothing below a tick any more."""

    def marked(self, level: int, sender: int, tick: int) -> None:
        """Note a marker."""

    def markers(self) -> list[tuple[int, int]]:
        """Return the markers that follow the frames of this turn, as (level, tick); each goes to all nodes."""

    @property
    def notice(self) -> int:
        """The tick below which nothing will come to the node's last level any more."""


class Nothing:
    """No progress: the flow alone."""

    def __init__(self) -> None:
        self.in_frames = 0

    def sent(self, level: int, ticks: Collection[int]) -> tuple[int, Sequence[int]]:
        """Add nothing to a frame."""
        return 0, ()

    def processed(self, level: int, ticks: Sequence[int], value: int) -> None:
        """Do nothing."""

    def passed(self, tick: int) -> None:
        """Do nothing."""

    def marked(self, level: int, sender: int, tick: int) -> None:
        """Do nothing."""

    def markers(self) -> list[tuple[int, int]]:
        """Return none."""
        return []

    @property
    def notice(self) -> int:
        """The first tick, for good."""
        return START


class Tracked(Nothing):
    """The product's local tracker; its user carries flushes and notices."""

    def __init__(self, node: int, depth: int) -> None:
        super().__init__()
        self.local = LocalTracker(node, INCARNATION, start=START)
        self._node, self._depth = node, depth

    def sent(self, level: int, ticks: Collection[int]) -> tuple[int, Sequence[int]]:
        """Fold a new value as the frame's sender."""
        value = self.local.new_value()
        self.local.fold(level, ticks, value)
        self.in_frames += VALUE_BYTES + (VALUE_BYTES + 1) * len(ticks)
        return value, sorted(ticks)

    def processed(self, level: int, ticks: Sequence[int], value: int) -> None:
        """Fold the frame's value as its receiver."""
        self.local.fold(level, ticks, value)

    def passed(self, tick: int) -> None:
        """Let the front's heartbeat go with the next flush."""
        self.local.heartbeat(self._node, tick)

    def hear(self, notice: Notice) -> None:
        """Take a notice of the tracker."""
        self.local.hear(notice)

    @property
    def notice(self) -> int:
        """The min time of the last level's segment."""
        return self.local.min_time(self._depth)


class Markers(Nothing):
    """Markers on every channel, as punctuations and watermarks are: a level passes on what all its inputs have said.

    A node sends a marker to all nodes of a level once its front, or all channels into the level before, have passed a
    tick, after the frames of that turn.
    """

    def __init__(self, nodes: int, depth: int) -> None:
        super().__init__()
        self._depth = depth
        self._channels = {level: [START] * nodes for level in range(1, depth + 1)}
        """By level: the newest tick of each channel into it."""
        self._aligned = dict.fromkeys(range(depth + 1), START)
        """By level: the tick that all channels into it have passed; of level 0 the front's."""
        self._sent = dict(self._aligned)

    def passed(self, tick: int) -> None:
        """Let markers to level 1 follow."""
        self._aligned[0] = tick

    def marked(self, level: int, sender: int, tick: int) -> None:
        """Note a channel's tick, and the level's once no other channel is behind."""
        channels = self._channels[level]
        before, channels[sender] = channels[sender], tick
        if before == self._aligned[level]:
            self._aligned[level] = min(channels)

    def markers(self) -> list[tuple[int, int]]:
        """Return markers from each level that has moved to the next."""
        found = []
        for level in range(self._depth):
            tick = self._aligned[level]
            if tick > self._sent[level]:
                self._sent[level] = tick
                found.append((level + 1, tick))
        return found

    @property
    def notice(self) -> int:
        """The tick that all channels into the last level have passed."""
        return self._aligned[self._depth]


def mechanism_of(name: str, node: int, nodes: int, depth: int) -> Mechanism:
    """Return a node's mechanism by its name."""
    made: dict[str, Callable[[], Mechanism]] = {
        NOTHING: Nothing,
        MARKERS: lambda: Markers(nodes, depth),
        TRACKER: lambda: Tracked(node, depth),
    }
    return made[name]()
