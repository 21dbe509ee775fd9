"""Process of all nodes, with TCP connections between each two and, under the tracker, one of each to the tracker.

Started by `lowtide_bench.child.Child`; its task and its result are those of `lowtide_bench.mechanisms.asked`.
"""

from __future__ import annotations

import select
import socket
import time
from collections import Counter, deque
from contextlib import suppress
from itertools import combinations

import msgspec

from lowtide.errors import LowtideError
from lowtide.process.descriptors import allow_descriptors
from lowtide.process.interpreter import set_up_collector
from lowtide_bench.child import Parent
from lowtide_bench.mechanisms.asked import NOTHING, Said, Task
from lowtide_bench.mechanisms.mechanism import Mechanism, Tracked, mechanism_of
from lowtide_bench.mechanisms.node import KEYS, Node, expected
from lowtide_bench.mechanisms.truth import Truth
from lowtide_bench.tracking.script import START
from lowtide_bench.tracking.served import INCARNATION
from lowtide_tracker import TrackerClient
from lowtide_tracker.message_reader import MessageReader

TURN_S = 0.005
"""Time between two turns of the sources."""
RECEIVE_BYTES = 1 << 16
LATE_LIMIT_S = 60.0
"""Longest wait for the last records and notices."""
FACTOR = 7_919
"""A prime: the keys of records that enter."""


class Wrong(LowtideError):
    """The last levels have not counted what entered: the bench is wrong."""


class Line:
    """One end of a connection between two nodes."""

    def __init__(self, node: int, end: socket.socket) -> None:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setblocking(False)
        self.node = node
        """Whose end it is."""
        self.socket = end
        self.reader = MessageReader()
        self._waiting: list[bytes] = []

    def put(self, data: bytes) -> None:
        """Send these bytes with the others of this turn."""
        self._waiting.append(data)

    def send(self) -> bool:
        """Send what waits, as far as the kernel takes it; return whether all of it went."""
        data, sent = b"".join(self._waiting), 0
        self._waiting.clear()
        with suppress(BlockingIOError):
            sent = self.socket.send(data)
        if sent < len(data):
            self._waiting.append(data[sent:])
            return False
        return True


