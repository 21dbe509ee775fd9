"""Rules that show from one life to the next, broken on purpose: labels, floors, openings, snapshots, delivered time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lowtide.core.fronts.floors import NO_TICK, Floors
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors
from lowtide.core.operators.barrier import Barrier
from lowtide.core.operators.keyed.beside import BesideNode
from lowtide.core.operators.order.bundle import Bundle, Piece
from lowtide.core.operators.state.group import Touched
from lowtide.core.operators.state.keyed_state import KeyedState
from lowtide.core.worker import WorkerCore

from .channel import Channel
from .commits import Commit
from .job import Job
from .life import Life
from .mutation import Mutation, Patch
from .sinks import Delivery, Sinks
from .tracking import Tracking


def front_without(**without: Any) -> list[Patch]:
    """A front is recovered without something that an earlier life left to it."""
    real = Front.__init__

    def init(self: Front, number: int, limits: FrontLimits, known: KnownFloors, **given: Any) -> None:
        real(self, number, limits, replace(known, **without), **given)

    return [(Front, "__init__", init)]


def never_reported() -> list[Patch]:
    """Floors that a commit alone knows are gone by, and count as durable."""
    real = Front.__init__

    def init(self: Front, number: int, limits: FrontLimits, known: KnownFloors, **given: Any) -> None:
        real(self, number, limits, replace(known, durable=[*known.durable, *known.unreported], unreported=()), **given)

    return [(Front, "__init__", init)]


def opened_anywhere() -> list[Patch]:
    """A new partition opens at the tracker's min time, whatever was delivered before."""
    real = Tracking.open

    def open_front(self: Tracking, front: int, floor: int, feeds: Any) -> int:
        return real(self, front, min(floor, self.start), feeds)

    return [(Tracking, "open", open_front)]


def told_forgotten() -> list[Patch]:
    """What the outside was told is not known to the next life."""
    real: Any = Life.__init__

    def init(self: Life, *given: Any, **more: Any) -> None:
        real(self, *given[:-3], NO_TICK, *given[-2:], **more)

    return [(Life, "__init__", init)]


def commits_forgotten() -> list[Patch]:
    """A life that begins from an older commit does not know how far the newest one is."""
    real: Any = Life.__init__

    def init(self: Life, *given: Any, **more: Any) -> None:
        real(self, *given[:-2], NO_TICK, given[-1], **more)

    return [(Life, "__init__", init)]


def starts_forgotten() -> list[Patch]:
    """A life that begins from an older commit does not go by the labels with which newer ones are read again."""
    return [(Commit, "known", property(lambda self: self.floors))]


def numbers_ignored() -> list[Patch]:
    """Frames are taken as they come, and a missing one is not missed."""
    real = Channel.send

    class Whatever(int):
        """A number that is always the one expected."""

        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = int.__hash__

    def send(self: Channel, frame: Any) -> None:
        real(self, frame)
        number, frame = self.queue.pop()
        self.queue.append((Whatever(number), frame))

    return [(Channel, "send", send)]


def front_pruned_at_once() -> list[Patch]:
    real = Front.prune

    def prune(self: Front, tick: int) -> None:
        real(self, max(tick, self.heartbeat))

    return [(Front, "prune", prune)]


def pruned_in_silence() -> list[Patch]:
    """Groupings prune at their own segment's min time, and nothing notices when state is captured."""
    real = KeyedState.capture

    def capture(self: KeyedState, tick: int, since: int) -> Any:
        self._kept.pruned = min(self._kept.pruned, tick)
        return real(self, tick, since)

    def prune_time(self: WorkerCore) -> int:
        return self.min_time

    return [(KeyedState, "capture", capture), (WorkerCore, "_prune_time", prune_time)]


def archive_unread() -> list[Patch]:
    """A life that begins below the newest commit goes without the floors that were moved."""

    def archive_for(self: Job, commit: Any) -> Floors:
        return Floors()

    return [(Job, "archive_for", archive_for)]


def floors_covered_by_none() -> list[Patch]:
    """A lane takes back the floor it gave before, though the new one begins later."""

    def covered(self: Any, floors: Any) -> Any:
        before = [self._given[floor.front] for floor in floors if floor.front in self._given]
        self._given.update({floor.front: floor for floor in floors})
        return tuple(floor for floor in before if floor not in floors)

    return [(Barrier, "_covered", covered)]


