"""Rules of snapshots, commits and retention broken on purpose (R16, R17), and a fall-back that is not taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from lowtide_snapshots.commits import choice as choosing
from lowtide_snapshots.commits import log as commit_log
from lowtide_snapshots.commits import retention
from lowtide_snapshots.commits.log import Commit, CommitLog, Reservation
from lowtide_snapshots.errors import CommitRefused
from lowtide_snapshots.zookeeper.nodes import Check, Create, Operation, Set

from .commit_life import Life
from .mutation import Mutation, Patch


def instead(owner: object, name: str, value: object) -> Callable[[], list[Patch]]:
    """One attribute that is replaced."""
    return lambda: [(owner, name, value)]


def own_parts_alone() -> list[Patch]:
    """What a kept manifest names of older snapshots' parts is not looked at."""
    real = retention._named

    def named(log: CommitLog, store: Any, kept: Iterable[Commit]) -> Any:
        kept = list(kept)
        names, unreadable = real(log, store, kept)
        return {name for name in names if any(commit.id in name for commit in kept)}, unreadable

    return [(retention, "_named", named)]


class _LogThatHides:
    """A log of which something is as it was seen before."""

    def __init__(self, log: CommitLog, seen: list[Commit] | None, reserved: list[Reservation] | None = None) -> None:
        self._log = log
        self._seen = seen
        self._was_reserved = reserved

    def commits(self) -> list[Commit]:
        return self._log.commits() if self._seen is None else self._seen

    def reserved(self) -> list[Reservation]:
        return self._log.reserved() if self._was_reserved is None else self._was_reserved

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def kept_read_early() -> list[Patch]:
    """Which commits are kept is read before the last one is."""
    real: Any = retention.sweep

    def sweep(log: CommitLog, store: Any, dropped: Iterable[Commit]) -> Any:
        log.drop(dropped)
        return real(_LogThatHides(log, log.commits()), store, [])

    return [(retention, "sweep", sweep)]


def swept_before_dropped() -> list[Patch]:
    """Objects are deleted first, and ZooKeeper is told afterwards."""
    real: Any = retention.sweep

    def sweep(log: CommitLog, store: Any, dropped: Iterable[Commit]) -> Any:
        dropped = list(dropped)
        ids = {commit.id for commit in dropped}
        swept = real(_LogThatHides(log, [c for c in log.commits() if c.id not in ids]), store, [])
        log.drop(dropped)
        return swept

    return [(retention, "sweep", sweep)]


def torn_list() -> list[Patch]:
    """Commits that vanish while they are read are left out, and the others taken for all."""

    def commits(self: CommitLog) -> list[Commit]:
        folder = self._paths.commits
        paths = [f"{folder}/{name}" for name in self._nodes.children(folder) or []]
        return [Commit.from_bytes(node.data, "") for node in self._nodes.get_all(paths) if node]

    return [(CommitLog, "commits", commits)]


def manifest_first(self: Life, manifest: Any, written: dict[str, Any]) -> None:
    """Seals a snapshot whose parts are still to come."""
    self.world.store.put(manifest.path, manifest.to_json().encode())
    for name, data in written.items():
        self.world.store.put(name, data)


def not_read_back(_found: Commit, asked: Commit, _path: str) -> Commit:
    """Takes what is there for somebody else's."""
    raise CommitRefused(f"{asked.id} is there")


def drop_unchecked() -> list[Patch]:
    """A commit is dropped although it is needed since it was looked."""
    real = CommitLog._dropping

    def dropping(self: CommitLog, commits: Any) -> list[Operation]:
        return [each for each in real(self, commits) if not isinstance(each, Check | Create)]

    return [(CommitLog, "_dropping", dropping)]


def restored_anyway() -> list[Patch]:
    """A life loads a commit that may be gone."""

    def there(self: CommitLog, _commit: Commit) -> Operation:
        node = self._get(self._paths.incarnation)
        assert node is not None
        return Check(self._paths.incarnation, node.version)

    return [(CommitLog, "_there", there)]


def base_anyway(self: CommitLog, manifest: Any) -> list[Operation]:
    """Checks nothing but what is checked anyway."""
    node = self._get(self._paths.incarnation)
    return [Check(self._paths.incarnation, node.version)] if node else []


def commit(name: str, rule: str, what: str, patches: Callable[[], list[Patch]], **options: Any) -> Mutation:
    return Mutation(name, rule, what, "commit", patches, options)


def reserved_late() -> list[Patch]:
    """A place is reserved for a snapshot once it is sealed."""
    real: Any = Life.seal

    def seal(self: Life, manifest: Any, written: dict[str, Any]) -> None:
        real(self, manifest, written)
        self.log.reserve(self.number, manifest.id, [manifest.base] if manifest.base else [])

    return [(Life, "reserve", lambda *_: None), (Life, "seal", seal)]


def reserved_read_early() -> list[Patch]:
    """Read the reservations before the objects are listed."""
    real: Any = retention.sweep

    def sweep(log: CommitLog, store: Any, dropped: Iterable[Commit]) -> Any:
        log.drop(dropped)
        return real(_LogThatHides(log, None, log.reserved()), store, [])

    return [(retention, "sweep", sweep)]


def reserved_bases_dropped() -> list[Patch]:
    """Neither a plan nor a drop looks at what snapshots with a reservation rest on."""
    real: Any = CommitLog._must_not_be_needed

    def needed(self: CommitLog, commits: Any, last: Any, restored: Any, _reserved: Any) -> None:
        real(self, commits, last, restored, ())

    return [(CommitLog, "_must_not_be_needed", needed), (retention, "bases", lambda *_: set())]


