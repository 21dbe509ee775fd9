"""A tracker and relays, each connection in order and all against one another in any order; relays that die."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from lowtide_tracker import Absolute, Flush
from lowtide_tracker.messages import Attach, Sum
from lowtide_tracker.relay import Relay

from .tracking import Line, Tracking


@dataclass(slots=True, eq=False)
class Station:
    """One relay's process, with its connection to the tracker."""

    relay: Relay = field(default_factory=Relay)
    up: deque[Attach | Absolute | Sum] = field(default_factory=deque)
    down: deque[tuple[Line, int, int, bool] | int] = field(default_factory=deque)
    """Answers: (line, which of its connections, applied, report) to an `Attach`; how many sums were applied."""
    attaching: deque[tuple[Line, int]] = field(default_factory=deque)
    summed: int = 0
    waiting: deque[Attach | Sum] = field(default_factory=deque)
    """What the tracker has, and sees to once it is rebuilt."""


class RelayedTracking(Tracking):
    """One life's tracker, to which some workers connect by relays."""

    def __init__(self, *args: Any, relays: int, **named: Any) -> None:
        super().__init__(*args, **named)
        self.stations = [Station() for _ in range(relays)]
        self.by: dict[int, int] = {}
        """Per worker: its relay, if it has one."""
        self.connections: Counter[int] = Counter()
        """Per worker: how many it has made to relays."""
        self.ghosts: list[Station] = []
        """Dead relays of which the tracker has not read all yet."""
        self.calm = False
        """Whether all that can arrive does so at once."""

    def station(self, line: Line) -> Station | None:
        """A worker's relay."""
        worker = line.local.worker
        if worker not in self.by:
            # Some have none; a worker's first look decides.
            self.by[worker] = self.rng.randrange(-1, len(self.stations))
            if self.by[worker] >= 0:
                self.stations[self.by[worker]].relay.attach(worker, applied=0)
        return None if self.by[worker] < 0 else self.stations[self.by[worker]]

    # -- steps -----------------------------------------------------------------------------------------------------

    def arrive(self, line: Line) -> Flush | Absolute:
        """What a worker has sent first arrives at its relay, or at the tracker."""
        station = self.station(line)
        if station is None:
            message = super().arrive(line)
            self.apply()
            if self.calm:
                self.settle()
            return message
        message = line.up.popleft()
        if isinstance(message, Flush):
            station.relay.take(message)
        else:
            station.relay.report(message)
            self._forward(station, message)
        line.answer = station.relay.applied(line.local.worker)
        if self.calm:
            self.settle()
            line.answer = station.relay.applied(line.local.worker)
        return message

    def sum(self, station: Station) -> bool:
        """A relay sends what it has gathered."""
        made = station.relay.sum()
        if made is not None:
            station.up.append(made)
        return made is not None

    def reach(self, station: Station) -> bool:
        """What a relay has sent first reaches the tracker."""
        if not station.up:
            return False
        self.touched = True
        match station.up.popleft():
            case Attach(worker) if worker in self.tracker.missing:
                self._attach(station, worker)
            case Absolute() as report:
                missing = bool(self.tracker.missing)
                notices = self.tracker.receive(report)
                self.applied_floors += report.floors
                self.announce(notices, whole=missing)
            case other:
                station.waiting.append(other)
        self.apply()
        return True

    def apply(self) -> None:
        """The tracker applies the sums that it has, unless it is being rebuilt."""
        for station in (*self.stations, *self.ghosts):
            while station.waiting and not self.tracker.missing and station in (*self.stations, *self.ghosts):
                made = station.waiting.popleft()
                if isinstance(made, Attach):
                    self._attach(station, made.worker)
                    continue
                notices = self.tracker.receive(made)
                self.applied_floors += made.floors
                self.announce(notices, whole=False)
                station.summed += 1
                station.down.append(station.summed)

    def answer(self, station: Station) -> bool:
        """What the tracker has answered a relay first reaches it."""
        if not station.down:
            return False
        answer = station.down.popleft()
        if isinstance(answer, int):
            for worker in station.relay.summed(answer):
                self.lines[worker].answer = station.relay.applied(worker)
            return True
        line, connection, applied, report = answer
        if connection == self.connections[line.local.worker]:
            station.relay.attach(line.local.worker, applied=applied)
            self._begin(line, applied, report=report)
        return True

    def connect(self, line: Line) -> None:
        """A worker's connection was lost; it connects again, by its relay if it has one, which takes its time."""
        station = self.station(line)
        if station is None:
            super().connect(line)
            return
        line.up.clear()
        line.down.clear()
        line.connected = False
        self.connections[line.local.worker] += 1
        station.attaching.append((line, self.connections[line.local.worker]))
        self._forward(station, Attach(line.local.worker, ""))
        if self.calm:
            self.settle()

    def kill(self, station: Station) -> None:
        """A relay's process dies; what it had sent may be read until one of its workers comes by another."""
        place = self.stations.index(station)
        left: deque[Attach | Absolute | Sum] = deque(each for each in station.up if not isinstance(each, Attach))
        waiting: deque[Attach | Sum] = deque(each for each in station.waiting if not isinstance(each, Attach))
        self.ghosts.append(Station(station.relay, left, waiting=waiting))
        self.stations[place] = Station()
        for line in self.lines:
            if self.station(line) is self.stations[place]:
                line.connected = False
                line.up.clear()
                line.down.clear()

    def crash(self) -> None:
        """The tracker's process dies, and with it all relays' connections: they begin anew."""
        super().crash()
        self.stations = [Station() for _ in self.stations]
        self.ghosts.clear()

    def settle(self) -> None:
        """All between relays and tracker arrives."""
        busy = True
        while busy:
            busy = False
            for station in self.stations:
                busy = any([self.sum(station), self.reach(station), self.answer(station), busy])

    # -- parts -----------------------------------------------------------------------------------------------------

    def _forward(self, station: Station, message: Attach | Absolute) -> None:
        self.sum(station)
        station.up.append(message)

    def _attach(self, station: Station, worker: int) -> None:
        """A relay speaks for a worker: the tracker reads no more of another one that did."""
        line, connection = next(each for each in station.attaching if each[0].local.worker == worker)
        station.attaching.remove((line, connection))
        station.down.append((line, connection, self.tracker.applied(worker), worker in self.tracker.missing))
        self.ghosts = [each for each in self.ghosts if worker not in each.relay._taken]

    def _begin(self, line: Line, applied: int, *, report: bool) -> None:
        line.connected = True
        if report:
            line.up.append(line.local.absolute())
            return
        line.local.applied(applied)
        line.up.extend(line.local.unacknowledged())
        self.subscribe(line)
