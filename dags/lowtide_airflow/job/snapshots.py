"""A job's snapshots, to be found, verified, committed, pruned and chosen from, whether the job runs or not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from lowtide_snapshots.commits.choice import Choice, choose
from lowtide_snapshots.commits.known import KnownSnapshot, KnownSnapshots
from lowtide_snapshots.commits.log import Commit
from lowtide_snapshots.commits.retention import Rule, Swept, bases, plan, sweep
from lowtide_snapshots.commits.verification import Damage, verify
from lowtide_snapshots.format.parts import sha256


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of a prune, or what it would be: ids of commits, counts, bytes.

    Attributes:
        damaged: why the manifest of a kept commit cannot be read, by its id; as long as there is one, no part is
            deleted.
    """

    dry_run: bool
    kept: list[str]
    dropped: list[str]
    manifests: int
    parts: int
    bytes: int
    damaged: dict[str, str]


class JobSnapshots(KnownSnapshots):
    """A job's commits and its objects in the store; a context that closes the store."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.files.close()

    def verify(self, asked: str | None = None) -> tuple[KnownSnapshot, list[Damage]]:
        """Read and check every part of a snapshot; returns it and its damages, none if it is whole.

        Raises:
            NoSuchCommit: there is no such snapshot.
            ManifestDamaged, FormatTooNew: its manifest cannot be read.
        """
        known = self.find(asked)
        return known, verify(self.files, self.read(known), _no_progress)

    def commit(self, asked: str) -> Commit:
        """Make a sealed snapshot the one to recover from, without verifying it; does nothing if it is committed.

        Raises:
            CommitRefused: a newer one is committed, its base was dropped, or nothing shows that it was ever sealed.
            Fenced: another life has begun, so it is over.
            CommitUnknown: the answer was lost; call it again.
        """
        known = self.find(asked)
        if known.commit is not None:
            return known.commit
        manifest = self.read(known)
        return self.log.commit(manifest, sha256(manifest.to_json().encode()))

    def newer_than(self, asked: str) -> Commit | None:
        """Return the last commit if it holds everything that a snapshot holds, and more (errors: NoSuchCommit)."""
        known, last = self.find(asked), self.log.last()
        return last if last is not None and last.id != known.id and last.min_time_ms >= known.min_time_ms else None

    def prune(self, keep: int, max_age_s: float | None = None, *, dry_run: bool = False) -> Pruned:
        """Drop the commits that the rule does not keep, then delete everything that nothing needs.

        Never dropped: the last commit, the one that the current life began from, those that a sealed snapshot needs,
        and those with a name. Calling it again after a failure resumes it.
        """
        log, rule = self.log, Rule(keep, max_age_s)
        based_on = bases(log, self.files)
        kept, dropped = plan(log.commits(), log.last(), log.restored(), rule, datetime.now(UTC), based_on=based_on)
        swept = Swept() if dry_run else sweep(log, self.files, dropped)
        return Pruned(
            dry_run=dry_run,
            kept=[each.id for each in kept],
            dropped=[each.id for each in dropped],
            manifests=swept.manifests,
            parts=swept.parts,
            bytes=swept.bytes,
            damaged={commit.id: why for commit, why in swept.unreadable},
        )

    def choose(self, commit: str | None = None, before_ms: int | None = None) -> Choice:
        """Return the newest good commit, after reading every part of it.

        Args:
            commit: consider only this one, by the snapshot's id or name.
            before_ms: consider only those whose min time is at or before this one.

        Raises:
            NoSuchCommit: there is none that was asked for.
            NoGoodCommit: all of them are damaged.
        """
        return choose(self.log, self.files, commit=commit, before_ms=before_ms, progress=_no_progress)


def plain(known: KnownSnapshot) -> dict[str, Any]:
    """Return a snapshot as plain values, as a task returns them."""
    manifest = known.manifest
    return {
        "id": known.id,
        "name": known.name,
        "phase": known.phase,
        "min_time_ms": known.min_time_ms,
        "manifest": known.path,
        "incarnation": known.incarnation,
        "committed": known.commit.at if known.commit else None,
        "created": manifest.created if manifest else None,
        "parts": len(manifest.parts) if manifest else None,
        "rows": manifest.rows if manifest else None,
        "bytes": manifest.bytes if manifest else None,
        "why": known.why,
    }


def _no_progress(_done: int, _of: int) -> None:
    pass
