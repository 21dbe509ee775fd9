"""Snapshots by deltas, broken on purpose: what changed is not what is written (R14, W9)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lowtide.core.operators.state.changed_keys import ChangedKeys
from lowtide.core.operators.state.group import Group, Recent
from lowtide.core.operators.state.saved_step import SavedStep

from .mutation import Mutation, Patch


def deletions_forgotten() -> list[Patch]:
    """A delta says nothing of keys that have no state any more."""
    real = SavedStep.delta

    def delta(self: SavedStep, entries: Any, gone: Any) -> Any:
        return real(self, entries, [])

    return [(SavedStep, "delta", delta)]


def since_the_last_snapshot() -> list[Patch]:
    """A delta has what changed since the last snapshot, though that was never committed."""
    real = ChangedKeys.cut

    def cut(self: ChangedKeys, tick: int) -> None:
        real(self, tick)
        self._spans = self._spans[-1:]

    return [(ChangedKeys, "cut", cut)]


def forgotten_with_the_commit() -> list[Patch]:
    """What changed above T is forgotten when the snapshot at T is committed."""
    real = ChangedKeys.forget

    def forget(self: ChangedKeys, tick: int) -> None:
        real(self, tick)
        for span in self._spans:
            if span.keys is not None:
                span.keys.clear()

    return [(ChangedKeys, "forget", forget)]


def pruned_alone() -> list[Patch]:
    """What the prune time has not passed yet counts as unchanged."""

    def since(self: Recent, tick: int) -> Iterator[Group]:
        return iter(())

    return [(Recent, "since", since)]


def older_one_last() -> list[Patch]:
    """Of a key that two parts of a unit have, the first one counts."""
    real = SavedStep.applied

    def applied(self: SavedStep, tables: Any, *given: Any) -> Any:
        return real(self, [*tables[1:], *tables[:1]], *given)

    return [(SavedStep, "applied", applied)]


def delta(name: str, what: str, patches: Any, **options: Any) -> Mutation:
    return Mutation(name, "R14, W9", what, "flow", patches, {"faults": 0.02, "snapshots": 15, **options})


DELTAS = [
    delta("deletions-forgotten", "a delta does not have the keys that are gone", deletions_forgotten, flow="timers"),
    delta("since-the-last-snapshot", "a delta is relative to a snapshot that was given up", since_the_last_snapshot,
          flow="two_sources"),
    delta("forgotten-with-the-commit", "a commit forgets what changed above its T", forgotten_with_the_commit,
          flow="two_sources"),
    delta("pruned-alone", "a delta lacks what the prune time has not passed", pruned_alone, flow="two_sources"),
    delta("older-one-last", "a delta applies before what it rests on", older_one_last, flow="two_sources"),
]  # fmt: skip
