"""Retention (R17): the commits to drop, and the sweeping of all objects that nothing needs.

Why sweeping is safe during a snapshot, a restore and other sweeps:

1. Commits are dropped in ZooKeeper first, never the last one nor the one that the current life was loaded from, nor one
   that a snapshot with a reservation may need.
2. Then it is read which life is the current one and which commit is the last; then the objects are listed; then it is
   read for which snapshots a place is reserved, and only then which commits are kept. What one of their manifests names
   stays.
3. Of the rest only what belongs to a snapshot that can never be committed goes: its life is over, or its own
   life has made the last commit, its T is not above that, and no place is reserved for it. The first two are true for
   ever once they are true, and earlier commits are among 2. A place is reserved before the first part is written, so
   the listed objects had theirs by then; if it is gone, the snapshot was given up, or it is committed and among 2. A
   commit of an earlier life says nothing about a life's T: that life may have made an older one the last again, and
   continue from there. Nor do these reads say anything about a life that began later.
4. A snapshot that may still be committed names its own parts, which 3 spares, and parts of the commit it is based on.
   That commit must exist in the transaction that commits the snapshot; so it was kept in 2, or came later still.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from lowtide_snapshots.commits.choice import manifest_of
from lowtide_snapshots.commits.log import Commit, CommitLog, Restored
from lowtide_snapshots.errors import ManifestDamaged, RecordRefused
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.format.names import ObjectName, incarnation_of, parse_name
from lowtide_snapshots.job.paths import node_name
from lowtide_snapshots.stores import Entry, Store
from lowtide_snapshots.stores.errors import NotThere

DELETED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Rule:
    """The limits on commits without a name: the number that is kept, newest first, and their age."""

    keep: int
    max_age_s: float | None = None

    def __post_init__(self) -> None:
        if self.keep < 1 or (self.max_age_s is not None and self.max_age_s <= 0):
            raise RecordRefused(
                f"keep is {self.keep} and the greatest age {self.max_age_s} s",
                where="the rule of retention",
                way_out="keep at least one, and give an age above 0 or none",
            )


@dataclass(frozen=True, slots=True)
class Swept:
    """The counts of swept objects by kind, and the bytes of all.

    Attributes:
        unreadable: kept commits whose manifest is damaged, with the reason. While there is one, no part is swept: it
            may be needed.
    """

    commits: int = 0
    manifests: int = 0
    parts: int = 0
    bytes: int = 0
    unreadable: tuple[tuple[Commit, str], ...] = ()


def plan(
    commits: Sequence[Commit],
    last: Commit | None,
    restored: Restored | None,
    rule: Rule,
    now: datetime,
    *,
    based_on: Collection[str] = (),
) -> tuple[list[Commit], list[Commit]]:
    """Say which commits are kept, and which are dropped; both ascending.

    Kept whatever the rule says: the last one, the one that the current life was loaded from, those with a name, and
    those that a snapshot under way is based on.

    Args:
        commits: all, ascending.
        last: the last one.
        restored: from what the current life was loaded.
        rule: how many and how old; a commit is dropped if one of the two says so.
        now: with a time zone.
        based_on: ids of commits that sealed snapshots need; see `bases`.
    """
    needed = {each.id for each in (last, restored.commit if restored else None) if each} | set(based_on)
    unnamed = [commit for commit in commits if commit.name is None]
    newest = {commit.id for commit in unnamed[-rule.keep :]}

    def stays(commit: Commit) -> bool:
        if commit.id in needed or commit.name is not None:
            return True
        age_s = (now - datetime.fromisoformat(commit.at)).total_seconds()
        return commit.id in newest and (rule.max_age_s is None or age_s <= rule.max_age_s)

    return [c for c in commits if stays(c)], [c for c in commits if not stays(c)]


def bases(log: CommitLog, store: Store) -> set[str]:
    """Return the commits, by id, on which sealed snapshots that may still be committed, or reserved ones, are based.

    Dropping one would be safe, but such a snapshot would then be refused.
    """
    life, last, reserved = log.incarnation(), log.last(), log.reserved()
    awaited = {each.snapshot for each in reserved}
    found = {base for each in reserved for base in each.bases}
    for entry, name in _objects(store, f"{node_name(log.job)}/manifests/"):
        if name.vertex is None and not _over(name, life, last, awaited):
            try:
                manifest = Manifest.from_json(store.get(entry.name), entry.name)
            except (NotThere, ManifestDamaged):
                continue
            if manifest.base:
                found.add(manifest.base)
    return found


def sweep(log: CommitLog, store: Store, dropped: Iterable[Commit]) -> Swept:
    """Drop commits, then delete the manifests and parts that nothing needs.

    What an earlier sweep left that was ended in the middle goes too, and what snapshots left that never were committed.
    Costs one listing of the job's objects, and reads the manifests of all kept commits.

    Raises:
        CommitNeeded: a commit to be dropped is needed by now; nothing was done.
        StoreUnavailable, StoreRefused, ZooKeeperUnavailable: call it again; what is done is done.
    """
    dropped = list(dropped)
    log.drop(dropped)
    life, last = log.incarnation(), log.last()
    objects = _objects(store, f"{node_name(log.job)}/")
    # Read after what was listed: what has been written since is reserved later.
    awaited = {each.snapshot for each in log.reserved()}
    # Read after those three: a snapshot that is committed in between would be over, and named by nothing.
    kept = log.commits()
    named, unreadable = _named(log, store, kept)
    manifests = {commit.manifest for commit in kept}
    over = [
        (entry, name)
        for entry, name in objects
        if _over(name, life, last, awaited) and entry.name not in named and entry.name not in manifests
    ]
    old_manifests = [entry for entry, name in over if name.vertex is None]
    old_parts = [] if unreadable else [entry for entry, name in over if name.vertex is not None]
    for entries in (old_manifests, old_parts):
        for start in range(0, len(entries), DELETED_AT_ONCE):
            store.delete([entry.name for entry in entries[start : start + DELETED_AT_ONCE]])
    size = sum(entry.bytes for entry in (*old_manifests, *old_parts))
    return Swept(len(dropped), len(old_manifests), len(old_parts), size, tuple(unreadable))


def _named(log: CommitLog, store: Store, kept: Iterable[Commit]) -> tuple[set[str], list[tuple[Commit, str]]]:
    """The parts that kept manifests name; and the commits whose manifest cannot be read, with the reason."""
    named: set[str] = set()
    unreadable = []
    for commit in kept:
        try:
            manifest = manifest_of(log, store, commit)
        except ManifestDamaged as error:
            unreadable.append((commit, error.what))
            continue
        slack_ms = manifest.record.slack_ms
        named.update(part.name(manifest.job, slack_ms) for part in manifest.parts)
    return named, unreadable


def _over(name: ObjectName, life: int, last: Commit | None, awaited: Collection[str]) -> bool:
    """True if the snapshot that wrote an object is committed, or can never be.

    Args:
        name: the object's.
        life: the current one.
        last: the last commit.
        awaited: ids of the snapshots for which a place is reserved.
    """
    own = incarnation_of(name.snapshot)
    if own != life:
        return own < life
    if name.snapshot in awaited:
        return False
    return last is not None and incarnation_of(last.id) == own and name.min_time_ms <= last.min_time_ms


def _objects(store: Store, prefix: str) -> list[tuple[Entry, ObjectName]]:
    """Return the manifests and parts of a job; anything else there is left alone."""
    found = ((entry, parse_name(entry.name)) for entry in store.names(prefix))
    return [(entry, name) for entry, name in found if name is not None]
