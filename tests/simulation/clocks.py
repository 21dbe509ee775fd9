"""Steps that send what time alone brings (R6b): windows and timers, as far as the tracker can tell them from others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from .model import Model
from .tracking import Line

MAX_DUE = 3
"""Per clock."""
MOST_CHAINED = 2
"""How often what has gone out makes another one due."""


@dataclass(slots=True, eq=False)
class Clock:
    """One worker's step: it waits for the min time of one segment, and sends into another.

    Attributes:
        owner: Its number, in that segment's register and in the model.
        line: The worker's connection.
        waits: The segment whose min time it waits for.
        sends: The segment it sends into.
        due: What is due: (tick, how often that may make another one due), in order.
        restored: Whether its worker is there; until then it tells nothing, and what is due is of a snapshot.
    """

    owner: int
    line: Line
    waits: int
    sends: int
    due: list[tuple[int, int]] = field(default_factory=list)
    restored: bool = False


class Clocks:
    """All of one life.

    Args:
        rng: Chance.
        model: Told what is due.
        start: The life's first min time.
        capacity: Of the ack table, in ticks.
    """

    def __init__(self, rng: Random, model: Model, start: int, capacity: int) -> None:
        self._rng, self._model, self._capacity = rng, model, capacity
        self._start = start
        self.clocks: list[Clock] = []

    def draw(self, at: Mapping[int, Sequence[Line]], down: Mapping[int, Sequence[int]]) -> None:
        """Give some workers clocks, some of which have something due from the beginning: they are being restored."""
        rng = self._rng
        for waits, lines in at.items():
            # Who sends into a segment that it waits for would wait for itself.
            downstream = [sends for sends in down[waits] if sends not in self._model.above[waits]]
            if not downstream or rng.random() < 0.4:
                continue
            for line in rng.sample(list(lines), rng.randint(1, min(2, len(lines)))):
                clock = Clock(len(self.clocks), line, waits, rng.choice(downstream))
                clock.due = sorted((self._start + self._ahead(), 0) for _ in range(rng.choice([0, 0, 1, 2])))
                self.clocks.append(clock)
                self._note(clock)

    def register(self) -> dict[int, list[int]]:
        """Who may tell what is due, by segment."""
        register: dict[int, list[int]] = {}
        for clock in self.clocks:
            register.setdefault(clock.sends, []).append(clock.owner)
        return register

    def restore(self, clock: Clock) -> None:
        """A clock's worker is there: it tells what is due."""
        if not clock.restored:
            clock.restored = True
            self._tell(clock)

    def take(self, line: Line, segment: int, ticks: Iterable[int]) -> None:
        """A worker takes a frame: some of it makes something due, which is told before the frame is acked."""
        for clock in self.clocks:
            if clock.line is line and clock.waits == segment:
                self.restore(clock)
                if len(clock.due) < MAX_DUE and self._rng.random() < 0.5:
                    self._add(clock, min(ticks) + self._ahead(), MOST_CHAINED)

    def ready(self) -> list[Clock]:
        """Those that have something due which min time has passed, no further ahead than the table reaches."""
        return [
            clock for clock in self.clocks if clock.restored and clock.due and clock.due[0][0] < self._horizon(clock)
        ]

    def pop(self, clock: Clock) -> int:
        """What has been due first goes out now: at which tick."""
        tick, chained = clock.due.pop(0)
        if chained and self._rng.random() < 0.3:
            clock.due.append((tick + 1 + self._ahead(), chained - 1))
            clock.due.sort()
        return tick

    def sent(self, clock: Clock) -> None:
        """It has been sent, and folded: what is due next is told."""
        self._tell(clock)

    def _add(self, clock: Clock, tick: int, chained: int) -> None:
        clock.due.append((tick, chained))
        clock.due.sort()
        self._tell(clock)

    def _tell(self, clock: Clock) -> None:
        clock.line.local.due(clock.sends, clock.due[0][0] if clock.due else None, owner=clock.owner)
        self._note(clock)

    def _note(self, clock: Clock) -> None:
        """What is due counts as in the segment that it will be sent into."""
        labels = self._model.labels[clock.sends]
        if clock.due:
            labels[~clock.owner] = clock.due[0][0]
        else:
            labels.pop(~clock.owner, None)

    def _horizon(self, clock: Clock) -> int:
        local = clock.line.local
        return min(local.min_time(clock.waits), local.global_min + self._capacity)

    def _ahead(self) -> int:
        return self._rng.choice([0, 1, 1, 3, 10, 3 * self._capacity])
