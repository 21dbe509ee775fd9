"""Rules of loops that go through a topic broken on purpose: R7, and what R4, R5 and R6 say of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowtide.core import frames as frames_module
from lowtide.core.cycle_inbox import CycleInbox
from lowtide.core.effects import Effects, Frame
from lowtide.core.operators.node import Feed, Parcel
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.plain.loop import LoopNode
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan import segments as segments_module
from lowtide.flow.steps.steps import Feedback

from .mutation import Mutation, Patch


def frames_of_any_life() -> list[Patch]:
    """A worker takes what an older life has left in a loop's topic."""
    return [(frames_module, "is_of_life", lambda _said, _incarnation: True)]


def levels_apart() -> list[Patch]:
    """The way back to a loop's head is not seen to feed it: each level of the cycle has a min time of its own."""

    def fed(self: Any) -> dict[int, list[int]]:
        inbound: dict[int, set[int]] = {segment: set() for segment in self._firsts()}
        for vertex in self._plan.exchanges():
            above = inbound.setdefault(self._of_exchange[vertex.id], set())
            if vertex.level > 1 and not isinstance(vertex.step, Feedback):
                above.update(each for parent in vertex.parents for each in self._waits[parent])
        return {segment: sorted(above) for segment, above in sorted(inbound.items())}

    return [(segments_module._Layout, "_fed", fed)]


def acked_on_arrival() -> list[Patch]:
    """A frame is acknowledged when it has come, while its records wait for their turn."""
    real = CycleInbox.take

    def take(self: CycleInbox, frames: Sequence[Frame], min_time: int) -> list[list[Frame]]:
        real(self, frames, min_time)
        return [
            [Frame(each.vertex, each.target, each.value, each.ticks, Batch([], [], [], None, []), b"")]
            for each in frames
        ]

    return [(CycleInbox, "take", take), (CycleInbox, "_settle", _settled_in_silence)]


def _settled_in_silence(_self: CycleInbox, came: Any, tick: int, _over: list[Frame]) -> None:
    del came.left[tick]


def not_folded_on_its_way_back() -> list[Patch]:
    """Who sends a frame back to a loop's head does not fold its value, as if nothing came of it."""

    def send(self: WorkerCore, parcels: list[Parcel], effects: Effects) -> None:
        ways = {way.id for way in self.plan.feedbacks()}
        for parcel in parcels:
            ticks, value = parcel.batch.ticks, self.tracker.new_value()
            if parcel.vertex not in ways:
                self.tracker.fold(self._sent_in[parcel.vertex][parcel.target], ticks, value)
            effects.frames.append(Frame(parcel.vertex, parcel.target, value, ticks, parcel.batch, parcel.payload))

    return [(WorkerCore, "_send", send)]


def turns_not_counted() -> list[Patch]:
    """A record has the same place in the order in each turn, so that nothing may ever end its way round."""
    turns = 0

    def take(self: LoopNode, batch: Batch, port: int, feed: Feed) -> None:
        nonlocal turns
        turns = 0 if port == 0 else turns + 1
        assert turns < MOST_TURNS, "records go round for ever"
        real(self, batch, 0, feed) if port == 0 else self.pass_on(batch, feed)

    real = LoopNode.take
    return [(LoopNode, "take", take)]


def in_order_on_a_cycle() -> list[Patch]:
    """A step on a cycle runs in order: it waits for what it has to send itself."""
    real = segments_module._Layout._round_trips
    return [(segments_module._Layout, "_round_trips", lambda self: real(self) & frozenset())]


def held_at_min_time() -> list[Patch]:
    """Records on a cycle wait until min time has passed them."""
    return [(CycleInbox, "_end", lambda _self, min_time: min_time)]


def flow(name: str, rule: str, what: str, patches: Any, **options: Any) -> Mutation:
    return Mutation(name, rule, what, "flow", patches, {"flow": "cycle"} | options)


MOST_TURNS = 1_000
"""Records of a sound run go round some ten times; each turn may find many of them."""
BOTH: dict[str, Any] = {"flow": "cycle_of_levels"}
ORDERED: dict[str, Any] = {"grouping": "ordered"}

CYCLE = [
    flow("cycle-old-life", "R7", "a frame of an older life is taken", frames_of_any_life, faults=0.02),
    flow("cycle-apart", "R7", "the levels on a cycle have min times of their own", levels_apart, **BOTH),
    flow("cycle-acked-early", "R5, R7", "a frame is acked before its records are dealt with", acked_on_arrival),
    flow("cycle-unfolded", "R6, R7", "a frame that goes back is not folded by its sender", not_folded_on_its_way_back),
    flow("cycle-turns", "R4", "turns of a loop are not in the order keys", turns_not_counted),
    flow("cycle-in-order", "R6, R7", "a step on a cycle waits for itself", in_order_on_a_cycle, **ORDERED),
    flow("cycle-held", "R7", "what min time stands at is held on a cycle", held_at_min_time),
]
