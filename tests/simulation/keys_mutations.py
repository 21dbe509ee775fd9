"""Rules of early keys broken on purpose (F5): segments that are parted by worker, R6, R7, R12 and R14."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from lowtide.core import branch as branch_module
from lowtide.core import worker as worker_module
from lowtide.core.operators import program as program_module
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.portion import Portion
from lowtide.core.operators.program import Program
from lowtide.core.operators.windows.window_node import WindowNode
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan import segments as segments_module
from lowtide.flow.plan.plan import Plan
from lowtide.flow.plan.segments import Segments, segments_of
from lowtide.flow.steps.steps import WhenDone
from lowtide_tracker import LocalTracker

from .mutation import Mutation, Patch


def waits_for_all() -> list[Patch]:
    """Branches wait for all parts, as if a record could still come from another worker's."""
    real = branch_module.branches_of

    def branches_of(program: Program, place: int, tracker: LocalTracker) -> Any:
        made, found = real(program, place, tracker)
        for branch in made if program.level else ():
            parts = {part for all_ in program.segments.parts.values() if set(all_) & {*branch.waits} for part in all_}
            branch.waits = tuple(sorted({*branch.waits, *parts}))
            branch._one = branch.waits[0] if len(branch.waits) == 1 else None
        return made, found

    return [(worker_module, "branches_of", branches_of)]


def waits_for_what_is_common() -> list[Patch]:
    """Branches wait for the segment that feeds the parts, which knows nothing of frames."""
    real = branch_module.branches_of

    def branches_of(program: Program, place: int, tracker: LocalTracker) -> Any:
        made, found = real(program, place, tracker)
        common = {part: each for each, parts in program.segments.parts.items() for part in parts}
        for branch in made:
            branch.waits = tuple(sorted({common.get(each, each) for each in branch.waits}))
            branch._one = branch.waits[0] if len(branch.waits) == 1 else None
        return made, found

    return [(worker_module, "branches_of", branches_of)]


def sent_in_the_first() -> list[Patch]:
    """All frames are tracked in the first worker's part, by those who send them and by those who take them."""

    def tracked_in(self: Segments, exchange: int, _target: int) -> int:
        return self.at(self.of_exchange[exchange], 0)

    return [(Segments, "tracked_in", tracked_in)]


def acked_in_common() -> list[Patch]:
    """Who takes a frame acks it in the segment that feeds the parts."""
    real: Any = WorkerCore.__init__

    def init(self: WorkerCore, *given: Any, **named: Any) -> None:
        real(self, *given, **named)
        of_exchange = self.program.segments.of_exchange
        real_frame = self.frame

        def frame(*frames: Any) -> Any:
            part = self._taken_in[frames[0].vertex]
            fold = self.tracker.fold

            def fold_elsewhere(segment: int, ticks: Any, value: int) -> None:
                fold(of_exchange[frames[0].vertex] if segment == part else segment, ticks, value)

            self.tracker.fold = fold_elsewhere  # type: ignore[method-assign]
            try:
                return real_frame(*frames)
            finally:
                self.tracker.fold = fold  # type: ignore[method-assign]

        self.frame = frame  # type: ignore[method-assign]

    return [(WorkerCore, "__init__", init)]


def held_in_the_first() -> list[Patch]:
    """What a level holds is held in the first worker's part of what it sends into."""

    @cache
    def found(plan: Plan) -> Segments:
        segments = segments_of(plan)
        sends: Mapping[int, tuple[int, ...]] = {
            vertex: tuple(segments.at(each, 0) for each in sent) if plan.vertices[vertex].level else sent
            for vertex, sent in segments.sends.items()
        }
        return replace(segments, sends=sends)

    return [(program_module, "segments_of", found)]


def outlets_of_what_is_common() -> list[Patch]:
    """Without dead letters, too, segments are parted, and outlets wait for what the parts have in common."""
    real = segments_module._Layout._part

    def part(self: Any) -> dict[int, tuple[int, ...]]:
        fed = {outlet: self._inbound[outlet] for outlet in self._held_by}
        parts = real(self)
        self._inbound.update(fed)
        return parts

    return [(segments_module._Layout, "_part", part), (segments_module._Layout, "_pays", lambda *_: True)]


def done_with_what_is_common() -> list[Patch]:
    """A `when_done` in the stream's order goes by the segment that feeds the parts, barriers by the part."""
    real_branches, real_go_on = branch_module.branches_of, WindowNode.go_on
    commons: dict[int, tuple[LocalTracker, tuple[int, ...]]] = {}
    """By node the tracker and the segments that it goes by; a node of a life that is over may have had the number."""

    def branches_of(program: Program, place: int, tracker: LocalTracker) -> Any:
        for node in program.holding:
            waits = program.segments.waits[node.vertex.id]
            ends = isinstance(node.vertex.step, WhenDone) and node.vertex.step.order == "stream"
            commons.pop(id(node), None)
            if ends and program.level and {*waits} & program.segments.parts.keys():
                commons[id(node)] = tracker, waits
        return real_branches(program, place, tracker)

    def go_on(self: WindowNode, min_time: int, feed: Feed, portion: Portion) -> int:
        early = min_time
        if id(self) in commons:
            tracker, waits = commons[id(self)]
            early = max(min_time, min(map(tracker.min_time, waits)))
        return min(min_time, real_go_on(self, early, feed, portion))

    return [(worker_module, "branches_of", branches_of), (WindowNode, "go_on", go_on)]


def pruned_at_its_own() -> list[Patch]:
    """A worker prunes at its own part's min time, though a snapshot may still be asked for at the global one."""
    return [(WorkerCore, "settled_time", property(lambda self: self._reached))]


def parted_though_it_feeds() -> list[Patch]:
    """Segments that feed others are parted too, and what they feed waits for what their parts have in common."""

    def to_part(self: Any) -> list[int]:
        return list(self._tracked) if self._plan.early_keys and self._plan.parallelism > 1 else []

    return [(segments_module._Layout, "_to_part", to_part), (segments_module._Layout, "_pays", lambda *_: True)]


def keys(name: str, rule: str, what: str, patches: Any, **options: Any) -> Mutation:
    return Mutation(name, rule, what, "flow", patches, {"early_keys": 1.0, "faults": 0.0} | options)


KEYS = [
    keys("keys-wait-for-all", "F5", "a worker's barriers wait for the frames of all", waits_for_all, letters=True),
    keys("keys-wait-for-none", "R12", "a worker's barriers wait for no frames", waits_for_what_is_common),
    keys("keys-one-part", "R12", "frames are tracked in the first worker's part", sent_in_the_first),
    keys("keys-acked-in-common", "R5", "a frame is acked in the segment that feeds the parts", acked_in_common),
    keys(
        "keys-held-in-one",
        "R6",
        "what is held upstream is held in the first worker's part",
        held_in_the_first,
        flow="index_by_document",
        grouping="ordered",
    ),
    keys(
        "keys-outlet-in-common",
        "R6",
        "lanes pass what may fail at another worker, and be corrected further up",
        outlets_of_what_is_common,
        letters=False,
        wrong=1.0,
    ),
    keys(
        "keys-done-in-common",
        "R4",
        "an end comes before the frames of its tick to its own worker",
        done_with_what_is_common,
        flow="in_order_at_last",
        letters=True,
    ),
    keys("keys-pruned-early", "R14", "a worker prunes at its own min time", pruned_at_its_own, snapshots=8),
    keys("keys-parted-upstream", "R7", "what feeds others is parted", parted_though_it_feeds, flow="index"),
]
