"""The commit log (R16): which snapshots a job may be recovered from, and which one its current life came from.

    commits/<tick>-<id>   one per commit
    last_commit           a copy of the last one: the only place where T is compared
    reserved              snapshots under way that are committed even if a newer one is before them
    restored              which commit the current life was loaded from

Each write is one transaction over these nodes and the incarnation's; the rules are written once, for a ZooKeeper and
for nodes in memory alike. After a transaction whose answer was lost, the plan is asked again and finds what was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from lowtide_snapshots.commits.record import Commit, Restored
from lowtide_snapshots.commits.reservation import Reservation, reserved_in, reserved_to_bytes
from lowtide_snapshots.errors import (
    CommitNeeded,
    CommitRefused,
    CommitUnknown,
    EntryDiffers,
    NoSuchCommit,
    WriteUnknown,
)
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.job.incarnations import check_of, number_in
from lowtide_snapshots.job.paths import JobPaths
from lowtide_snapshots.zookeeper.nodes import Check, Create, Delete, Node, Nodes, Operation, Set

if TYPE_CHECKING:
    from lowtide_snapshots.job.store import JobStore

__all__ = ["Commit", "CommitLog", "Reservation", "Restored", "ZooKeeperCommitLog", "utc"]

DROP_AT_ONCE = 500


def utc(at: datetime) -> str:
    """A time as commits and manifests hold it: ISO, UTC, milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class CommitLog:
    """A job's commits, to be used from one thread. Every method may raise `ZooKeeperUnavailable`."""

    def __init__(
        self, nodes: Nodes, paths: JobPaths, job: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.job = job
        self._nodes = nodes
        self._paths = paths
        self._now = now

    def incarnation(self) -> int:
        """The number of the job's current or last life; 0 if it has had none."""
        return number_in(self._get(self._paths.incarnation), self._paths)

    def commits(self) -> list[Commit]:
        """All commits that there were at one moment, ascending by tick."""
        while True:
            names = self._nodes.children(self._paths.commits) or []
            paths = [f"{self._paths.commits}/{name}" for name in names]
            nodes = self._nodes.get_all(paths)
            found = [Commit.from_bytes(node.data, path) for path, node in zip(paths, nodes, strict=True) if node]
            # One that was dropped meanwhile may be the base of one that came meanwhile: a list with neither of them
            # would let a sweep take parts that the new one needs.
            if len(found) == len(names):
                return found

    def last(self) -> Commit | None:
        """The commit to recover from; None before the first."""
        return self._last(self._get(self._paths.last_commit))

    def restored(self) -> Restored | None:
        """From what the current or last life was loaded; None if none has said."""
        return self._restored(self._get(self._paths.restored))

    def watch(self, on_commit: Callable[[Commit], None]) -> None:
        """Tell the last commit now and each time there is another one, ascending.

        A commit below it is reported again. Of several that follow each other at once only the last may be
        reported. On any thread, which the callee must not hold; it must not raise.
        """
        before = -1

        def changed(data: bytes | None) -> None:
            nonlocal before
            commit = Commit.from_bytes(data, self._paths.last_commit) if data else None
            if commit and commit.tick >= before:
                before = commit.tick
                on_commit(commit)

        self._nodes.watch(self._paths.last_commit, changed)

    def reserved(self) -> list[Reservation]:
        """The snapshots under way for which a place among the commits is reserved."""
        life, found = self._nodes.get_all([self._paths.incarnation, self._paths.reserved])
        return self._reserved(found, number_in(life, self._paths))

    def reserve(self, incarnation: int, snapshot: str, bases: Iterable[str]) -> None:
        """Reserve a place for a snapshot, before the first of its parts is written (R17).

        From then on it may be committed though a newer one is, what it writes is not swept, and none of its possible
        bases is dropped. Done again, it gives others as its bases.

        Args:
            incarnation: the life that takes it.
            snapshot: its id.
            bases: ids of commits of which one may be its base; those that are not there are left out.

        Raises:
            Fenced: the life is over.
        """
        path, asked = self._paths.reserved, set(bases)

        def plan() -> list[Operation]:
            life, found = self._nodes.get_all([self._paths.incarnation, path])
            there = self._checks_of(asked)
            mine = Reservation(snapshot, tuple(sorted(there)))
            others = [each for each in self._reserved(found, incarnation) if each.snapshot != snapshot]
            data = reserved_to_bytes([*others, mine], path)
            fence = self._fence(life, incarnation)
            if found is not None and found.data == data:
                return []
            return [*fence, *there.values(), _put(path, found, data)]

        self._nodes.write(plan)

    def release(self, incarnation: int, snapshot: str) -> None:
        """Give up what was reserved for a snapshot, which will not be committed; fine if it is gone.

        Raises:
            Fenced: the life is over.
        """

        def plan() -> list[Operation]:
            life, found = self._nodes.get_all([self._paths.incarnation, self._paths.reserved])
            fence = self._fence(life, incarnation)
            given_up = self._without(found, incarnation, snapshot)
            return [*fence, *given_up] if given_up else []

        self._nodes.write(plan)

    def commit(self, manifest: Manifest, sha256: str) -> Commit:
        """Make a sealed snapshot the one to recover from; done before, it is done.

        One transaction: the manifest's life is the current one, T is above the last commit's, and the commit that the
        snapshot is based on is still there, since its parts would go with it. If its own life has made a newer commit
        meanwhile, a snapshot with a reservation is committed as well: the last commit stays the last.

        Args:
            manifest: in the store already, with all its parts.
            sha256: of the manifest, in lower hex.

        Raises:
            Fenced: the life that took it is over.
            CommitRefused: T is not above the last commit's and no place is reserved, or the base was dropped.
            CommitUnknown: the answer was lost; call it again.
            ZooKeeperUnavailable: nothing was written.
        """
        self._must_be_ours(manifest)
        at = utc(self._now())
        asked = Commit(manifest.tick, manifest.id, manifest.name, manifest.path, sha256, manifest.incarnation, at)
        made = asked

        def plan() -> list[Operation]:
            nonlocal made
            path = self._paths.commit(asked.tick, asked.id)
            base = self._base(manifest)
            # Its own node is read last: what speaks against the commit stays so, and another may have made it before.
            guards = [self._paths.incarnation, self._paths.last_commit, self._paths.reserved]
            life, last, reserved, found = self._nodes.get_all([*guards, path])
            if found is not None:
                made = _same(Commit.from_bytes(found.data, path), asked, path)
                return []
            if manifest.base is not None and not base:
                raise self._base_gone(manifest)
            checks = [*self._fence(life, asked.incarnation), *base]
            kept = self._without(reserved, asked.incarnation, asked.id)
            data = asked.to_bytes()
            if last is not None and kept and self._is_beside(self._last(last), asked):
                # The last commit stays the last; it is written again so that watchers learn of this one.
                return [*checks, Create(path, data), Set(self._paths.last_commit, last.data, last.version), *kept]
            self._must_be_above(self._last(last), asked)
            return [*checks, Create(path, data), _put(self._paths.last_commit, last, data), *kept]

        try:
            self._nodes.write(plan)
        except WriteUnknown as error:
            raise CommitUnknown(
                f"unknown whether snapshot {asked.id} of job {self.job!r} is committed: the answer was lost",
                where=error.where,
                way_out="commit it again once ZooKeeper answers: the retry finds out",
            ) from error
        return made

    def drop(self, commits: Iterable[Commit]) -> None:
        """Drop commits; those that are not there are fine.

        Each transaction checks that there is no new life, no new commit, no reservation and no other restored one since
        it was looked whether they are needed.

        Raises:
            CommitNeeded: one is the last, or the one that the current life was loaded from, or a snapshot with a
                reservation may rest on it; none of them is dropped, unless there are more than 500.
        """
        asked = sorted(commits, key=lambda commit: commit.tick)
        for start in range(0, len(asked), DROP_AT_ONCE):
            some = asked[start : start + DROP_AT_ONCE]
            self._nodes.write(partial(self._dropping, some))

    def set_restored(self, incarnation: int, commit: Commit | None) -> None:
        """Say from what a life is going to be loaded, so that it is not dropped meanwhile.

        Raises:
            Fenced: the life is over.
            NoSuchCommit: it was dropped; choose again.
        """
        path = self._paths.restored
        data = Restored(incarnation, commit).to_bytes()

        def plan() -> list[Operation]:
            life, found = self._nodes.get_all([self._paths.incarnation, path])
            operations: list[Operation] = [*self._fence(life, incarnation)]
            if found is not None and found.data == data:
                return []
            if commit is not None:
                operations.append(self._there(commit))
            return [*operations, _put(path, found, data)]

        self._nodes.write(plan)

    def rewind(self, incarnation: int, commit: Commit) -> None:
        """Make a commit the last one again: those above it are dropped, because their content will be recreated.

        Raises:
            Fenced: the life is over.
            NoSuchCommit: it was dropped; choose again.
        """

        def plan() -> list[Operation]:
            life, last = self._nodes.get_all([self._paths.incarnation, self._paths.last_commit])
            known = self._last(last)
            if known is not None and known.id == commit.id:
                return []
            above = [each for each in self.commits() if each.tick > commit.tick]
            paths = [self._paths.commit(each.tick, each.id) for each in above]
            there = [(path, node) for path, node in zip(paths, self._nodes.get_all(paths), strict=True) if node]
            return [
                *self._fence(life, incarnation),
                self._there(commit),
                _put(self._paths.last_commit, last, commit.to_bytes()),
                *(Delete(path, node.version) for path, node in there),
            ]

        self._nodes.write(plan)

    def _dropping(self, commits: Sequence[Commit]) -> list[Operation]:
        paths = [self._paths.commit(commit.tick, commit.id) for commit in commits]
        guards = [self._paths.incarnation, self._paths.last_commit, self._paths.restored, self._paths.reserved]
        life, last, restored, reserved, *found = self._nodes.get_all([*guards, *paths])
        there = [(path, node) for path, node in zip(paths, found, strict=True) if node]
        if not there:
            return []
        rest = self._reserved(reserved, number_in(life, self._paths))
        self._must_not_be_needed(commits, self._last(last), self._restored(restored), rest)
        guarded = zip(guards, (life, last, restored, reserved), strict=True)
        checks: list[Operation] = [Check(path, node.version) for path, node in guarded if node]
        # What is not there has no version to check.
        if restored is None:
            checks.append(Create(self._paths.restored, Restored(0, None).to_bytes()))
        if reserved is None:
            checks.append(Create(self._paths.reserved, reserved_to_bytes((), self._paths.reserved)))
        return [*checks, *(Delete(path, node.version) for path, node in there)]

    def _must_not_be_needed(
        self,
        commits: Sequence[Commit],
        last: Commit | None,
        restored: Restored | None,
        reserved: Sequence[Reservation],
    ) -> None:
        needed: dict[str | None, str] = {
            base: f"snapshot {each.snapshot}, under way, may need it" for each in reserved for base in each.bases
        }
        needed |= {
            last.id if last else None: "it is the last commit",
            restored.commit.id if restored and restored.commit else None: "the current life began from it",
        }
        for commit in commits:
            if commit.id in needed:
                raise CommitNeeded(
                    f"commit {commit.id} of job {self.job!r} cannot be dropped: {needed[commit.id]}",
                    where=self._paths.commit(commit.tick, commit.id),
                    way_out="drop others, or commit a newer snapshot first",
                )

    def _fence(self, life: Node | None, incarnation: int) -> list[Operation]:
        return [check_of(life, self._paths, self.job, incarnation)]

    def _base(self, manifest: Manifest) -> list[Operation]:
        """The check that the commit is there which a snapshot is based on; empty if it is not, or there is none."""
        return list(self._checks_of({manifest.base} if manifest.base else set()).values())

    def _checks_of(self, ids: set[str]) -> dict[str, Operation]:
        """The checks that commits are there, by id, of those that are."""
        names = (self._nodes.children(self._paths.commits) or []) if ids else []
        found = {name.partition("-")[2]: f"{self._paths.commits}/{name}" for name in names}
        return {id_: Check(path, 0) for id_, path in found.items() if id_ in ids}

    def _without(self, found: Node | None, incarnation: int, snapshot: str) -> list[Operation]:
        """The writes that take a snapshot's reservation away; none if it has none."""
        before = self._reserved(found, incarnation)
        left = [each for each in before if each.snapshot != snapshot]
        if found is None or len(left) == len(before):
            return []
        path = self._paths.reserved
        return [Set(path, reserved_to_bytes(left, path), found.version)]

    @staticmethod
    def _is_beside(last: Commit | None, asked: Commit) -> bool:
        """True if a snapshot was overtaken by one of its own life, which has its state as a past."""
        return last is not None and asked.tick <= last.tick and last.incarnation == asked.incarnation

    def _base_gone(self, manifest: Manifest) -> CommitRefused:
        return CommitRefused(
            f"snapshot {manifest.id} needs parts of commit {manifest.base}, which was dropped",
            where=self._paths.commits,
            way_out="take another snapshot",
        )

    def _there(self, commit: Commit) -> Operation:
        path = self._paths.commit(commit.tick, commit.id)
        node = self._get(path)
        if node is None:
            raise NoSuchCommit(f"commit {commit.id} was dropped", where=path, way_out="choose another")
        return Check(path, node.version)

    def _must_be_above(self, last: Commit | None, asked: Commit) -> None:
        if last is not None and asked.tick <= last.tick:
            raise CommitRefused(
                f"snapshot {asked.id} of job {self.job!r} is at tick {asked.tick}, which is not above the last commit, "
                f"{last.id} at tick {last.tick}",
                where=self._paths.last_commit,
                way_out="take another snapshot",
            )

    def _must_be_ours(self, manifest: Manifest) -> None:
        if manifest.job != self.job or manifest.tick < 0:
            raise CommitRefused(
                f"snapshot {manifest.id} is of job {manifest.job!r} at tick {manifest.tick}",
                where=f"the commits of job {self.job!r}",
                way_out="commit a snapshot of this job",
            )

    def _reserved(self, node: Node | None, incarnation: int) -> list[Reservation]:
        return reserved_in(node.data if node else None, self._paths.reserved, incarnation)

    def _last(self, node: Node | None) -> Commit | None:
        return Commit.from_bytes(node.data, self._paths.last_commit) if node else None

    def _restored(self, node: Node | None) -> Restored | None:
        return Restored.from_bytes(node.data, self._paths.restored) if node else None

    def _get(self, path: str) -> Node | None:
        return self._nodes.get_all([path])[0]


class ZooKeeperCommitLog(CommitLog):
    """The log of a job's place in ZooKeeper, over the store's connection and on its thread."""

    def __init__(self, store: JobStore) -> None:
        super().__init__(*store.nodes, store.job)


def _same(found: Commit, asked: Commit, path: str) -> Commit:
    if not found.same_as(asked):
        raise EntryDiffers(
            f"snapshot {asked.id} is committed already, with another manifest: {found.sha256} and not {asked.sha256}",
            where=path,
            way_out="report it: two snapshots have one id",
        )
    return found


def _put(path: str, found: Node | None, data: bytes) -> Operation:
    return Create(path, data) if found is None else Set(path, data, found.version)