class Nodes:
    """All nodes, in one loop."""

    def __init__(self, task: Task) -> None:
        self._task = task
        setting = self._setting = task.setting
        self._truth = Truth(setting.nodes, setting.depth, time.monotonic)
        self._own: deque[tuple[int, bytes]] = deque()
        """What nodes send to themselves, as (node, data)."""
        self._own_reader = MessageReader()
        self._lines: list[dict[int, Line]] = [{} for _ in range(setting.nodes)]
        self._filled: set[Line] = set()
        """Those with something to send."""
        self._by_descriptor: dict[int, Line] = {}
        self._clients: dict[int, TrackerClient] = {}
        self._tracked: list[Tracked] = []
        self._asks: dict[int, int] = {}
        """Nodes by the descriptors of their connections to the tracker."""
        self._poll = select.epoll()
        self._connect_nodes()
        self._nodes = []
        for number in range(setting.nodes):
            mechanism = mechanism_of(task.mechanism, number, setting.nodes, setting.depth)
            if isinstance(mechanism, Tracked):
                self._tracked.append(mechanism)
                self._connect(number, mechanism)
            self._nodes.append(self._node(number, mechanism))
        self._made: Counter[int] = Counter()
        self._unflushed: set[int] = set()
        """Nodes that have had a turn since their last flush."""
        self._next_flush = [0.0] * setting.nodes
        self._behind: list[float] = []

    def run(self) -> Said:
        """Let records enter for the time asked for, and return the result once everything is over and told."""
        task, setting, truth = self._task, self._setting, self._truth
        before = self._traffic()
        turns = round(task.seconds / TURN_S)
        cpu, began = time.process_time(), time.monotonic()
        turn, goal = 0, self._tick(turns * TURN_S) + 1
        last_made = False
        while not last_made or not self._over(goal):
            now = time.monotonic()
            if not last_made and now >= began + turn * TURN_S:
                self._behind.append(now - began - turn * TURN_S)
                last_made = turn == turns
                self._enter(turn, goal if last_made else self._tick(turn * TURN_S))
                turn += 1
            elif now > began + task.seconds + LATE_LIMIT_S:
                raise Wrong(f"{truth.finished} of {self._made.total()} records left; told {truth.least} of {goal}")
            self._carry(max(0.0, began + turn * TURN_S - time.monotonic()) if not last_made else TURN_S)
        ended, cpu = time.monotonic(), time.process_time() - cpu
        counts = sum((node.counts for node in self._nodes), Counter[int]())
        if counts != expected(self._made, setting.depth):
            raise Wrong("the last levels have not counted what entered")
        nodes, (messages, sizes) = self._nodes, self._traffic()
        return Said(
            records=truth.finished,
            seconds=ended - began,
            cpu_s=cpu,
            frames=sum(node.frames for node in nodes),
            frame_bytes=sum(node.frame_bytes - node.mechanism.in_frames for node in nodes),
            messages=sum(node.markers for node in nodes) + messages - before[0],
            bytes=sum(node.marker_bytes + node.mechanism.in_frames for node in nodes) + sizes - before[1],
            delays_ms=[1_000 * each for each in truth.delays],
            behind_ms=[1_000 * each for each in self._behind],
        )

    def _traffic(self) -> tuple[int, int]:
        """Return the messages and bytes to and from the tracker so far."""
        found = [client.traffic for client in self._clients.values()]
        messages = sum(each.messages_in + each.messages_out for each in found)
        return messages, sum(each.bytes_in + each.bytes_out for each in found)

    def _tick(self, at_s: float) -> int:
        return START + int(1_000 * at_s + 1e-6) // self._setting.period

    def _over(self, goal: int) -> bool:
        if self._truth.finished < self._made.total():
            return False
        return self._task.mechanism == NOTHING or self._truth.least >= goal

    def _enter(self, turn: int, tick: int) -> None:
        """Let the records of a turn enter, at all nodes in turn, and the fronts pass what is below the tick."""
        setting = self._setting
        made = self._made.total()
        for node in self._nodes:
            node.passed(tick)
        for number in range(made, round(setting.rate * turn * TURN_S)):
            key = number * FACTOR % KEYS
            self._made[key] += 1
            self._nodes[number % setting.nodes].emit(tick, key)
        for node in self._nodes:
            self._end_turn(node)

    def _end_turn(self, node: Node) -> None:
        node.end_turn()
        self._send()
        if self._tracked:
            self._unflushed.add(node.number)

    def _send(self) -> None:
        if self._filled:
            self._filled = {line for line in self._filled if not line.send()}

    def _carry(self, wait_s: float) -> None:
        """Carry everything that has come; wait for the first of it no longer than this."""
        touched = set()
        for descriptor, _ in self._poll.poll(0.0 if self._own else min(wait_s, self._wait_s())):
            if descriptor in self._asks:
                self._hear_tracker(self._asks[descriptor])
                continue
            line = self._by_descriptor[descriptor]
            for kind, payload in line.reader.feed(line.socket.recv(RECEIVE_BYTES)):
                self._nodes[line.node].hear(kind, payload)
            touched.add(line.node)
        for _ in range(len(self._own)):
            number, data = self._own.popleft()
            self._nodes[number].hear(*self._own_reader.feed(data)[0])
            touched.add(number)
        for number in touched:
            self._end_turn(self._nodes[number])
        self._flush_due()
        self._send()

    def _wait_s(self) -> float:
        """Return the time until a flush is due; without one, that of a turn."""
        due = [self._next_flush[number] for number in self._unflushed]
        return max(0.0, min(due) - time.monotonic()) if due else TURN_S

    def _flush_due(self) -> None:
        now = time.monotonic()
        for number in [each for each in self._unflushed if now >= self._next_flush[each]]:
            self._unflushed.remove(number)
            tracked = self._tracked[number]
            flush = tracked.local.flush()
            if flush is not None:
                self._clients[number].send_flush(flush)
                self._next_flush[number] = now + self._setting.flush / 1_000

    def _hear_tracker(self, number: int) -> None:
        client, tracked = self._clients[number], self._tracked[number]
        for notice in client.receive():
            tracked.hear(notice)
        self._nodes[number].look()

    def _node(self, number: int, mechanism: Mechanism) -> Node:
        lines, own = self._lines[number], self._own

        def post(target: int, data: bytes) -> None:
            if target == number:
                own.append((number, data))
            else:
                lines[target].put(data)
                self._filled.add(lines[target])

        return Node(
            number,
            nodes=self._setting.nodes,
            depth=self._setting.depth,
            mechanism=mechanism,
            truth=self._truth,
            post=post,
        )

    def _connect(self, number: int, tracked: Tracked) -> None:
        client = TrackerClient(
            self._task.address,
            secret=bytes.fromhex(self._task.secret),
            incarnation=INCARNATION,
            local=tracked.local,
            name=f"node {number}",
        )
        client.connect()
        self._clients[number] = client
        self._asks[client.fileno()] = number
        self._poll.register(client.fileno(), select.EPOLLIN)

    def _connect_nodes(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for one, other in combinations(range(self._setting.nodes), 2):
                for node, peer, end in (
                    (one, other, socket.create_connection(listener.getsockname())),
                    (other, one, listener.accept()[0]),
                ):
                    line = self._lines[node][peer] = Line(node, end)
                    self._by_descriptor[end.fileno()] = line
                    self._poll.register(end.fileno(), select.EPOLLIN)


def main() -> None:
    """Connect, report that, wait for the start, run and report the result."""
    parent = Parent()
    allow_descriptors()
    nodes = Nodes(msgspec.convert(parent.task, Task))
    set_up_collector()
    parent.say(connected=True)
    while "start" not in parent.orders:
        time.sleep(0.001)
    parent.say(**msgspec.to_builtins(nodes.run()))
    parent.wait()


if __name__ == "__main__":
    main()
