"""Rules of joins and tables broken on purpose: what they have due, in which order they go on, what a snapshot has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lowtide.core.operators.joins import join_node as join_module
from lowtide.core.operators.joins import join_side
from lowtide.core.operators.joins import join_table as table_module
from lowtide.core.operators.joins.join_node import JoinNode
from lowtide.core.operators.joins.join_side import Held, JoinSide, SavedRecord
from lowtide.core.operators.joins.join_table import TableJoinNode
from lowtide.core.operators.node import Feed
from lowtide.core.operators.state.group import Group
from lowtide.core.operators.state.keyed_state import KeyedState

from .mutation import Mutation, Patch


def alone_unsaid() -> list[Patch]:
    """A worker does not say at which tick a record will come out alone."""
    return [(JoinNode, "due_tick", property(lambda _self: None))]


def alone_at_min_time() -> list[Patch]:
    """A record comes out alone at min time, though its partner may still come at this tick."""
    real = JoinNode.advance

    def advance(self: JoinNode, min_time: int, feed: Feed) -> None:
        real(self, min_time, feed)
        while self._dues.first == min_time:
            self._close(min_time, feed)

    return [(JoinNode, "advance", advance)]


def by_port(module: Any, first: int) -> list[Patch]:
    """All records of one port come before those of the other that are released with them."""
    real = module.in_turn

    def in_turn(batches: Any) -> list[tuple[bytes, int, int]]:
        return sorted(real(batches), key=lambda each: each[1] != first)

    return [(module, "in_turn", in_turn)]


def ended_left_out() -> list[Patch]:
    """A snapshot lacks records that have ended above its T."""
    real = JoinSide.capture

    def capture(self: JoinSide, tick: int, since: int = -(1 << 63)) -> Any:
        ended = {held.at for _, each in self._ended for held in each}
        return {
            unit: [(key, [one for one in saved if one[0] not in ended]) for key, saved in keys]
            for unit, keys in real(self, tick, since).items()
        }

    return [(JoinSide, "capture", capture)]


def pairs_forgotten() -> list[Patch]:
    """A restored record has forgotten that it was paired."""
    real = JoinSide.restore

    def restore(self: JoinSide, parts: Mapping[int, Iterable[Any]], tick: int) -> None:
        alone = {
            unit: [(key, [(at, row, False) for at, row, _ in saved]) for key, saved in keys]
            for unit, keys in parts.items()
        }
        real(self, alone, tick)

    return [(JoinSide, "restore", restore)]


def paired_above() -> list[Patch]:
    """A snapshot has a record as paired whose partner came above its T."""
    real = join_side._below

    def below(kept: Mapping[bytes, Held], tick: int) -> list[SavedRecord]:
        return [(at, row, kept[at].paired is not None) for at, row, _ in real(kept, tick)]

    return [(join_side, "_below", below)]


def ends_with_its_due() -> list[Patch]:
    """What has ended is forgotten at once, though a snapshot below may need it."""
    real = JoinSide.close

    def close(self: JoinSide, tick: int) -> None:
        real(self, tick)
        pruned = self._pruned
        self.prune(tick)
        self._pruned = pruned

    return [(JoinSide, "close", close)]


def row_of_now() -> list[Patch]:
    """A snapshot has each key's newest row, not the newest below its T."""

    real = KeyedState._below

    def below(self: KeyedState, group: Group, tick: int) -> Any:
        newest = isinstance(self, TableJoinNode)
        return self._state(group, len(group.elements), tick) if newest else real(self, group, tick)

    return [(KeyedState, "_below", below)]


def partners_unseen() -> list[Patch]:
    """The partner of a record does not learn that it has one."""

    def paired(self: JoinSide, held: Held, tick: int) -> None:
        """Nothing is noted."""

    return [(JoinSide, "paired", paired)]


def flow(name: str, rule: str, what: str, patches: Any, **options: Any) -> Mutation:
    return Mutation(name, rule, what, "flow", patches, options)


def lives(name: str, rule: str, what: str, patches: Any, **options: Any) -> Mutation:
    return Mutation(name, rule, what, "lives", patches, options)


OFTEN = 0.03

JOIN = [
    flow("alone-unsaid", "R6b", "a join does not say when a record comes out alone", alone_unsaid, flow="joined"),
    flow("left-first", "R4", "a join takes all left records before the right ones", lambda: by_port(join_module, 0),
         flow="joined"),
    flow("partners-unseen", "R4", "a record comes out alone though it was paired", partners_unseen, flow="joined"),
    lives("ended-left-out", "R14", "a snapshot lacks records that ended above its T", ended_left_out, having="join"),
    lives("ended-forgotten", "R14", "what has ended is not kept for a snapshot", ends_with_its_due, having="join"),
    lives("paired-above", "R14", "a snapshot has a record as paired whose partner came above its T", paired_above,
          having="join"),
    flow("pairs-forgotten", "R14", "a restored record is unpaired again", pairs_forgotten,
         flow="joined", snapshots=12, damage=0.0, letters=True, faults=OFTEN),
    flow("rows-first", "R4", "a table's rows come before all records released with them",
         lambda: by_port(table_module, 1), flow="tabled"),
    flow("row-of-now", "R14", "a snapshot has rows that came above its T", row_of_now,
         flow="tabled", snapshots=6, faults=OFTEN),
]  # fmt: skip