def beside_unreserved() -> list[Patch]:
    """Ignore a snapshot's reservation."""

    def without(self: CommitLog, found: Any, *_: Any) -> list[Operation]:
        if found is None:
            return [Create(self._paths.reserved, b'{"reserved": []}')]
        return [Set(self._paths.reserved, found.data, found.version)]

    return [(CommitLog, "_without", without)]


_COMMIT: Any = CommitLog.commit


def given_up_before_its_commit(self: CommitLog, manifest: Any, data: str) -> Commit:
    """Lets go of a reservation, and then commits."""
    below = self.last()
    if below is not None and manifest.tick <= below.tick and any(e.snapshot == manifest.id for e in self.reserved()):
        self.release(manifest.incarnation, manifest.id)
        life = self._get(self._paths.incarnation)
        made = Commit(manifest.tick, manifest.id, manifest.name, manifest.path, data, manifest.incarnation, "")
        path = self._paths.commit(made.tick, made.id)
        self._nodes.write(
            lambda: [] if self._get(path) else [*self._fence(life, made.incarnation), Create(path, made.to_bytes())]
        )
        return made
    return cast("Commit", _COMMIT(self, manifest, data))


def last_moved_back() -> list[Patch]:
    """Let a commit beside the last one become the last."""
    real: Any = CommitLog.commit

    def commit(self: CommitLog, manifest: Any, data: str) -> Commit:
        write = self._nodes.write

        def moved(plan: Callable[[], list[Operation]]) -> None:
            def other() -> list[Operation]:
                made = plan()
                new = next((each.data for each in made if isinstance(each, Create)), b"")
                path = self._paths.last_commit
                return [Set(path, new, e.version) if isinstance(e, Set) and e.path == path else e for e in made]

            write(other)

        vars(self._nodes)["write"] = moved
        try:
            return cast("Commit", real(self, manifest, data))
        finally:
            del vars(self._nodes)["write"]

    return [(CommitLog, "commit", commit)]


CALM: dict[str, float] = {"lost": 0, "fails": 0, "harms": 0}
"""Nothing fails but what is to show."""

COMMIT = [
    commit("zombie-commits", "R16", "a life that is over commits",
           instead(CommitLog, "_fence", lambda *_: [])),
    commit("time-not-compared", "R16", "T may lie below the last commit's",
           instead(CommitLog, "_must_be_above", lambda *_: None)),
    commit("answer-not-read-back", "R16", "a commit whose answer was lost counts as failed",
           instead(commit_log, "_same", not_read_back), lost=0.2),
    commit("manifest-first", "R16", "a manifest is put before its parts",
           instead(Life, "seal", manifest_first), fails=0.02),
    commit("no-fall-back", "R16", "a commit is recovered from that is damaged",
           instead(choosing, "verify", lambda *_, **__: []), harms=4),
    commit("base-not-held", "R17", "the base of a snapshot may be gone when it is committed",
           instead(CommitLog, "_base", base_anyway), reserves=0, waits=0.999, prunes=0, burst=30, beside=0.9, lives=2,
           **CALM),
    commit("base-parts-swept", "R17", "parts are swept that an older snapshot wrote and a kept one names",
           own_parts_alone),
    commit("running-swept", "R17", "parts of a snapshot under way are swept",
           instead(retention, "_over", lambda *_: True)),
    commit("kept-read-early", "R17", "which commits are kept is read before which one is the last",
           kept_read_early),
    commit("torn-list", "R17", "a commit that vanishes while commits are read hides the one that rests on it",
           torn_list, prunes=40, burst=30, beside=0.0, lives=2, **CALM),
    commit("reserved-late", "R17", "a place is reserved for a snapshot only when it is sealed",
           reserved_late, beside=0.9, prunes=12, lives=2, **CALM),
    commit("reservation-unseen", "R17", "what is reserved is swept once it is overtaken",
           instead(CommitLog, "reserved", lambda _: []), beside=0.9, prunes=12, lives=2, **CALM),
    commit("reserved-read-early", "R17", "what is reserved is read before the objects are listed",
           reserved_read_early, beside=0.9, reserves=1, prunes=30, burst=60, lives=2, **CALM),
    commit("reserved-base-dropped", "R17", "a commit is dropped that a snapshot with a reservation rests on",
           reserved_bases_dropped, beside=0.9, prunes=12, lives=2, **CALM),
    commit("released-first", "R16", "a reservation is given up, and then its snapshot is committed",
           instead(CommitLog, "commit", given_up_before_its_commit), beside=0.9, prunes=12, burst=60, lives=2, **CALM),
    commit("last-moved-back", "R16", "what is committed beside the last commit becomes the last",
           last_moved_back, beside=0.9),
    commit("beside-unreserved", "R16", "a snapshot without a reservation is committed below the last",
           beside_unreserved, beside=0.9, prunes=12, **CALM),
    commit("beside-another-life", "R16", "a snapshot is committed below the last commit of another life",
           instead(CommitLog, "_is_beside", staticmethod(lambda last, asked: bool(last and asked.tick <= last.tick))),
           older=0.8, beside=0.9, lives=20),
    commit("swept-first", "R17", "objects are deleted before their commits are dropped",
           swept_before_dropped),
    commit("restored-dropped", "R17", "the commit is dropped that is being loaded",
           instead(CommitLog, "_must_not_be_needed", lambda *_: None), older=1, lives=20, prunes=20, burst=60, **CALM),
    commit("drop-unchecked", "R17", "a commit is dropped that came to be needed meanwhile",
           drop_unchecked, older=1, lives=20, prunes=20, burst=60, **CALM),
    commit("restored-anyway", "R17", "a commit is loaded that was dropped meanwhile",
           restored_anyway, older=1, lives=20, prunes=20, burst=60, **CALM),
]  # fmt: skip
