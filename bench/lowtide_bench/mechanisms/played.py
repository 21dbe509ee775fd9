"""Nodes and a tracker in one process, whose messages are carried step by step: for laws and counts, not for times."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from random import Random

from lowtide_bench.mechanisms.mechanism import Tracked, mechanism_of
from lowtide_bench.mechanisms.node import Node
from lowtide_bench.mechanisms.truth import Truth
from lowtide_bench.tracking.script import START, chain
from lowtide_tracker import Flush, Graph, Notice, Tracker
from lowtide_tracker.message_reader import MessageReader
from lowtide_tracker.wire import decode, encode

CAPACITY_TICKS = 1 << 20


class Played:
    """A flow over nodes whose every message waits until it is carried.

    Args:
        mechanism: One of `MECHANISMS`.
        nodes: Number of nodes.
        depth: Number of shuffles.
    """

    def __init__(self, mechanism: str, *, nodes: int, depth: int) -> None:
        self.now = 0.0
        self.tick = START
        """The tick that all fronts are at."""
        self.truth = Truth(nodes, depth, lambda: self.now)
        self.made: Counter[int] = Counter()
        """Records that entered, by key."""
        self.flushes = self.notices = 0
        """Messages to the tracker, and from it to nodes."""
        self.tracker = Tracker(
            Graph(chain(depth)), dict.fromkeys(range(nodes), START), start=START, capacity_ticks=CAPACITY_TICKS
        )
        self._channels: dict[tuple[int, int], deque[bytes]] = {}
        self._told: list[deque[bytes]] = [deque() for _ in range(nodes)]
        self._trackers = {}
        self.nodes = []
        for number in range(nodes):
            progress = mechanism_of(mechanism, number, nodes, depth)
            if isinstance(progress, Tracked):
                self._trackers[number] = progress
            self.nodes.append(
                Node(number, nodes=nodes, depth=depth, mechanism=progress, truth=self.truth, post=self._post(number))
            )

    def emit(self, node: int, key: int) -> None:
        """Let a record of the current tick enter."""
        self.made[key] += 1
        self.nodes[node].emit(self.tick, key)

    def next_tick(self) -> None:
        """Let all fronts pass the current tick; `pass_on` carries it."""
        self.tick += 1
        for node in self.nodes:
            node.passed(self.tick)

    def carry_all(self) -> None:
        """Carry everything, in turns of all nodes, until nothing waits."""
        while True:
            for node in self.nodes:
                node.end_turn()
                self._flush(node.number)
            if not self._channels and not any(self._told):
                return
            for place in list(self._channels):
                while place in self._channels:
                    self._carry(place)
            for node in self.nodes:
                while self._told[node.number]:
                    self._tell(node.number)

    def step(self, chance: Random) -> None:
        """Carry one message, or end one node's turn, or flush it."""
        node = chance.randrange(len(self.nodes))
        kind = chance.randrange(8)
        self.now += 1
        if kind == 0:
            self.nodes[node].end_turn()
        elif kind == 1:
            # A turn ends before its flush: what a frame caused goes with its ack, or before.
            self.nodes[node].end_turn()
            self._flush(node)
        elif kind == 2:
            if self._told[node]:
                self._tell(node)
        elif self._channels:
            self._carry(chance.choice(sorted(self._channels)))

    @property
    def counts(self) -> Counter[int]:
        """The records that the last levels of all nodes have counted, by key."""
        return sum((node.counts for node in self.nodes), Counter[int]())

    def _post(self, sender: int) -> Callable[[int, bytes], None]:
        def post(target: int, data: bytes) -> None:
            self._channels.setdefault((sender, target), deque()).append(data)

        return post

    def _carry(self, place: tuple[int, int]) -> None:
        """Have a node hear the next message of a channel."""
        waiting = self._channels[place]
        self.nodes[place[1]].hear(*_message(waiting.popleft()))
        if not waiting:
            del self._channels[place]

    def _flush(self, node: int) -> None:
        progress = self._trackers.get(node)
        flush = None if progress is None else progress.local.flush()
        if flush is None:
            return
        self.flushes += 1
        message = decode(*_message(encode(flush)))
        assert isinstance(message, Flush)
        for notice in self.tracker.receive(message):
            for told in self._told:
                told.append(encode(notice))

    def _tell(self, node: int) -> None:
        """Have a node hear the tracker's next notice."""
        self.notices += 1
        message = decode(*_message(self._told[node].popleft()))
        assert isinstance(message, Notice)
        self._trackers[node].hear(message)
        self._trackers[node].local.applied(self.tracker.applied(node))
        self.nodes[node].look()


def _message(data: bytes) -> tuple[int, bytes]:
    """Return (kind, payload) of the bytes of one message."""
    [message] = MessageReader().feed(data)
    return message