def floors_settled_when_given() -> list[Patch]:
    """What one lane was given is not given to others, though it may never become durable."""
    real = Barrier._send

    def send(self: Any, lane: int, pieces: Any) -> Any:
        bundle = real(self, lane, pieces)
        self._floors.settle(self._lanes[lane].given)
        return bundle

    return [(Barrier, "_send", send)]


def floors_not_awaited() -> list[Patch]:
    return [(Barrier, "delivered_time", property(lambda self: self.durable_time))]


def told_when_given() -> list[Patch]:
    """What was given to a sink counts as durable."""

    def first_tick(self: Any) -> int | None:
        return self.released[0].tick if self.released else None

    from lowtide.core.operators import barrier

    return [(vars(barrier)["_Lane"], "first_tick", first_tick)]


def broadcast_not_saved_again() -> list[Patch]:
    """A broadcast that was restored does not count as changed, so a full snapshot leaves it out."""
    real = BesideNode.restore_beside

    def restore(self: BesideNode, parts: Any, tick: int) -> None:
        real(self, parts, tick)
        self._touched_beside = None

    return [(BesideNode, "restore_beside", restore)]


def state_not_saved_again() -> list[Patch]:
    """The same of what groupings keep."""
    real = KeyedState.restore

    def restore(self: KeyedState, parts: Any, tick: int) -> None:
        real(self, parts, tick)
        self._touched = Touched()

    return [(KeyedState, "restore", restore)]


def changed_too_early() -> list[Patch]:
    """A unit counts as unchanged by arrival: what came before a snapshot but lies above its T is in no part (W9)."""
    real = Touched.add

    def add(self: Touched, units: Any, last: int) -> None:
        real(self, units, min(last, max(self._ticks.values(), default=last)))

    return [(Touched, "add", add)]


def claim_alone() -> list[Patch]:
    """A store compares the claim, and not the lane's `last` before."""

    def take(self: Sinks, delivery: Delivery) -> bool:
        if delivery.claim == self.claim:
            self.store(delivery.sink, delivery.bundle)
        return delivery.claim == self.claim

    return [(Sinks, "take", take)]


def last_alone() -> list[Patch]:
    """A store compares the lane's `last` before, and not the claim."""

    def take(self: Sinks, delivery: Delivery) -> bool:
        fits = delivery.before == self.last_of(delivery.sink, delivery.bundle)
        if fits:
            self.store(delivery.sink, delivery.bundle)
        return fits

    return [(Sinks, "take", take)]


def mark_before_rows() -> list[Patch]:
    """A lane is marked while records below the mark wait for a bundle."""

    def send(self: Any, lane: int, pieces: list[Piece]) -> Bundle:
        bundle, state = real(self, lane, pieces), self._lanes[lane]
        if state.marked < self._mark:
            bundle.mark = state.marked = self._mark
        return bundle

    real = Barrier._send
    return [(Barrier, "_send", send)]


def mark_without_floors() -> list[Patch]:
    """A bundle that only marks a lane does not bring the floors that min time rests on."""

    def send(self: Any, lane: int, pieces: list[Piece]) -> Bundle:
        bundle = real(self, lane, pieces)
        if not pieces and bundle.mark is not None:
            bundle.floors = ()
        return bundle

    real = Barrier._send
    return [(Barrier, "_send", send)]


def mark_relied_on_by_nobody() -> list[Patch]:
    """A mark is not its lane's `last`, so the next life's new fronts may open below it."""

    def send(self: Any, lane: int, pieces: list[Piece]) -> Bundle:
        state = self._lanes[lane]
        before = pieces[-1].ats[-1] if pieces else state.last
        bundle = real(self, lane, pieces)
        bundle.last = state.last = before
        return bundle

    real = Barrier._send
    return [(Barrier, "_send", send)]


def marks_not_awaited() -> list[Patch]:
    """Delivered time does not wait for marks."""
    from lowtide.core.operators import barrier

    lane = vars(barrier)["_Lane"]
    return [(lane, "first_tick", lane._first_piece)]


