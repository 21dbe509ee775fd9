"""Rules of the tracker in shards broken on purpose: R9."""

from __future__ import annotations

from collections.abc import Iterable

from lowtide_tracker.rebuild import Rebuild
from lowtide_tracker.shards import shard as shard_module
from lowtide_tracker.shards import sharding as sharding_module
from lowtide_tracker.shards.merge import Merge, ShardView, Uncovered
from lowtide_tracker.shards.shard import Shard

from .mutation import Mutation, Patch


def latest_stands() -> list[Patch]:
    """What a shard said last counts at once, whatever other shards lack."""

    def stands(self: ShardView) -> list[int]:
        latest = list(self.covered)
        for _, moved in self.pending:
            for group, (_, stand) in moved.items():
                latest[group] = stand
        return latest

    return [(ShardView, "stands", stands)]


def covered_stands() -> list[Patch]:
    """The papers' guard: the last covered report counts, and what came since is not looked at."""
    return [(ShardView, "stands", lambda self: list(self.covered))]


def forgets_at_its_own() -> list[Patch]:
    """A shard lets go of what its own stand has passed, before that was accepted."""
    real = Shard._look

    def look(self: Shard, groups: Iterable[int]) -> None:
        real(self, groups)
        for group, members in enumerate(self.graph.groups):
            for segment in members:
                self._table.advance(segment, max(self._table.min_time(segment), min(self._stands[group], 1 << 62)))

    return [(Shard, "_look", look)]


def rounded_beyond() -> list[Patch]:
    """A heartbeat is rounded up to the tick after the shard's next one."""

    def beyond(tick: int, shard: int, shards: int) -> int:
        return min(tick + 1 + (shard - tick - 1) % shards, sharding_module.NEVER)

    return [(sharding_module, "round_up", beyond), (shard_module, "round_up", beyond)]


def opened_unheld() -> list[Patch]:
    """Min time goes on while shards have still to hear of a front that is being opened."""
    real = Merge._limits

    def limits(self: Merge) -> list[int]:
        opening, self._opening = self._opening, {}
        try:
            return real(self)
        finally:
            self._opening = opening

    return [(Merge, "_limits", limits)]


def joined_unseen() -> list[Patch]:
    """A report that others join is covered as soon as its own parts are."""
    return [(Uncovered, "add", lambda self, report: None)]


def rebuilt_early() -> list[Patch]:
    def missing(self: Rebuild) -> tuple[int, ...]:
        return () if len(self.reports) > len(self.workers) // 2 else self.workers

    return [(Rebuild, "missing", property(missing))]


RARE = 400
"""Seeds for what needs several parts in one report, and another shard far behind."""

SHARDS = [
    Mutation("shard-latest", "R9", "what a shard said last counts uncovered", "shards", latest_stands),
    Mutation("shard-papers", "R9", "only the last covered report counts", "shards", covered_stands),
    Mutation("shard-forgets", "R9", "a shard forgets at its own pace", "shards", forgets_at_its_own),
    Mutation("shard-rounding", "R9", "heartbeats are rounded up too far", "shards", rounded_beyond),
    Mutation("shard-open", "R3, R9", "a front opens without holding min time", "shards", opened_unheld),
    Mutation(
        "shard-joined-early",
        "R9",
        "reports that become one count once the first is covered",
        "shards",
        joined_unseen,
        {"slow": True, "loss": False},
        RARE,
    ),
    Mutation("shard-rebuilt", "R9, R10", "a new shard does not wait for all", "shards", rebuilt_early),
]
