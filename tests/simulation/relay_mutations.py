"""Rules of relays broken on purpose: R5 and R10 as far as a relay holds them."""

from __future__ import annotations

from msgspec.structs import replace

from lowtide_tracker import Absolute, Flush
from lowtide_tracker.messages import Sum
from lowtide_tracker.relay import Relay

from .mutation import Mutation, Patch


def applied_when_taken() -> list[Patch]:
    """A worker is told that a flush was applied as soon as its relay has it."""
    return [(Relay, "applied", lambda self, worker: self._taken.get(worker, 0))]


def taken_twice() -> list[Patch]:
    real = Relay.take

    def take(self: Relay, flush: Flush) -> None:
        if flush.number <= self._taken[flush.worker]:
            last = self._taken[flush.worker]
            self._taken[flush.worker] = flush.number - 1
            real(self, flush)
            self._taken[flush.worker] = last
            return
        real(self, flush)

    return [(Relay, "take", take)]


def heartbeats_first() -> list[Patch]:
    """The acks of a sum go out with the sum after it."""
    real = Relay.sum
    waiting: dict[int, tuple[tuple[int, int, int], ...]] = {}

    def summed(self: Relay) -> Sum | None:
        for segment, tick, value in waiting.pop(id(self), ()):
            sums = self._sums.setdefault(segment, {})
            sums[tick] = sums.get(tick, 0) ^ value
        made = real(self)
        if made is None:
            return None
        waiting[id(self)] = made.acks
        return replace(made, acks=())

    return [(Relay, "sum", summed)]


def workers_apart() -> list[Patch]:
    """A worker's part is in a sum before some of its acks are: those above the smallest tick come later."""
    real = Relay.sum
    waiting: dict[int, tuple[tuple[int, int, int], ...]] = {}

    def summed(self: Relay) -> Sum | None:
        for segment, tick, value in waiting.pop(id(self), ()):
            sums = self._sums.setdefault(segment, {})
            sums[tick] = sums.get(tick, 0) ^ value
        made = real(self)
        if made is None:
            return None
        least = min((segment for segment, _, _ in made.acks), default=0)
        waiting[id(self)] = tuple(ack for ack in made.acks if ack[0] != least)
        return replace(made, acks=tuple(ack for ack in made.acks if ack[0] == least))

    return [(Relay, "sum", summed)]


def report_unnoted() -> list[Patch]:
    def report(self: Relay, report: Absolute) -> None:
        return None

    return [(Relay, "report", report)]


RELAYS = [
    Mutation("relay-early", "R5, R10", "a flush counts as applied once a relay has it", "relays", applied_when_taken),
    Mutation("relay-twice", "R5, W7", "a flush that comes again is summed again", "relays", taken_twice),
    Mutation("relay-heartbeat-first", "R5", "a sum's heartbeats go before its acks", "relays", heartbeats_first),
    Mutation("relay-half", "R5", "a sum has some acks of its flushes", "relays", workers_apart),
    Mutation("relay-report", "R10", "flushes after a report do not continue it", "relays", report_unnoted),
]