def flow(name: str, rule: str, what: str, patches: Any, **options: Any) -> Mutation:
    return Mutation(name, rule, what, "flow", patches, options)


OFTEN = 0.02

RECOVERY = [
    flow("clock-forgets", "R1, H6", "the clock may stand below what was relied on",
         lambda: front_without(relied_on=NO_TICK, highest=NO_TICK), faults=OFTEN),
    flow("floors-unread", "R2, W2", "a front does not look at the floors that are durable",
         lambda: front_without(durable=()), faults=OFTEN),
    flow("never-reported", "R2", "a floor that a commit alone knows is gone by and not reported", never_reported,
         flow="loop", damage=0.6, faults=OFTEN, idle=15, snapshots=7),
    flow("archive-unread", "R2", "floors below the newest commit are not looked for", archive_unread,
         damage=0.6, faults=OFTEN, idle=15, snapshots=7),
    flow("covered-by-none", "R2, R13", "a floor is taken back that another takes no place of", floors_covered_by_none,
         faults=OFTEN, idle=15),
    flow("settled-when-given", "R2, R13", "a floor on its way in one lane is kept from others",
         floors_settled_when_given, flow="two_sources", faults=0.05, idle=15, backfills=0.0, by_lane=1.0),
    flow("opened-anywhere", "R3, W4b", "a new partition opens below last", opened_anywhere, longest=12),
    flow("told-forgotten", "R3, R18", "a later life does not know what was told to be over", told_forgotten,
         longest=6, idle=15, silent=0.0),
    flow("commits-forgotten", "R3, R16", "a life that begins from an older commit does not know of the newest one",
         commits_forgotten, faults=0.015, damage=0.0, idle=4, longest=60, snapshots=15, rewinds=0.7, silent=1.0),
    Mutation("starts-forgotten", "R2, R16", "a label at which a newer commit is read again is not gone by", "flow",
             starts_forgotten,
             {"faults": 0.015, "damage": 0.02, "snapshots": 10, "rewinds": 0.5, "silent": 0.7, "early_keys": 0.0,
              "names": 0.0}, 350),
    flow("numbers-ignored", "R10", "frames have no numbers", numbers_ignored,
         flow="index_by_document", grouping="optimistic", swaps=1.0, faults=OFTEN),
    flow("broadcast-not-saved", "R14, W9", "a restored broadcast is not saved again", broadcast_not_saved_again,
         flow="beside", faults=OFTEN, snapshots=7),
    flow("state-not-saved", "R14, W9", "restored state is not saved again", state_not_saved_again,
         flow="two_sources", faults=OFTEN, snapshots=7),
    flow("changed-too-early", "R14, W9", "a unit that has changed above T counts as unchanged", changed_too_early,
         flow="two_sources", faults=OFTEN, snapshots=15),
    Mutation("broadcast-not-saved-2", "R14, W9", "a restored broadcast is not saved again", "lives",
             broadcast_not_saved_again),
    flow("front-pruned", "R14", "a front forgets where ticks begin that a snapshot asks for", front_pruned_at_once),
    flow("pruned-in-silence", "R14, W1", "state is pruned that a snapshot asks for", pruned_in_silence,
         flow="three_levels", faults=OFTEN),
    flow("floors-not-awaited", "R18", "delivered time does not wait for floors", floors_not_awaited,
         flow="two_sources", longest=3, idle=15, faults=OFTEN),
    flow("claim-alone", "R19", "a store does not compare the lane's last", claim_alone),
    flow("last-alone", "R19, W10", "a store does not compare the claim", last_alone, faults=OFTEN),
    flow("mark-before-rows", "R20", "a lane is marked before all below is on its way", mark_before_rows),
    flow("mark-without-floors", "R20", "a mark does not bring the floors that it rests on", mark_without_floors,
         flow="two_sources", longest=3, idle=15, faults=OFTEN),
    flow("mark-relied-on-by-nobody", "R3, R20", "new fronts may open below a mark", mark_relied_on_by_nobody,
         faults=OFTEN),
    flow("marks-not-awaited", "R20, R21", "delivered time does not wait for marks", marks_not_awaited),
    flow("told-when-given", "R18, W14", "delivered time does not wait for the sink's word", told_when_given),
]  # fmt: skip
