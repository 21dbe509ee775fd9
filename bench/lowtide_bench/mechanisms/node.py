"""A node: a front, and its part of every level of the flow. The same under each mechanism; no I/O.

A level counts its records by key and passes each on under another key, over a shuffle from all nodes to all nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from lowtide_bench.mechanisms.mechanism import Mechanism
from lowtide_bench.mechanisms.truth import Truth
from lowtide_bench.mechanisms.wire import FRAME, Batch, Record, frame, marker, opened, opened_marker, order_key, tick_of

KEYS = 1_009
"""A prime, so that the keys of the next level are a permutation of those of this one."""
VALUE = b"v" * 32
Post = Callable[[int, bytes], None]
"""Send bytes to a node."""


def next_key(key: int, level: int) -> int:
    """Return the key under which a level passes on a record."""
    return (31 * key + level) % KEYS


class Node:
    """One node.

    Args:
        number: Its number; also its front's.
        nodes: Number of all.
        depth: Number of shuffles.
        mechanism: Its progress.
        truth: Judges what it does and hears.
        post: Sends bytes to a node, in order; also to itself.
    """

    def __init__(self, number: int, *, nodes: int, depth: int, mechanism: Mechanism, truth: Truth, post: Post) -> None:
        self.number = number
        self.mechanism = mechanism
        self.counts: Counter[int] = Counter()
        """Of the last level, by key."""
        self.frames = self.frame_bytes = self.markers = self.marker_bytes = 0
        """What it has sent to other nodes."""
        self.depth = depth
        self._nodes = nodes
        self._truth, self._post = truth, post
        self._states: list[Counter[int]] = [*(Counter[int]() for _ in range(depth)), self.counts]
        self._out: dict[tuple[int, int], Batch] = {}
        self._sequence = self._frame_number = 0
        self._heard = mechanism.notice

    def emit(self, tick: int, key: int) -> None:
        """Label a record of the node's front and send it on its way."""
        self._sequence += 1
        self._pass_on(1, order_key(tick, self.number, self._sequence), tick, Record(key, VALUE))

    def passed(self, tick: int) -> None:
        """Label nothing below a tick any more."""
        self._truth.passed(self.number, tick)
        self.mechanism.passed(tick)

    def hear(self, kind: int, payload: bytes) -> None:
        """Process a message of a node."""
        if kind != FRAME:
            self.mechanism.marked(*opened_marker(payload))
            return
        found = opened(payload, self.depth)
        level, state, last = found.vertex, self._states[found.vertex], found.vertex == self.depth
        for at, record in zip(found.ats, found.rows, strict=True):
            tick = tick_of(at)
            state[record.key] += 1
            self._truth.processed(self.number, level, tick)
            if not last:
                self._pass_on(level + 1, at, tick, Record(next_key(record.key, level), record.value))
        self.mechanism.processed(level, found.ticks, found.value)

    def end_turn(self) -> None:
        """Send frames and then markers, and take the notice if there is a new one."""
        for (level, target), batch in self._out.items():
            value, ticks = self.mechanism.sent(level, batch.ticks)
            self._frame_number += 1
            data = frame(level, self.number, self._frame_number, batch, value, ticks)
            if target != self.number:
                self.frames += 1
                self.frame_bytes += len(data)
            self._post(target, data)
        self._out.clear()
        for level, tick in self.mechanism.markers():
            data = marker(level, self.number, tick)
            self.markers += self._nodes - 1
            self.marker_bytes += len(data) * (self._nodes - 1)
            for target in range(self._nodes):
                self._post(target, data)
        self.look()

    def look(self) -> None:
        """Report the mechanism's notice to the judge if it is a new one."""
        notice = self.mechanism.notice
        if notice > self._heard:
            self._heard = notice
            self._truth.told(self.number, notice)

    def _pass_on(self, level: int, at: bytes, tick: int, record: Record) -> None:
        place = (level, record.key % self._nodes)
        batch = self._out.get(place)
        if batch is None:
            batch = self._out[place] = Batch.empty()
        batch.add(at, tick, record)


def expected(made: Counter[int], depth: int) -> Counter[int]:
    """Return what the last levels of all nodes count of these records, computed without nodes."""
    found: Counter[int] = Counter()
    for key, times in made.items():
        last = key
        for level in range(1, depth):
            last = next_key(last, level)
        found[last] += times
    return found
