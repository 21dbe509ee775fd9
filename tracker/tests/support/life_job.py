"""A job of four workers on a life's servers, held against one tracker that gets each flush as soon as it is made."""

import os
import random
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hanging import HANGS_S
from sharded_life import CAPACITY, INCARNATION, mend, wait

from lowtide_tracker import ConnectionLost, Floor, Graph, LocalTracker, Tracker

GRAPH = {1: [], 2: [1], 3: [2]}
DUES = {3: [2]}
FRONTS = (7, 8)


def min_times(local: LocalTracker) -> dict[int, int]:
    return dict(local.min_times.items())


@dataclass
class Frame:
    """One on its way."""

    segment: int
    tick: int
    value: int
    to: int


@dataclass
class Job:
    """Two fronts, a level that passes on now or later, one that has something due, and a sink; and one tracker.

    Min times that anybody hears are never above the one tracker's, which gets each flush as soon as it is made.
    """

    life: Any
    """Has `workers`, makes a `worker`'s client, and can `cut` one of its own lines."""
    rng: random.Random
    labels: dict[int, int] = field(default_factory=lambda: dict.fromkeys(FRONTS, 0))
    frames: list[Frame] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    due: int | None = None
    offset: int = 0

    def __post_init__(self) -> None:
        self.tracker = Tracker(Graph(GRAPH), dict.fromkeys(FRONTS, 0), start=0, capacity_ticks=CAPACITY, dues=DUES)
        self.locals = [LocalTracker(worker, INCARNATION, start=0) for worker in range(4)]
        self.life.workers = [local.worker for local in self.locals]
        self.clients = [self.life.worker(local) for local in self.locals]
        self.locals[2].due(3, None, owner=2)

    def send(self, sender: int, segment: int, tick: int, to: int) -> None:
        value = self.locals[sender].new_value()
        self.locals[sender].fold(segment, [tick], value)
        self.frames.append(Frame(segment, tick, value, to))

    def front_goes_on(self) -> None:
        front = self.rng.choice(FRONTS)
        local = self.locals[FRONTS.index(front)]
        self.labels[front] += self.rng.choice([0, 1, 1, 3, 17])
        tick = self.labels[front]
        if self.rng.random() < 0.7:
            self.send(FRONTS.index(front), 1, tick, 2)
        if self.rng.random() < 0.3:
            self.offset += 1
            local.floor(Floor(front, self.offset, tick))
        local.heartbeat(front, tick)

    def frame_arrives(self) -> None:
        if not self.frames:
            return
        frame = self.frames.pop(self.rng.randrange(len(self.frames)))
        local = self.locals[frame.to]
        if frame.segment == 1:
            what = self.rng.random()
            if what < 0.4:
                self.send(2, 2, frame.tick, 2)
            elif what < 0.7 and local.hold(2, frame.tick):
                self.held.append(frame.tick)
        elif frame.segment == 2:
            if self.rng.random() < 0.5:
                self.send(2, 3, frame.tick, 3)
            else:
                self.due = frame.tick + 5 if self.due is None else min(self.due, frame.tick + 5)
                local.due(3, self.due, owner=2)
        local.fold(frame.segment, [frame.tick], frame.value)

    def what_waited_goes_on(self) -> None:
        local = self.locals[2]
        for tick in [tick for tick in self.held if tick < local.min_time(1)]:
            self.held.remove(tick)
            self.send(2, 2, tick, 2)
            local.release(2, tick)
        if self.due is not None and local.min_time(2) > self.due:
            self.send(2, 3, self.due, 3)
            self.due = None
            local.due(3, None, owner=2)

    def step(self) -> None:
        self.rng.choice([self.front_goes_on, self.frame_arrives, self.frame_arrives, self.what_waited_goes_on])()
        self.turn(self.rng.randrange(4))

    def turn(self, worker: int) -> None:
        client, local = self.clients[worker], self.locals[worker]
        with suppress(ConnectionLost):
            for notice in client.receive():
                local.hear(notice)
        if self.rng.random() < 0.2:
            mend(client)
        flush = local.flush()
        if flush is not None:
            self.tracker.receive(flush)
            with suppress(ConnectionLost):
                client.send_flush(flush)
        for segment, tick in local.min_times.items():
            assert tick <= self.tracker.min_time(segment), f"segment {segment}"

    def cut(self) -> None:
        """A line between the life's servers breaks, or one of a worker's, as the network breaks it."""
        if self.rng.random() < 0.5:
            self.life.cut(self.rng)
            return
        client = self.rng.choice(self.clients)
        line = self.rng.choice(getattr(client, "lines", (client,)))
        if line.connected:
            with socket.socket(fileno=os.dup(line.fileno())) as connection, suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """All arrives; then everybody has heard what one tracker says."""
        until = time.monotonic() + HANGS_S
        while self.frames or self.held or self.due is not None:
            assert time.monotonic() < until
            for worker, front in enumerate(FRONTS):
                self.labels[front] += 1
                self.locals[worker].heartbeat(front, self.labels[front])
            self.frame_arrives()
            self.what_waited_goes_on()
            for client in self.clients:
                mend(client)
            for worker in range(4):
                self.turn(worker)
        last = max(self.labels.values()) + 5
        for worker, front in enumerate(FRONTS):
            self.locals[worker].heartbeat(front, last)

        def settled() -> bool:
            for worker, client in enumerate(self.clients):
                mend(client)
                self.turn(worker)
            return all(min_times(local) == self.tracker.min_times() for local in self.locals)

        wait(settled)
        assert set(self.tracker.min_times().values()) == {last}
        wait(lambda: settled() and not any(local.unacknowledged() for local in self.locals))
        assert self.life.faults == []
