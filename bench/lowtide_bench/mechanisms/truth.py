"""The judge of all notices: it sees everything in one process, knows what is true, and when it became so."""

from __future__ import annotations

from collections.abc import Callable

from lowtide.errors import LowtideError
from lowtide_bench.tracking.script import START


class Early(LowtideError):
    """A notice came before it was true: the mechanism, or the bench's use of it, is wrong."""


class Truth:
    """The ticks that are over at each node.

    It is true of a node that nothing below a tick will come to its last level once all fronts have passed the tick, all
    levels before the last have processed everything below it, at all nodes, and the node's last level has, too.

    Args:
        nodes: Number of nodes.
        depth: Number of shuffles.
        clock: Returns now.
    """

    def __init__(self, nodes: int, depth: int, clock: Callable[[], float]) -> None:
        self.delays: list[float] = []
        """By tick and node: from the truth to the notice."""
        self.finished = 0
        """Records that the last level has processed."""
        self._clock, self._depth = clock, depth
        self._passed = [START] * nodes
        self._passed_at: dict[int, float] = {}
        """By tick: when the last front passed it."""
        self._before: dict[int, float] = {}
        """By tick: when a level before the last has last processed one of its records."""
        self._last: list[dict[int, float]] = [{} for _ in range(nodes)]
        """By node and tick: the same of its last level."""
        self._told = [START] * nodes
        self._most_told = START
        self._true_at = [0.0] * nodes
        """By node: when that which it was last told became true."""

    @property
    def least(self) -> int:
        """The smallest tick that a node has been told."""
        return min(self._told)

    def passed(self, front: int, tick: int) -> None:
        """Note that a front labels nothing below a tick any more."""
        now = self._clock()
        for each in range(self._passed[front] + 1, tick + 1):
            self._passed_at[each] = now
        self._passed[front] = tick

    def processed(self, node: int, level: int, tick: int) -> None:
        """Note a record that a node has processed.

        Raises:
            Early: a notice has said that there is none any more.
        """
        if level < self._depth:
            limit, times = self._most_told, self._before
        else:
            limit, times = self._told[node], self._last[node]
            self.finished += 1
        if tick < limit:
            raise Early(f"node {node} processes a record of tick {tick} at level {level}, after the notice of {limit}")
        times[tick] = self._clock()

    def told(self, node: int, tick: int) -> None:
        """Note a notice: nothing below a tick comes to the node's last level any more.

        Raises:
            Early: a front has not passed the tick.
        """
        now, late = self._clock(), min(self._passed)
        if tick > late:
            raise Early(f"node {node} was told {tick}, and a front has passed only {late}")
        true_at, last = self._true_at[node], self._last[node]
        for each in range(self._told[node], tick):
            # What is below `each + 1`: everything before, the front's word, and the records of `each` itself.
            true_at = max(true_at, self._passed_at[each + 1], self._before.get(each, 0.0), last.pop(each, 0.0))
            self.delays.append(now - true_at)
        self._true_at[node], self._told[node] = true_at, tick
        self._most_told = max(self._most_told, tick)
