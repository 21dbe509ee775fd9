"""Process of simulated workers, each with a connection to the tracker: at full speed or at a pace.

Started by `lowtide_bench.child.Child`; its task and its result are those of `lowtide_bench.tracking.program`.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from lowtide.process.descriptors import allow_descriptors
from lowtide_bench.child import Parent
from lowtide_bench.tracking.program import Swarm, SwarmSaid
from lowtide_bench.tracking.script import Script
from lowtide_bench.tracking.served import INCARNATION
from lowtide_tracker import Flush, LocalTracker, ShardedClient, TrackerClient
from lowtide_tracker.message_reader import MessageReader
from lowtide_tracker.messages import Notice
from lowtide_tracker.shards.sharding import Splitter
from lowtide_tracker.wire import decode, encode

RECEIVE_BYTES = 1 << 16
SPREAD = 0.8
"""Share of a round in which workers flush, at random moments: the last one's notice comes in the rest."""
LATE_LIMIT_S = 30.0
"""Longest wait for the last notices."""
LOOK_S = 0.01
SO_TIMESTAMPNS = 35
"""Linux: have the kernel give the arrival time of received data; `socket` has no name for it."""
_TIMESPEC = struct.Struct("@qq")


class Worker:
    """One connection, whose handshake `TrackerClient` has made; from then on it carries raw bytes."""

    def __init__(self, swarm: Swarm, number: int) -> None:
        self.number = number
        self.rounds = 0
        """Flushes that were sent, or are in `rest`."""
        self.rest = b""
        """Bytes that the kernel has not taken yet."""
        self._clients = _clients(swarm, number)
        for client in self._clients:
            client.connect()
        self.socket, *shards = [socket.socket(fileno=client.fileno()) for client in self._clients]
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.shards = tuple(shards)
        """Connections to shards; if there are any, flushes go there."""
        self._splitter = Splitter(len(shards)) if shards else None
        self.reader = MessageReader()

    def send(self, data: bytes) -> bool:
        """Send the rest and these bytes; return whether all of it went."""
        self.rest += data
        with suppress(BlockingIOError):
            self.rest = self.rest[self.socket.send(self.rest) :]
        return not self.rest

    def flush(self, flush: Flush) -> None:
        """Send a flush, or its parts, for which the kernel has room."""
        if self._splitter is None:
            self.send(encode(flush))
            return
        for line, part in zip(self.shards, self._splitter.split(flush), strict=True):
            line.sendall(encode(part))

    def receive(self) -> tuple[bytes, int]:
        """Return the bytes that have come, empty if none have, and when the last of them came, in ns since 1970."""
        try:
            data, said, _, _ = self.socket.recvmsg(RECEIVE_BYTES, socket.CMSG_SPACE(_TIMESPEC.size))
        except BlockingIOError:
            return b"", 0
        if not data:
            raise ConnectionResetError(f"the tracker has closed the connection of worker {self.number}")
        if not said:  # The kernel begins with it a little after the request.
            return data, time.time_ns()
        seconds, ns = _TIMESPEC.unpack(said[0][2])
        return data, seconds * 1_000_000_000 + ns

    def global_min(self, data: bytes) -> int | None:
        """Return the largest global min time in the received notices."""
        found = [decode(kind, payload) for kind, payload in self.reader.feed(data)]
        return max((message.global_min for message in found if isinstance(message, Notice)), default=None)


def _clients(swarm: Swarm, number: int) -> list[TrackerClient]:
    """Return the connections of a worker, not made yet; the first receives notices."""
    secret, local = bytes.fromhex(swarm.secret), LocalTracker(number, INCARNATION)
    name = f"simulated worker {number}"
    if swarm.shards:
        sharded = ShardedClient(
            swarm.address, swarm.shards, secret=secret, incarnation=INCARNATION, local=local, name=name
        )
        return list(sharded.lines)
    return [TrackerClient(swarm.address, secret=secret, incarnation=INCARNATION, local=local, name=name)]


