"""The protocol's world with relays between workers and tracker, which gather, are killed and begin anew (R5, R10)."""

from __future__ import annotations

from typing import ClassVar

from .fleet import Front
from .protocol import ProtocolWorld
from .relayed import RelayedTracking, Station
from .tracking import Line
from .world import Step, Trace


class RelayWorld(ProtocolWorld):
    """One to three relays; a worker comes by one of them, or by none."""

    name: ClassVar[str] = "relays"
    tracking: RelayedTracking

    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        super().__init__(seed, trace, loss=False)

    def tracked(self, register: dict[int, int], start: int, dues: dict[int, list[int]]) -> RelayedTracking:
        """The life's tracker, and relays."""
        return RelayedTracking(
            self.rng,
            self.inbound,
            register,
            relays=self.rng.choice([1, 1, 2, 3]),
            start=start,
            capacity=self.capacity,
            dues=dues,
        )

    def chances(self) -> list[tuple[int, str, Step]]:
        """The protocol's steps, and those between relays and tracker."""
        return [
            *super().chances(),
            (25, "sum", lambda: self.tracking.sum(self.one())),
            (60, "reach", lambda: self.tracking.reach(self.one())),
            (60, "answer", lambda: self.tracking.answer(self.one())),
            (4, "ghost", self.ghost),
            (1, "kill", self.kill),
        ]

    def one(self) -> Station:
        """Any relay."""
        return self.rng.choice(self.tracking.stations)

    def ghost(self) -> bool:
        """The tracker reads what a dead relay had sent."""
        ghosts = self.tracking.ghosts
        return bool(ghosts) and self.tracking.reach(self.rng.choice(ghosts))

    def kill(self) -> bool:
        """A relay's process dies."""
        self.tracking.kill(self.one())
        if self.trace:
            self.say("relay", "died; another one takes its place")
        return True

    def connect(self) -> bool:
        """A worker's connection is lost and recreated, perhaps before the one before was welcomed."""
        lost = [line for line in self.tracking.lines if not line.connected]
        if self.rng.random() < (0.5 if lost else 0.9):
            return False
        line = self.rng.choice(lost or self.tracking.lines)
        self.tracking.connect(line)
        if self.trace:
            self.say(f"worker {line.local.worker}", "connects again")
        return True

    def close(self, front: Front) -> bool:
        """A front closes, once the tracker has its owner's last flush."""
        tracking = self.tracking
        tracking.calm = True
        tracking.settle()
        closed = super().close(front)
        tracking.calm = False
        return closed

    def drain(self) -> None:
        """No fault comes any more."""
        tracking = self.tracking
        tracking.ghosts.clear()
        tracking.calm = True
        tracking.settle()
        super().drain()

    def take(self, line: Line) -> None:
        """A relay takes a flush."""
        message = self.tracking.arrive(line)
        if self.trace:
            acks = [(segment, tick) for segment, tick, _ in message.acks]
            what = f"flush {message.number} of worker {message.worker}: {acks} {message.heartbeats}"
            self.say("relay" if self.tracking.station(line) else "tracker", f"takes {what}")
