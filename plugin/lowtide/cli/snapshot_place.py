"""Where a job's snapshots are: commit log and store, asked directly, whether the job runs or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from lowtide.cli.refusals import plain_errors
from lowtide.conf import Conf
from lowtide.conf.store_access import store_setting
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.errors import ConfError, NotRunning
from lowtide_snapshots.commits.choice import manifest_of
from lowtide_snapshots.commits.log import Commit, CommitLog, ZooKeeperCommitLog
from lowtide_snapshots.errors import FormatTooNew, ManifestDamaged, SnapshotsError
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.format.names import ObjectName, incarnation_of, parse_name
from lowtide_snapshots.job.paths import node_name
from lowtide_snapshots.job.registry import jobs
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.stores import Store, open_store
from lowtide_snapshots.stores.errors import NotThere, StoreDamaged

__all__ = ["Known", "SnapshotPlace", "opened"]

MOST_SHOWN = 20

Phase = Literal["committed", "sealed", "over"]


@dataclass(frozen=True, slots=True)
class Known:
    """A snapshot that is committed, or whose manifest is there.

    Attributes:
        id: Its id.
        name: What somebody called it.
        phase: "sealed" may still be committed; "over" cannot be any more, and goes with the next prune.
        min_time_ms: Its T.
        path: Its manifest's name in the store.
        commit: Its commit, if it has one.
        manifest: The manifest; None if it cannot be read.
        why: Why it cannot be read; empty if it can.
    """

    id: str
    name: str | None
    phase: Phase
    min_time_ms: int
    path: str
    commit: Commit | None
    manifest: Manifest | None
    why: str

    @property
    def called(self) -> str:
        """Its id, and its name if it has one."""
        return f'{self.id} "{self.name}"' if self.name else self.id


class SnapshotPlace:
    """A job's commits and manifests.

    Args:
        log: The commits.
        files: The store.
    """

    def __init__(self, log: CommitLog, files: Store) -> None:
        self.job = log.job
        self.log = log
        self.files = files

    def all(self) -> list[Known]:
        """Return all snapshots that are known, ascending by min time; reads every manifest."""
        commits = self.log.commits()
        found = [*map(self._committed, commits), *self._uncommitted(commits)]
        return sorted(found, key=lambda known: (known.min_time_ms, known.id))

    def find(self, asked: str | None) -> Known:
        """Return one snapshot, by its id or its name, of several the newest; where none is asked for, the last commit.

        Raises:
            ConfError: there is none of that id or name; those that are there are named.
        """
        commits = self.log.commits()
        if asked is None:
            if not commits:
                raise ConfError(f'job "{self.job}" has no commits', way_out=f"take one: lowtide snapshot {self.job}")
            return self._committed(commits[-1])
        named = [each for each in commits if each.id == asked] or [each for each in commits if each.name == asked]
        if named:
            return self._committed(named[-1])
        others = list(self._uncommitted(commits))
        sealed = [each for each in others if each.id == asked] or [each for each in others if each.name == asked]
        if not sealed:
            raise self._no_such(asked, self.all())
        return sealed[-1]

    def read(self, known: Known) -> Manifest:
        """Return the manifest of a snapshot.

        Raises:
            ManifestDamaged: it cannot be read.
        """
        if known.manifest is not None:
            return known.manifest
        if known.commit is not None:
            return manifest_of(self.log, self.files, known.commit)
        return Manifest.from_json(self.files.get(known.path), f"{self.files.where}, {known.path}")

    def _committed(self, commit: Commit) -> Known:
        manifest, why = None, ""
        try:
            manifest = manifest_of(self.log, self.files, commit)
        except (ManifestDamaged, FormatTooNew) as error:
            why = error.what
        name, path, at_ms = commit.name, commit.manifest, commit.min_time_ms
        return Known(commit.id, name, "committed", at_ms, path, commit, manifest, why)

    def _uncommitted(self, commits: list[Commit]) -> Iterator[Known]:
        """Snapshots whose manifests are there though they are not committed."""
        life, last = self.log.incarnation(), commits[-1] if commits else None
        known = {commit.manifest for commit in commits}
        for entry in self.files.names(f"{node_name(self.job)}/manifests/"):
            name = parse_name(entry.name)
            if name is None or entry.name in known:
                continue
            manifest, why = None, ""
            try:
                manifest = Manifest.from_json(self.files.get(entry.name), entry.name)
            except (ManifestDamaged, FormatTooNew, StoreDamaged) as error:
                why = error.what
            except NotThere:
                continue
            phase: Phase = "over" if _over(name, life, last) else "sealed"
            called = manifest.name if manifest is not None else None
            yield Known(name.snapshot, called, phase, name.min_time_ms, entry.name, None, manifest, why)

    def _no_such(self, asked: str, there: list[Known]) -> ConfError:
        newest = [known.called for known in reversed(there)]
        more = [f"and {len(newest) - MOST_SHOWN} older ones"] if len(newest) > MOST_SHOWN else []
        return ConfError(
            f'job "{self.job}" has no snapshot "{asked}"',
            where="there are " + ", ".join(newest[:MOST_SHOWN] + more) if newest else self.files.where,
            way_out="give the id or the name of one of these" if newest else f"take one: lowtide snapshot {self.job}",
        )


@contextmanager
def opened(conf: Conf, job: str) -> Iterator[tuple[SnapshotPlace, JobStore]]:
    """Give a job's snapshots and its place in ZooKeeper until the block ends.

    Raises:
        NotRunning: there never was such a job.
        ServiceUnavailable: ZooKeeper or the store does not answer, or does not let us in.
        SnapshotDamaged, SnapshotFailed: by what the block does.
    """
    with plain_errors(), ZooKeeperAccess.of(conf.zookeeper).store(job) as store:
        if store.record() is None:
            raise _no_job(conf, job)
        files = open_store(store_setting(conf.snapshots))
        try:
            yield SnapshotPlace(ZooKeeperCommitLog(store), files), store
        finally:
            files.close()


def _no_job(conf: Conf, job: str) -> NotRunning:
    known: list[str] = []
    with suppress(SnapshotsError):
        known = jobs(conf.zookeeper.hosts, root=conf.zookeeper.root, limit_s=conf.zookeeper.reach_limit_s)
    return NotRunning(
        f'there never was a job "{job}"',
        where=f"ZooKeeper at {conf.zookeeper.hosts}, /{conf.zookeeper.root}",
        way_out=f"there are: {', '.join(known[:MOST_SHOWN])}" if known else "start it: lowtide run flow.py --detach",
    )


def _over(name: ObjectName, life: int, last: Commit | None) -> bool:
    """Whether a snapshot can never be committed any more."""
    return incarnation_of(name.snapshot) < life or (last is not None and name.min_time_ms <= last.min_time_ms)