class Swarmed:
    """All workers of one process."""

    def __init__(self, swarm: Swarm) -> None:
        self._swarm = swarm
        self._script = Script(swarm.first, swarm.workers, depth=swarm.depth, entries=swarm.entries)
        self._workers = [Worker(swarm, number) for number in self._script.workers]
        self._by_descriptor = {worker.socket.fileno(): worker for worker in self._workers}
        self._poll = select.epoll()
        for descriptor in self._by_descriptor:
            self._poll.register(descriptor, select.EPOLLIN)
        self._of_shards = {line.fileno(): line for worker in self._workers for line in worker.shards}
        for descriptor in self._of_shards:
            self._poll.register(descriptor, select.EPOLLIN)

    def flood(self) -> SwarmSaid:
        """Send flush after flush of one worker after another, no further ahead of min time than the window.

        At the end it waits for what is under way, which counts with its time.
        """
        swarm, script, ear = self._swarm, self._script, self._workers[0]
        started = now = time.monotonic()
        sent = lowest = passed = 0
        last: int | None = None
        """The last round, once the time is over."""
        while last is None or passed < last:
            now = time.monotonic()
            if last is None and now - started >= swarm.seconds:
                last = max(worker.rounds for worker in self._workers)
            _look_at(now - started, swarm, passed, last or 0)
            moved = False
            allowed = passed + swarm.window if last is None else last
            for worker in self._workers:
                if worker.rest:
                    moved = worker.send(b"") or moved
                elif worker.rounds == lowest < allowed:
                    worker.send(encode(script.flush(worker.number, worker.rounds)))
                    worker.rounds += 1
                    sent += 1
                    moved = True
            lowest = min(worker.rounds for worker in self._workers)
            for descriptor, _ in self._poll.poll(0.0 if moved else LOOK_S):
                worker = self._by_descriptor[descriptor]
                data, _ = worker.receive()
                if worker is ear:
                    passed = max(passed, self._rounds(worker.global_min(data)))
        return SwarmSaid(flushes=sent, seconds=now - started, rounds=passed)

    def paced(self) -> SwarmSaid:
        """Let each worker flush once per round, and time the notice of min time at each from the round's last flush."""
        swarm, script = self._swarm, self._script
        last_sent: dict[int, int] = {}
        arrived: list[int] = []
        read: list[int] = []
        heard = dict.fromkeys(self._workers, 0)
        due = self._due()
        following: tuple[float, Worker, int] | None = next(due)
        started = now = time.monotonic()
        total = round(swarm.seconds * swarm.rate)
        left = dict.fromkeys(range(total), len(self._workers))
        sent = 0
        while following is not None or min(heard.values()) < total:
            now = time.monotonic()
            _look_at(now - started, swarm, min(heard.values()), total)
            while following is not None and started + following[0] <= now:
                _, worker, number = following
                flush = script.flush(worker.number, number)
                left[number] -= 1
                if not left[number]:
                    last_sent[number] = time.time_ns()
                worker.flush(flush)
                sent += 1
                following = next(due, None)
                if self._poll.poll(0):
                    break
            wait_s = LOOK_S if following is None else max(0.0, started + following[0] - now)
            for worker, data, arrived_ns, read_ns in self._came(min(wait_s, LOOK_S)):
                reached = self._rounds(worker.global_min(data))
                for number in range(heard[worker], reached):
                    arrived.append(arrived_ns - last_sent[number])
                    read.append(read_ns - last_sent[number])
                heard[worker] = max(heard[worker], reached)
        return SwarmSaid(
            flushes=sent,
            seconds=now - started,
            rounds=min(heard.values()),
            arrived_ms=[wait / 1e6 for wait in arrived],
            read_ms=[wait / 1e6 for wait in read],
        )

    def _came(self, wait_s: float) -> list[tuple[Worker, bytes, int, int]]:
        """Read all that has come, with times of arrival and reading; decode it later, so that nothing waits for it."""
        came = []
        ready = self._poll.poll(wait_s)
        while ready:
            for descriptor, _ in ready:
                if descriptor in self._of_shards:
                    self._of_shards[descriptor].recv(RECEIVE_BYTES)  # It only reports what was applied.
                    continue
                worker = self._by_descriptor[descriptor]
                came.append((worker, *worker.receive(), time.time_ns()))
            ready = self._poll.poll(0)
        return came

    def _rounds(self, tick: int | None) -> int:
        """Return the number of rounds that a global min time has passed."""
        return 0 if tick is None else (tick - self._script.opens_at(0)) // self._script.ticks

    def _due(self) -> Iterator[tuple[float, Worker, int]]:
        """Return (seconds from the start, worker, round), in order."""
        swarm, chance = self._swarm, random.Random(self._swarm.seed)  # noqa: S311 - moments, no secrets
        for number in range(round(swarm.seconds * swarm.rate)):
            moments = [(chance.random() * SPREAD, worker.number) for worker in self._workers]
            for moment, worker in sorted(moments):
                yield (number + moment) / swarm.rate, self._workers[worker - swarm.first], number


def _look_at(took_s: float, swarm: Swarm, passed: int, total: int) -> None:
    """Fail if min time does not reach the end."""
    if took_s > swarm.seconds + LATE_LIMIT_S:
        raise TimeoutError(f"after {took_s:.0f} s min time has passed {passed} rounds of {total}")


def main() -> None:
    """Connect, report that, wait for the start, send and report the result."""
    parent = Parent()
    swarm = msgspec.convert(parent.task, Swarm)
    allow_descriptors()
    swarmed = Swarmed(swarm)
    parent.say(connected=swarm.workers)
    while "start" not in parent.orders:
        time.sleep(0.001)
    said = swarmed.paced() if swarm.rate else swarmed.flood()
    parent.say(**msgspec.to_builtins(said))
    parent.wait()


if __name__ == "__main__":
    main()
