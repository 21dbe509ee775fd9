"""Snapshots, commits, recoveries and retention of one job, by several lives and others at once, killed anywhere."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from lowtide_snapshots.commits.choice import Choice
from lowtide_snapshots.commits.log import Commit, Restored
from lowtide_snapshots.commits.memory_log import MemoryCommitLog
from lowtide_snapshots.errors import WriteUnknown
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.format.parts import sha256
from lowtide_snapshots.job.incarnations import number_in
from lowtide_snapshots.job.paths import JobPaths
from lowtide_snapshots.stores.errors import StoreUnavailable
from lowtide_snapshots.zookeeper.nodes import Create, Delete, Operation, Set

from .commit_actors import Actor, SharedNodes, SharedStore
from .commit_life import JOB, SLACK_MS, Committer, Life
from .verdict import Violation
from .world import Step, Trace, World

UNITS = 3
MAX_LIVES, MAX_OTHERS = 3, 3
MAX_DRAIN_STEPS = 3_000
DRAWN: dict[str, list[float]] = {
    "lost": [0, 0.03, 0.1],
    "fails": [0, 0.002, 0.01],
    "older": [0, 0.2, 0.8],
    "beside": [0, 0.3, 0.9],
    "harms": [0, 1, 4],
    "lives": [2, 8],
    "prunes": [3, 12],
    "burst": [3, 8, 30],
}
"""What a seed draws unless it is told: how often an answer is lost, the store fails, a life begins with an older
commit, and two snapshots are taken at once; how likely it is that somebody damages a part, that a life begins, and that
somebody sweeps; and how much somebody does at one go."""
LIKELY = {"reserves": 0.6, "waits": 0.9}
"""What is as likely in all seeds: that a snapshot has a place reserved, and that one beside another waits for a later
tick."""
BEGAN = datetime(2026, 1, 31, tzinfo=UTC)


class CommitWorld(World):
    """One job's ZooKeeper and store, and all who act on them; the real commit log, choice and retention run."""

    name: ClassVar[str] = "commit"

    def __init__(self, seed: int, trace: Trace | None = None, **options: float) -> None:
        super().__init__(seed, trace)
        drawn = {name: self.rng.choice(of) for name, of in DRAWN.items()} | LIKELY | options
        self.lost, self.fails, self.older, self.beside = (drawn[n] for n in ("lost", "fails", "older", "beside"))
        self.harms, self.lives, self.prunes, self.burst = (int(drawn[n]) for n in ("harms", "lives", "prunes", "burst"))
        self.reserves, self.waits = drawn["reserves"], drawn["waits"]
        self.tick = 1
        self.changes: dict[int, list[int]] = {unit: [] for unit in range(UNITS)}
        self.actors: list[Actor] = []
        self.acting: Actor | None = None
        self.harmed: dict[str, int] = {}
        """By name of a part: the step at which somebody outside has damaged it."""
        self.history: dict[str, Manifest] = {}
        """All that ever was committed."""
        self.newest: Manifest | None = None
        """The last commit."""
        self.promised: set[str] = set()
        """Snapshots that have a reservation, so that nothing but the end of their life may keep them from a commit."""
        self._needed: dict[str, set[str]] = {}
        """By commit that is there: its manifest and its parts."""
        self._paths = JobPaths("memory", JOB)
        self._nodes = SharedNodes(self._stop, self._what_is_lost, lambda: self.rng.random() < 0.3, self._written)
        self.store = SharedStore(self._stop, lambda: self.rng.random() < self.fails, self._deleting)

    # -- for the actors --------------------------------------------------------------------------------------------

    def log(self) -> MemoryCommitLog:
        """Another handle of the job's commits."""
        return MemoryCommitLog(JOB, self._nodes, now=self.now)

    def now(self) -> datetime:
        """The time, which goes with the steps."""
        return BEGAN + timedelta(seconds=self.steps)

    def changed(self, unit: int, since: int, tick: int) -> bool:
        """Whether anything of a unit changed in [since, tick)."""
        return self.value(unit, since) != self.value(unit, tick)

    def value(self, unit: int, tick: int) -> int:
        """In how many ticks below this one a unit changed."""
        return bisect_left(self.changes[unit], tick)

    def there(self) -> list[Commit]:
        """The commits as they are, ascending."""
        names = super(SharedNodes, self._nodes).children(self._paths.commits) or []
        nodes = [self._nodes.now(f"{self._paths.commits}/{name}") for name in names]
        return [Commit.from_bytes(node.data, "") for node in nodes if node]

    def is_there(self, identity: str) -> bool:
        """Whether a snapshot is among the commits."""
        made = self.history.get(identity)
        return made is not None and self._nodes.now(self._paths.commit(made.tick, identity)) is not None

    def owes(self, manifest: Manifest) -> bool:
        """True if a snapshot has a reservation, its life goes on, and it has not been committed and dropped."""
        return manifest.id in self.promised - self.history.keys() and manifest.incarnation == self.newest_life()

    def newest_life(self) -> int:
        """The number of the life that is not over."""
        return number_in(self._nodes.now(self._paths.incarnation), self._paths)

    def check_values(self, values: dict[int, int], tick: int) -> None:
        """What was loaded at a tick is what the log says."""
        right = {unit: self.value(unit, tick) for unit in self.changes}
        if values != right:
            raise Violation("output", f"loaded {values} at tick {tick}, and the log says {right}")

    def check_choice(self, before: Sequence[Commit], began: int, choice: Choice | None) -> None:
        """Nothing good was passed over, and nothing chosen that had been damaged before.

        Args:
            before: the commits when the choice began.
            began: the step at which it did.
            choice: what was chosen; None if there was nothing good.
        """
        there = {commit.id for commit in self.there()}
        for commit in before:
            newer = choice is None or commit.tick > choice.commit.tick
            if newer and commit.id in there and not self._harm_of(self.history[commit.id]):
                raise Violation("safety", f"{commit.id} is good, and was passed over")
        if choice and any(step < began for step in self._harm_of(choice.manifest)):
            raise Violation("safety", f"{choice.commit.id} was chosen, and is damaged")

    # -- steps -----------------------------------------------------------------------------------------------------

    def chances(self) -> list[tuple[int, str, Step]]:
        """The steps there are."""
        return [
            (120, "act", self.act),
            (12, "tick", self.pass_time),
            (self.lives, "live", self.live),
            (self.prunes, "prune", lambda: self._other("pruner", Committer.prune)),
            (3, "commit", lambda: self._other("committer", Committer.commit_any)),
            (3, "kill", self.kill),
            (self.harms, "harm", self.harm),
        ]

    def run(self, steps: int) -> None:
        """Take so many steps, then let faults stop and one life go on alone."""
        try:
            super().run(steps)
        finally:
            for actor in self.actors:
                actor.kill()

    def act(self) -> bool:
        """Somebody goes on for some reads and writes."""
        if not self.actors:
            return False
        self._resume(self.rng.choice(self.actors), self.rng.choice([1, 1, 2, 4, self.burst]))
        return True

    def pass_time(self) -> bool:
        """Min time goes on; some units change."""
        for ticks in self.changes.values():
            tick = self.tick + self.rng.choice([0, 1])
            if self.rng.random() < 0.4 and (not ticks or tick > ticks[-1]):
                ticks.append(tick)
        self.tick += self.rng.choice([1, 2, 5])
        return True

    def live(self) -> bool:
        """Another life begins, whether or not the one before is over."""
        lives = [actor for actor in self.actors if actor.name == "life"]
        if len(lives) >= MAX_LIVES:
            return False
        return self._begin("life", lambda: Life(self, "life").live())

    def kill(self) -> bool:
        """Somebody is killed, before or after whatever they were about to read or write."""
        if not self.actors:
            return False
        actor = self.actors.pop(self.rng.randrange(len(self.actors)))
        if self.trace:
            self.say(actor.name, "is killed")
        actor.kill()
        return True

    def harm(self) -> bool:
        """A part of the last commit is damaged or lost, where an older one can take its place."""
        there = self.there()
        good = [self.history[commit.id] for commit in there if not self._harm_of(self.history[commit.id])]
        if len(good) < 2 or good[-1].id != there[-1].id:
            return False
        own = [part.name(JOB, SLACK_MS) for part in good[-1].parts if part.snapshot == good[-1].id]
        if not own:
            return False
        name = self.rng.choice(own)
        self.harmed[name] = self.steps
        if self.rng.random() < 0.5:
            del self.store.objects[name]
        else:
            self.store.objects[name] = self.store.objects[name][:-9] + b"?" * 9
        if self.trace:
            self.say("somebody", f"damages {name}")
        return True

    def _other(self, name: str, act: Callable[[Committer], None]) -> bool:
        if sum(actor.name != "life" for actor in self.actors) >= MAX_OTHERS:
            return False
        return self._begin(name, lambda: act(Committer(self, name)))

    def _begin(self, name: str, act: Callable[[], None]) -> bool:
        def acting(_actor: Actor) -> None:
            # Nobody's fault; whoever it was does not go on.
            with suppress(StoreUnavailable, WriteUnknown):
                act()

        self.actors.append(Actor(name, acting))
        return True

    def _resume(self, actor: Actor, stops: int) -> None:
        self.acting = actor
        try:
            actor.resume(stops)
        finally:
            self.acting = None
            if actor.ended:
                self.actors.remove(actor)

    def _stop(self) -> None:
        if self.acting is not None:
            self.acting.stop()

    def _what_is_lost(self) -> str | None:
        return self.rng.choice(["request", "answer"]) if self.rng.random() < self.lost else None

    # -- laws ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """The last commit is the newest that there is, and was never lower, whatever is committed beside it."""
        newest = None if self.newest is None else self.newest.id
        last = self._nodes.now(self._paths.last_commit)
        if newest != (Commit.from_bytes(last.data, "").id if last else None) or (newest and not self.is_there(newest)):
            raise Violation("safety", f"the last commit is {last}, and {newest} was committed last")

    def _written(self, operations: Sequence[Operation]) -> None:
        """Looks at each transaction that was done."""
        for operation in operations:
            folder = operation.path.startswith(self._paths.commits + "/")
            if folder and isinstance(operation, Create):
                reserved = any(each.path == self._paths.reserved for each in operations)
                self._committed(Commit.from_bytes(operation.data, ""), reserved=reserved)
            elif folder and isinstance(operation, Delete):
                self._dropped(operation.path.rpartition("/")[2].partition("-")[2])
            elif operation.path == self._paths.restored and isinstance(operation, Create | Set):
                restored = Restored.from_bytes(operation.data, "")
                if restored.commit and not self.is_there(restored.commit.id):
                    raise Violation("safety", f"{restored.commit.id} is to be loaded, and was dropped")

    def _committed(self, commit: Commit, *, reserved: bool) -> None:
        life = self.newest_life()
        if self.trace:
            self.say("zookeeper", f"{commit.id} is committed at {commit.tick}")
        if commit.incarnation != life:
            raise Violation("safety", f"{commit.id} is committed in life {life}")
        newest = self.newest
        beside = newest is not None and commit.tick <= newest.tick
        if newest and beside and not (reserved and newest.incarnation == commit.incarnation):
            raise Violation("safety", f"{commit.id} at {commit.tick} is committed after {newest.id} at {newest.tick}")
        data = self.store.objects.get(commit.manifest, b"")
        if sha256(data) != commit.sha256:
            raise Violation("safety", f"{commit.id} is committed, and its manifest is not there")
        manifest = Manifest.from_json(data, commit.manifest)
        missing = self._names(manifest) - self.store.objects.keys() - self.harmed.keys()
        if missing:
            raise Violation("safety", f"{commit.id} is committed, and lacks {sorted(missing)}")
        self.history[commit.id] = manifest
        self.newest = newest if beside else manifest
        self._needed[commit.id] = self._names(manifest) | {commit.manifest}

    def _dropped(self, identity: str) -> None:
        if self.trace:
            self.say("zookeeper", f"{identity} is dropped")
        node = self._nodes.now(self._paths.restored)
        restored = Restored.from_bytes(node.data, "") if node else None
        if (self.newest is not None and identity == self.newest.id) or (
            restored and restored.commit and restored.commit.id == identity
        ):
            raise Violation("safety", f"{identity} is dropped, and needed")
        del self._needed[identity]

    def _deleting(self, name: str) -> None:
        """Looks at each object that is deleted."""
        for identity, names in self._needed.items():
            if name in names:
                raise Violation("safety", f"{name} is deleted, and {identity} needs it")

    def _names(self, manifest: Manifest) -> set[str]:
        return {part.name(JOB, SLACK_MS) for part in manifest.parts}

    def _harm_of(self, manifest: Manifest) -> list[int]:
        return [self.harmed[name] for name in self._names(manifest) if name in self.harmed]

    # -- the end ---------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """One life goes on alone: it recovers, commits, and a sweep leaves what commits need and nothing else."""
        self.lost = self.fails = 0.0
        while self.actors:
            self.kill()
        before, committed = self.there(), len(self.history)
        self.live()
        for _ in range(MAX_DRAIN_STEPS):
            if len(self.history) > committed:
                break
            self.pass_time()
            self._resume(self.actors[0], 10)
        else:
            raise Violation("liveness", f"nothing was committed any more; there were {before}")
        while self.actors:
            self.kill()
        self.log().raise_incarnation()
        Committer(self, "pruner").prune()
        needed = set().union(*self._needed.values())
        left, lacks = self.store.objects.keys() - needed, needed - self.store.objects.keys() - self.harmed.keys()
        if left or lacks:
            raise Violation("liveness", f"after the sweep {sorted(left)} is left, and {sorted(lacks)} is missing")

    def say(self, who: str, what: object) -> None:
        """One line of the trace; ask `self.trace` before."""
        if self.trace is not None:
            self.trace(f"{self.steps:4}  {who:<12} {what}  [tick {self.tick}]")
