"""A job's known snapshots: those that are committed, and those whose manifests are in the store.

They are read from the commit log and the store, whether the job runs or not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from lowtide_snapshots.commits.choice import manifest_of
from lowtide_snapshots.commits.log import Commit, CommitLog
from lowtide_snapshots.errors import FormatTooNew, ManifestDamaged, NoSuchCommit
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.format.names import ObjectName, incarnation_of, parse_name
from lowtide_snapshots.job.paths import node_name
from lowtide_snapshots.stores import Store
from lowtide_snapshots.stores.errors import NotThere, StoreDamaged

MOST_SHOWN = 20

Phase = Literal["committed", "sealed", "over"]


@dataclass(frozen=True, slots=True)
class KnownSnapshot:
    """A snapshot that is committed, or whose manifest is in the store.

    Attributes:
        id: its id.
        name: its name; None for one without.
        phase: "sealed" may still be committed; "over" cannot, and goes with the next prune.
        min_time_ms: its T, ms since 1970.
        path: its manifest's name in the store.
        incarnation: the life that took it.
        commit: its commit; None if it has none.
        manifest: the manifest; None if it cannot be read.
        why: why the manifest cannot be read; empty if it can.
    """

    id: str
    name: str | None
    phase: Phase
    min_time_ms: int
    path: str
    incarnation: int
    commit: Commit | None
    manifest: Manifest | None
    why: str

    @property
    def called(self) -> str:
        """Its id, and its name if it has one."""
        return f'{self.id} "{self.name}"' if self.name else self.id


class KnownSnapshots:
    """The known snapshots of one job. Every method raises what the log and the store raise.

    Args:
        log: the commits.
        files: the store.
        take: how a job without snapshots gets one, for errors.
    """

    def __init__(self, log: CommitLog, files: Store, *, take: str = "take a snapshot first") -> None:
        self.job = log.job
        self.log = log
        self.files = files
        self._take = take

    def all(self) -> list[KnownSnapshot]:
        """Return all of them, ascending by min time; reads every manifest."""
        commits = self.log.commits()
        found = [*map(self._committed, commits), *self._uncommitted(commits)]
        return sorted(found, key=lambda known: (known.min_time_ms, known.id))

    def find(self, asked: str | None = None) -> KnownSnapshot:
        """Return one by its id or name, the newest of several; the last commit if none is asked for.

        Raises:
            NoSuchCommit: there is none; the text lists those that exist.
        """
        commits = self.log.commits()
        if asked is None:
            if not commits:
                raise NoSuchCommit(f'job "{self.job}" has no commits', way_out=self._take)
            return self._committed(commits[-1])
        named = [each for each in commits if each.id == asked] or [each for each in commits if each.name == asked]
        if named:
            return self._committed(named[-1])
        others = list(self._uncommitted(commits))
        found = [each for each in others if each.id == asked] or [each for each in others if each.name == asked]
        if not found:
            raise self._no_such(asked)
        return found[-1]

    def read(self, known: KnownSnapshot) -> Manifest:
        """Return the manifest of a snapshot (errors: ManifestDamaged, FormatTooNew)."""
        if known.manifest is not None:
            return known.manifest
        if known.commit is not None:
            return manifest_of(self.log, self.files, known.commit)
        return Manifest.from_json(self.files.get(known.path), f"{self.files.where}, {known.path}")

    def _committed(self, commit: Commit) -> KnownSnapshot:
        manifest, why = None, ""
        try:
            manifest = manifest_of(self.log, self.files, commit)
        except (ManifestDamaged, FormatTooNew) as error:
            why = error.what
        return KnownSnapshot(
            commit.id,
            commit.name,
            "committed",
            commit.min_time_ms,
            commit.manifest,
            commit.incarnation,
            commit,
            manifest,
            why,
        )

    def _uncommitted(self, commits: list[Commit]) -> Iterator[KnownSnapshot]:
        """Yield the snapshots whose manifests are in the store without a commit."""
        life, last = self.log.incarnation(), commits[-1] if commits else None
        committed, awaited = {commit.manifest for commit in commits}, {each.snapshot for each in self.log.reserved()}
        for entry in self.files.names(f"{node_name(self.job)}/manifests/"):
            name = parse_name(entry.name)
            if name is None or entry.name in committed:
                continue
            manifest, why = None, ""
            try:
                manifest = Manifest.from_json(self.files.get(entry.name), entry.name)
            except (ManifestDamaged, FormatTooNew, StoreDamaged) as error:
                why = error.what
            except NotThere:
                continue
            phase: Phase = "over" if _is_over(name, life, last, awaited) else "sealed"
            called = manifest.name if manifest is not None else None
            taken_by = incarnation_of(name.snapshot)
            yield KnownSnapshot(
                name.snapshot, called, phase, name.min_time_ms, entry.name, taken_by, None, manifest, why
            )

    def _no_such(self, asked: str) -> NoSuchCommit:
        there = [known.called for known in reversed(self.all())]
        more = [f"and {len(there) - MOST_SHOWN} older ones"] if len(there) > MOST_SHOWN else []
        return NoSuchCommit(
            f'job "{self.job}" has no snapshot "{asked}"',
            where="there are " + ", ".join(there[:MOST_SHOWN] + more) if there else self.files.where,
            way_out="give the id or the name of one of these" if there else self._take,
        )


def _is_over(name: ObjectName, life: int, last: Commit | None, awaited: Collection[str]) -> bool:
    """True if a snapshot can never be committed; one with a reserved place can."""
    if incarnation_of(name.snapshot) < life:
        return True
    return name.snapshot not in awaited and last is not None and name.min_time_ms <= last.min_time_ms
