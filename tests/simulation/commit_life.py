"""Who takes, commits and drops snapshots: a job's lives, and those who do it from outside.

Until a life is over it counts, per hash unit, in how many ticks something has changed; a part holds such a number. So
what a life has loaded and counted can be held against the log at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lowtide_snapshots.commits import choice as choosing
from lowtide_snapshots.commits import retention
from lowtide_snapshots.commits.log import Commit
from lowtide_snapshots.commits.memory_log import MemoryCommitLog
from lowtide_snapshots.errors import (
    CommitNeeded,
    CommitRefused,
    CommitUnknown,
    Fenced,
    NoGoodCommit,
    NoSuchCommit,
    WriteUnknown,
)
from lowtide_snapshots.format.manifest import Manifest, Part, shape_of
from lowtide_snapshots.format.names import snapshot_id
from lowtide_snapshots.format.parts import PartHead, decode_part, encode_part, sha256
from lowtide_snapshots.job.record import JobRecord
from lowtide_snapshots.stores.errors import NotThere, StoreUnavailable

from .verdict import Violation

if TYPE_CHECKING:
    from .commit_world import CommitWorld

JOB, SLACK_MS, VERTEX = "job", 10, "counts"
RECORD = JobRecord(JOB, SLACK_MS, 128, 4, "log", 1, ())
SHAPE = shape_of(VERTEX, "scan", pa.struct([("key", pa.int64())]), pa.int64())
KEY = pa.array([{"key": 1}], pa.struct([("key", pa.int64())]))


def nobody(_done: int, _total: int) -> None:
    """Is told nothing."""


class Committer:
    """Commits sealed manifests, and checks what it is told of the outcome."""

    def __init__(self, world: CommitWorld, name: str) -> None:
        self.world = world
        self.log: MemoryCommitLog = world.log()
        self.name = name

    def say(self, what: object) -> None:
        if self.world.trace:
            self.world.say(self.name, what)

    def commit(self, manifest: Manifest) -> Commit | None:
        """Commit it, and ask again as long as the outcome is unknown; None if it was refused."""
        while True:
            try:
                made = self.log.commit(manifest, sha256(manifest.to_json().encode()))
            except CommitUnknown:
                continue
            except (CommitRefused, Fenced) as error:
                self.say(f"may not commit {manifest.id}: {error.what}")
                if self.world.is_there(manifest.id):
                    raise Violation("safety", f"{manifest.id} is committed, and refused: {error.what}") from error
                if self.world.owes(manifest) and isinstance(error, CommitRefused):
                    raise Violation("liveness", f"{manifest.id} has a reservation: {error.what}") from error
                return None
            if made.id not in self.world.history:
                raise Violation("safety", f"{made.id} is said to be committed, and never was")
            return made

    def prune(self) -> None:
        """Drop what the rule drops, and sweep."""
        store, rng = self.world.store, self.world.rng
        rule = retention.Rule(rng.choice([1, 1, 2, 4]))
        commits, last, restored = self.log.commits(), self.log.last(), self.log.restored()
        based_on = retention.bases(self.log, store) if rng.random() < 0.5 else ()
        _, dropped = retention.plan(commits, last, restored, rule, self.world.now(), based_on=based_on)
        try:
            swept = retention.sweep(self.log, store, dropped)
        except CommitNeeded:
            return
        self.say(f"swept {swept}")

    def commit_any(self) -> None:
        """Commit some sealed snapshot, as somebody does from outside."""
        names = [entry.name for entry in self.world.store.names(f"{JOB}/manifests/")]
        if not names:
            return
        name = self.world.rng.choice(names[-3:])
        try:
            manifest = Manifest.from_json(self.world.store.get(name), name)
        except NotThere:
            return
        self.commit(manifest)


class Life(Committer):
    """A life: chooses, loads, then takes snapshots and commits them for as long as it is let."""

    number = 0

    def live(self) -> None:
        """All of it; ends when another life has begun, or with a store that is away while it loads."""
        try:
            self.number = self.log.raise_incarnation()
            self.name = f"life {self.number}"
            self.restored = self.restore()
            self.values = self.load(self.restored)
            self.sealed: dict[str, Manifest] = {self.restored.id: self.restored} if self.restored else {}
            self.taken = 0
            while True:
                self.turn()
        except (Fenced, WriteUnknown):
            self.say("is over")

    def restore(self) -> Manifest | None:
        """Choose and say so, until what was chosen is still there; None to start with nothing."""
        while True:
            before, now = self.world.there(), self.world.steps
            asked = self.world.rng.choice(before).id if before and self.world.rng.random() < self.world.older else None
            choice = None
            try:
                choice = choosing.choose(self.log, self.world.store, commit=asked, progress=nobody, threads=1)
            except (NoSuchCommit, NoGoodCommit) as error:
                self.say(error.what)
                if asked is not None:
                    continue
            self.world.check_choice([] if asked else before, now, choice)
            self.say(f"chooses {choice.commit.id if choice else None}")
            try:
                self.log.set_restored(self.number, choice.commit if choice else None)
            except NoSuchCommit:
                continue
            return choice.manifest if choice else None

    def load(self, manifest: Manifest | None) -> dict[int, int]:
        """The numbers of all units, which must be what the log says."""
        values = dict.fromkeys(self.world.changes, 0)
        for part in manifest.parts if manifest else ():
            name = part.name(JOB, SLACK_MS)
            try:
                data = self.world.store.get(name)
            except NotThere:
                if self.world.newest_life() > self.number:
                    # A newer life loads from elsewhere: what this one wanted is kept for nobody.
                    raise WriteUnknown("another life has begun while it was loading") from None
                if name not in self.world.harmed:
                    raise Violation("safety", f"{name} is gone while it is loaded") from None
                raise WriteUnknown("a part was harmed while it was loaded") from None
            if name in self.world.harmed:
                raise WriteUnknown("a part was harmed while it was loaded")
            values[part.unit] = decode_part(data, name)[1]["state"][0].as_py()
        self.world.check_values(values, manifest.tick if manifest else 0)
        return values

    def turn(self) -> None:
        """Take a snapshot and see it through, if there is a new min time."""
        rng, tick = self.world.rng, self.world.tick
        last = self.log.last()
        if last is not None and tick <= last.tick and rng.random() < 0.95:
            return
        try:
            bases = [self.base()]
            if rng.random() < self.world.beside:
                # Another one runs beside it, perhaps with all of its parts to itself.
                bases.insert(0, None if rng.random() < 0.5 else bases[0])
            taken = [self.take(tick, bases[0])]
            for base in bases[1:]:
                while self.world.tick == tick and rng.random() < self.world.waits:
                    self.log.last()
                taken.append(self.take(self.world.tick, base))
            if rng.random() < 0.5:
                taken.reverse()  # The later one is the sooner written, and is committed before the other is sealed.
            for manifest, written in taken:
                self.see_through(manifest, written)
        except StoreUnavailable:
            self.say("finds no store")

    def see_through(self, manifest: Manifest, written: dict[str, memoryview]) -> None:
        """Write a snapshot, and commit it, or give it up, or leave it to somebody else."""
        rng = self.world.rng
        try:
            self.seal(manifest, written)
        except StoreUnavailable:
            self.give_up(manifest)
            raise
        self.sealed[manifest.id] = manifest
        self.say(f"sealed {manifest.id} at {manifest.tick} on {manifest.base}: {sorted(written)}")
        if rng.random() < 0.3:
            if rng.random() < 0.2:
                self.give_up(manifest)
            return  # Left to somebody else.
        if self.commit(manifest) is not None:
            self.log.set_restored(self.number, None)  # All of it has been loaded.
        if rng.random() < 0.4:
            self.prune()

    def give_up(self, manifest: Manifest) -> None:
        """Let go of what was reserved for a snapshot."""
        self.world.promised.discard(manifest.id)
        self.log.release(self.number, manifest.id)

    def take(self, tick: int, base: Manifest | None) -> tuple[Manifest, dict[str, memoryview]]:
        """Capture the units that changed since the base: a manifest, and the parts that are to be written."""
        self.taken += 1
        identity = snapshot_id(self.number, self.taken)
        self.reserve(identity, tick, base)
        since = base.tick if base else 0
        changed = [unit for unit in self.world.changes if self.world.changed(unit, since, tick)]
        kept = [part for part in base.parts if part.unit not in changed] if base else []
        parts, written = list(kept), {}
        for unit in changed:
            value = self.world.value(unit, tick)
            head = PartHead(JOB, VERTEX, "scan", unit, tick, SLACK_MS, identity)
            data = encode_part(head, pa.table({"key": KEY, "state": pa.array([value])}))
            written[head.name] = data
            parts.append(Part(VERTEX, "scan", unit, tick, identity, 1, len(data), sha256(data)))
        name = "named" if self.world.rng.random() < 0.05 else None
        manifest = Manifest(
            JOB, identity, name, tick, self.number, "2026-01-31T12:00:00.000Z", base.id if base else None,
            RECORD, (SHAPE,), (), (), (), tuple(parts),
        )  # fmt: skip
        self.say(f"captures {identity} at {tick} on {manifest.base}: {changed}")
        return manifest, written

    def reserve(self, identity: str, tick: int, base: Manifest | None) -> None:
        """Reserve a place for a snapshot; it is owed a commit if it is above the last one, and its base is there."""
        if self.world.rng.random() >= self.world.reserves:
            return
        bases = {base.id, *self.sealed} if base else set(self.sealed)
        self.log.reserve(self.number, identity, bases)
        if base is not None and self.world.rng.random() < 0.5:
            self.log.reserve(self.number, identity, [base.id])
        last, held = self.log.last(), {each.snapshot: each.bases for each in self.log.reserved()}.get(identity, ())
        if (last is None or tick > last.tick) and (base is None or base.id in held):
            self.world.promised.add(identity)

    def seal(self, manifest: Manifest, written: dict[str, memoryview]) -> None:
        """Put the parts, then the manifest."""
        for name, data in written.items():
            self.world.store.put(name, data)
        self.world.store.put(manifest.path, manifest.to_json().encode())

    def base(self) -> Manifest | None:
        """The newest snapshot of this life that is committed, or what it was loaded from."""
        there = [commit.id for commit in self.log.commits() if commit.id in self.sealed]
        return self.sealed[there[-1]] if there else None
