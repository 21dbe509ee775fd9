"""A job's snapshots: found, verified, committed, pruned, chosen from; with the job alive or dead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from lowtide_airflow.known_snapshot import KnownSnapshot, Phase
from lowtide_snapshots.commits.choice import Choice, choose, manifest_of
from lowtide_snapshots.commits.log import Commit, CommitLog
from lowtide_snapshots.commits.retention import Rule, Swept, bases, plan, sweep
from lowtide_snapshots.commits.verification import Damage, Told, verify
from lowtide_snapshots.errors import FormatTooNew, ManifestDamaged, NoSuchCommit
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.format.names import ObjectName, incarnation_of, parse_name
from lowtide_snapshots.format.parts import sha256
from lowtide_snapshots.job.paths import node_name
from lowtide_snapshots.stores import Store
from lowtide_snapshots.stores.errors import NotThere, StoreDamaged

__all__ = ["JobSnapshots", "Pruned"]

MOST_SHOWN = 20


def _nobody(_done: int, _of: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a prune has done, or would do: ids of commits, counts, bytes.

    Attributes:
        damaged: by the id of a kept commit why its manifest cannot be read; while there is one no part is deleted.
    """

    dry_run: bool
    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    manifests: int
    parts: int
    bytes: int
    damaged: dict[str, str]

    def as_object(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "dry_run": self.dry_run,
            "kept": list(self.kept),
            "dropped": list(self.dropped),
            "manifests": self.manifests,
            "parts": self.parts,
            "bytes": self.bytes,
            "damaged": self.damaged,
        }


