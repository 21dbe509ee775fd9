"""Chooses the commit to recover from: the newest whole one, or the one that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide_snapshots.commits.log import Commit, CommitLog
from lowtide_snapshots.commits.verification import THREADS, OnProgress, verify
from lowtide_snapshots.errors import ManifestDamaged, NoGoodCommit, NoSuchCommit, SnapshotsError
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.format.parts import sha256
from lowtide_snapshots.stores import Store
from lowtide_snapshots.stores.errors import NotThere, StoreDamaged

MAX_SHOWN = 20
"""Commits that an error names."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The commit to recover from.

    Attributes:
        manifest: of the commit.
        commit: the newest good one of those that were asked for.
        skipped: newer ones that are damaged, each with the reason; to be said loudly.
    """

    manifest: Manifest
    commit: Commit
    skipped: tuple[tuple[Commit, str], ...]


def choose(
    log: CommitLog,
    store: Store,
    *,
    commit: str | None = None,
    before_ms: int | None = None,
    progress: OnProgress,
    threads: int = THREADS,
    verified: str = "",
) -> Choice:
    """Choose what to recover from, and read all of it to see that it is whole.

    Damage makes the choice fall on the commit before. Other trouble does not: a store that is away, or a snapshot of a
    newer version, is raised, since what cannot be read now may be good.

    Args:
        log: the job's commits.
        store: the snapshots' store.
        commit: only this one, by the snapshot's id or name; of several with that name, the newest.
        before_ms: only those whose min time is at or before this one.
        progress: called as by `verify`, once for each snapshot that is read.
        threads: as of `verify`.
        verified: SHA-256 of the manifest of a commit that was verified a moment ago: its parts are not read again. Any
            other commit is verified, as the SHA-256 says which commit and which parts were meant.

    Raises:
        NoSuchCommit: there is none that was asked for.
        NoGoodCommit: all that were asked for are damaged.
        StoreUnavailable, StoreRefused, FormatTooNew: nothing is known.
    """
    skipped: dict[str, tuple[Commit, str]] = {}
    while True:
        asked = _asked(log, commit, before_ms)
        tried = next((each for each in reversed(asked) if each.id not in skipped), None)
        if tried is None:
            raise _none_good(log.job, store, [skipped[each.id] for each in reversed(asked)])
        found = _look(log, store, tried, progress, threads, verified)
        if isinstance(found, Manifest):
            newer = [each for each in skipped.values() if each[0] in asked]
            return Choice(found, tried, tuple(newer))
        # If it was dropped meanwhile, the next read of the log does not find it.
        skipped[tried.id] = (tried, found)


def manifest_of(log: CommitLog, store: Store, commit: Commit) -> Manifest:
    """A commit's manifest.

    Raises:
        ManifestDamaged: it is not there, or not what was committed.
        StoreUnavailable, StoreRefused, FormatTooNew: nothing is known.
    """
    try:
        data = store.get(commit.manifest)
    except (NotThere, StoreDamaged) as error:
        raise _damaged(error.what, store, commit) from error
    found = sha256(data)
    if found != commit.sha256:
        raise _damaged(f"its SHA-256 is {found}, expected {commit.sha256}", store, commit)
    manifest = Manifest.from_json(data, f"{store.where}, {commit.manifest}")
    says = (manifest.job, manifest.id, manifest.tick)
    if says != (log.job, commit.id, commit.tick):
        raise _damaged(f"it is of job {says[0]!r}, snapshot {says[1]} at tick {says[2]}", store, commit)
    return manifest


def _look(
    log: CommitLog, store: Store, commit: Commit, progress: OnProgress, threads: int, verified: str
) -> Manifest | str:
    """The manifest of a commit that is whole, or why it is not."""
    try:
        manifest = manifest_of(log, store, commit)
    except ManifestDamaged as error:
        return error.what
    if commit.sha256 == verified:
        return manifest
    damages = verify(store, manifest, progress, threads=threads)
    if not damages:
        return manifest
    first = damages[0]
    return f"{len(damages)} of its {len(manifest.parts)} parts are damaged, first {first.part}: {first.why}"


def _asked(log: CommitLog, commit: str | None, before_ms: int | None) -> list[Commit]:
    """The commits that may be chosen, ascending."""
    there = log.commits()
    found = [each for each in there if before_ms is None or each.min_time_ms <= before_ms]
    if commit is not None:
        found = [each for each in found if each.id == commit] or [each for each in found if each.name == commit][-1:]
    if not found:
        raise _no_such(log.job, there, commit, before_ms)
    return found


def _no_such(job: str, there: Sequence[Commit], commit: str | None, before_ms: int | None) -> SnapshotsError:
    asked = "" if commit is None else f" {commit!r}"
    when = "" if before_ms is None else f" with a min time up to {before_ms} ms"
    if not there:
        return NoSuchCommit(
            f"job {job!r} has no commits", way_out="start the job without state, or take a snapshot first"
        )
    names = [_name(each) for each in reversed(there)]
    more = [f"and {len(names) - MAX_SHOWN} older ones"] if len(names) > MAX_SHOWN else []
    return NoSuchCommit(
        f"job {job!r} has no commit{asked}{when}",
        where="there are " + "; ".join(names[:MAX_SHOWN] + more),
        way_out="give the id or the name of one of these",
    )


def _none_good(job: str, store: Store, skipped: Sequence[tuple[Commit, str]]) -> NoGoodCommit:
    whys = [f"{_name(commit)}: {why}" for commit, why in skipped[:MAX_SHOWN]]
    return NoGoodCommit(
        f"job {job!r} cannot recover from any of these commits: {'; '.join(whys)}",
        where=store.where,
        way_out="restore the store from a backup, choose another commit, or start without state",
    )


def _name(commit: Commit) -> str:
    named = f" {commit.name!r}" if commit.name else ""
    return f"{commit.id}{named} at {commit.min_time_ms} ms"


def _damaged(why: str, store: Store, commit: Commit) -> ManifestDamaged:
    return ManifestDamaged(
        f"the manifest of commit {commit.id} is damaged: {why}",
        where=f"{store.where}, {commit.manifest}",
        way_out="recover from an earlier commit, and check the store",
    )
