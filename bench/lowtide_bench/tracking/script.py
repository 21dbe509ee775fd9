"""Flushes of simulated workers: pairs of a sender and a receiver that fold the same values, round after round.

Worker 2p is a sender with a front of its own, worker 2p + 1 the receiver of everything it sends. A round of both closes
every tick of the round, so min time reaches the next round's first tick once all workers have flushed the round, and
not before: it is known beforehand which flush lets min time move.
"""

from __future__ import annotations

from lowtide_tracker import Flush, Graph
from lowtide_tracker.ack_values import AckValues
from lowtide_tracker.fields import Ack

START = 883_661_550_000
"""The first tick: as large as current ones with a slack of 2 ms, since large numbers take more bytes."""
SEGMENTS_OF_WORKER = 2
"""A worker acks received records in its own segment, and sent ones in the next."""


class Script:
    """The flushes of some workers.

    Args:
        first: The number of the first worker; even.
        count: Number of workers; even.
        depth: Segments, each fed by the one before.
        entries: Acks of each flush.
    """

    def __init__(self, first: int, count: int, *, depth: int, entries: int) -> None:
        self.workers = range(first, first + count)
        self.entries = entries
        self.ticks = ticks_of_round(depth, entries)
        self._values = {pair: AckValues(2 * pair, 1) for pair in range(first // 2, (first + count) // 2)}
        self._segments = {
            pair: [1 + (pair + step) % depth for step in range(min(depth, SEGMENTS_OF_WORKER))] for pair in self._values
        }
        self._acks: dict[int, tuple[int, tuple[Ack, ...]]] = {}
        """For each pair: the newest round requested, and its acks."""

    def opens_at(self, round_number: int) -> int:
        """Return the first tick of a round, counted from 0; min time stays there until all have flushed it."""
        return START + round_number * self.ticks

    def flush(self, worker: int, round_number: int) -> Flush:
        """Return a worker's flush of a round; call it for the rounds in order, for both workers of a pair."""
        pair = worker // 2
        known, acks = self._acks.get(pair, (-1, ()))
        if known != round_number:
            acks = self._made(pair, round_number)
            self._acks[pair] = (round_number, acks)
        beats = () if worker % 2 else ((pair, self.opens_at(round_number + 1)),)
        return Flush(worker, round_number + 1, acks, beats)

    def _made(self, pair: int, round_number: int) -> tuple[Ack, ...]:
        value, base = self._values[pair].next, self.opens_at(round_number)
        segments, ticks = self._segments[pair], self.ticks
        places = [(segment, base + tick) for tick in reversed(range(ticks)) for segment in segments]
        return tuple((segment, tick, value()) for segment, tick in places[: self.entries])


def chain(depth: int) -> dict[int, list[int]]:
    """Return the graph of a flow with this many exchanges, one after another."""
    graph: dict[int, list[int]] = {1: []}
    graph |= {segment: [segment - 1] for segment in range(2, depth + 1)}
    Graph(graph)
    return graph


def fronts(workers: int) -> dict[int, int]:
    """Return one front for each sender, with its opening floor."""
    return dict.fromkeys(range(workers // 2), START)


def ticks_of_round(depth: int, entries: int) -> int:
    """Return the number of ticks that the entries of a flush take: one entry of each segment at each tick."""
    return -(-entries // min(depth, SEGMENTS_OF_WORKER))