class JobSnapshots:
    """A job's commits and what lies in the store for it; a context. All methods raise what stores and logs raise.

    Args:
        log: the commits.
        files: the store, closed with this.
    """

    def __init__(self, log: CommitLog, files: Store) -> None:
        self.job = log.job
        self._log = log
        self._files = files

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._files.close()

    def all(self) -> list[KnownSnapshot]:
        """All that are known, ascending by min time; reads every manifest."""
        commits = self._log.commits()
        found = [*map(self._committed, commits), *self._uncommitted(commits)]
        return sorted(found, key=lambda known: (known.min_time_ms, known.id))

    def find(self, asked: str | None = None) -> KnownSnapshot:
        """One by its id or its name, of several the newest; where none is asked for, the last commit.

        Raises:
            NoSuchCommit: there is none; the text names those that are there.
        """
        commits = self._log.commits()
        if asked is None:
            if not commits:
                raise NoSuchCommit(f"job {self.job!r} has no commits", way_out="take a snapshot first")
            return self._committed(commits[-1])
        named = [each for each in commits if each.id == asked] or [each for each in commits if each.name == asked]
        if named:
            return self._committed(named[-1])
        others = list(self._uncommitted(commits))
        found = [each for each in others if each.id == asked] or [each for each in others if each.name == asked]
        if not found:
            raise self._no_such(asked)
        return found[-1]

    def verify(self, asked: str | None = None, told: Told = _nobody) -> tuple[KnownSnapshot, list[Damage]]:
        """Read and check every part of a snapshot; it, and what of it is damaged, nothing if it is whole.

        Raises:
            NoSuchCommit: there is none.
            ManifestDamaged, FormatTooNew: not even its manifest can be read.
        """
        known = self.find(asked)
        return known, verify(self._files, self._read(known), told)

    def commit(self, asked: str) -> Commit:
        """Make a sealed snapshot the one to recover from; done before, it is done. It is not verified here.

        Raises:
            CommitRefused: a newer one is committed, its base was dropped, or nothing says that it was ever sealed.
            Fenced: another life has begun, so it is over.
            CommitUnknown: the answer was lost; call it again.
        """
        known = self.find(asked)
        if known.commit is not None:
            return known.commit
        manifest = self._read(known)
        return self._log.commit(manifest, sha256(manifest.to_json().encode()))

    def newer_than(self, asked: str) -> Commit | None:
        """The last commit, if it holds all that a snapshot would, and more; None if it does not.

        Raises:
            NoSuchCommit: there is no such snapshot.
        """
        known, last = self.find(asked), self._log.last()
        return last if last is not None and last.id != known.id and last.min_time_ms >= known.min_time_ms else None

    def prune(self, keep: int, max_age_s: float | None = None, *, dry_run: bool = False) -> Pruned:
        """Drop the commits that a rule does not keep, then delete what nothing needs any more.

        Never dropped: the last commit, the one that the current life began from, those that a sealed snapshot rests
        on, and those with a name. Called again after a failure it goes on.
        """
        log, rule = self._log, Rule(keep, max_age_s)
        based_on = bases(log, self._files)
        kept, dropped = plan(log.commits(), log.last(), log.restored(), rule, datetime.now(UTC), based_on=based_on)
        swept = Swept() if dry_run else sweep(log, self._files, dropped)
        return Pruned(
            dry_run=dry_run,
            kept=tuple(each.id for each in kept),
            dropped=tuple(each.id for each in dropped),
            manifests=swept.manifests,
            parts=swept.parts,
            bytes=swept.bytes,
            damaged={commit.id: why for commit, why in swept.unreadable},
        )

    def choose(self, commit: str | None = None, before_ms: int | None = None, told: Told = _nobody) -> Choice:
        """The newest good commit of those that are asked for, every part of it read.

        Args:
            commit: only this one, by the snapshot's id or name.
            before_ms: only those whose min time is at or before this one.
            told: told (done, of how many), once for each snapshot that is read.

        Raises:
            NoSuchCommit: there is none that was asked for.
            NoGoodCommit: all of them are damaged.
        """
        return choose(self._log, self._files, commit=commit, before_ms=before_ms, told=told)

    def _read(self, known: KnownSnapshot) -> Manifest:
        if known.manifest is not None:
            return known.manifest
        if known.commit is not None:
            return manifest_of(self._log, self._files, known.commit)
        return Manifest.from_json(self._files.get(known.path), f"{self._files.where}, {known.path}")

    def _committed(self, commit: Commit) -> KnownSnapshot:
        manifest, why = None, ""
        try:
            manifest = manifest_of(self._log, self._files, commit)
        except (ManifestDamaged, FormatTooNew) as error:
            why = error.what
        return KnownSnapshot(
            id=commit.id,
            name=commit.name,
            phase="committed",
            min_time_ms=commit.min_time_ms,
            path=commit.manifest,
            incarnation=commit.incarnation,
            commit=commit,
            manifest=manifest,
            why=why,
        )

    def _uncommitted(self, commits: list[Commit]) -> Iterator[KnownSnapshot]:
        """Snapshots whose manifests are there though they are not committed."""
        life, last = self._log.incarnation(), commits[-1] if commits else None
        known = {commit.manifest for commit in commits}
        for entry in self._files.names(f"{node_name(self.job)}/manifests/"):
            name = parse_name(entry.name)
            if name is None or entry.name in known:
                continue
            manifest, why = None, ""
            try:
                manifest = Manifest.from_json(self._files.get(entry.name), entry.name)
            except (ManifestDamaged, FormatTooNew, StoreDamaged) as error:
                why = error.what
            except NotThere:
                continue
            phase: Phase = "over" if _over(name, life, last) else "sealed"
            yield KnownSnapshot(
                id=name.snapshot,
                name=manifest.name if manifest is not None else None,
                phase=phase,
                min_time_ms=name.min_time_ms,
                path=entry.name,
                incarnation=incarnation_of(name.snapshot),
                commit=None,
                manifest=manifest,
                why=why,
            )

    def _no_such(self, asked: str) -> NoSuchCommit:
        there = [f"{known.id} {known.name!r}" if known.name else known.id for known in reversed(self.all())]
        more = [f"and {len(there) - MOST_SHOWN} older ones"] if len(there) > MOST_SHOWN else []
        return NoSuchCommit(
            f"job {self.job!r} has no snapshot {asked!r}",
            where="there are " + ", ".join(there[:MOST_SHOWN] + more) if there else self._files.where,
            way_out="give the id or the name of one of these" if there else "take a snapshot first",
        )


def _over(name: ObjectName, life: int, last: Commit | None) -> bool:
    """Whether a snapshot can never be committed any more."""
    return incarnation_of(name.snapshot) < life or (last is not None and name.min_time_ms <= last.min_time_ms)
