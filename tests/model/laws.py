"""Laws that hold after each step, no matter who took it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from programs import by_lane

from lowtide.local.run import run_log
from lowtide.sinks.kafka.lasts import topic_of
from lowtide.sinks.kafka.lasts_records import durable_of
from lowtide_snapshots.commits.log import Commit, Restored
from lowtide_snapshots.commits.reservation import reserved_in
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.format.parts import sha256
from lowtide_snapshots.job.incarnations import number_in
from lowtide_snapshots.zookeeper.nodes import Create, Operation
from lowtide_tracker import Floor

from .access import JOB, PATHS
from .machine import IN, OUT, plan
from .world import Kafka, State, World

Sent = tuple[bytes | None, bytes | None, int]
"""Key, value, tick."""


class ViolationError(Exception):
    """A law does not hold."""


class Laws:
    """The laws; what they find out about a value they find out once.

    Args:
        reached: Counts which interesting things were seen.
    """

    world: World

    def __init__(self, reached: Counter[str]) -> None:
        self.reached = reached
        self._expected: dict[frozenset[Floor], list[Sent]] = {}
        self._durable: dict[int, frozenset[Floor]] = {}
        self._needed: dict[int, frozenset[str]] = {}

    def __call__(self, what: str, before: State, after: State, given: tuple[Any, ...]) -> None:
        """Look at a step (errors: ViolationError)."""
        getattr(self, what)(before, after, *given) if what != "write" else self.write(before, after, given)

    # -- output ----------------------------------------------------------------------------------------------------

    def deliver(self, _before: State, after: State, topic: str, life: int) -> None:
        """R1, R2, R12, R13: what a lane holds is the beginning of what the oracle gives, each record once."""
        self.reached["deliver"] += 1
        kafka = self.world.kafka[after.kafka]
        begun = self.world.inside(after, life).begun
        number = number_in(self.world.tree(after).get(PATHS.incarnation), PATHS)
        if begun.number < number:
            self.reached["a life delivers though the next one has begun"] += 1
        held, expected = self.held(kafka, topic), self.expected(after)
        if topic != topic_of(JOB):
            self.reached["everything is delivered again"] += 1
            expected = [each for each in expected if each[2] >= begun.start]
        if held != [(key, value) for key, value, _ in expected[: len(held)]]:
            raise ViolationError(f"the lane holds {_shown(held)}, and the oracle gives {_shown(expected)}")

    def held(self, kafka: Kafka, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """What the lane holds of one generation."""
        return [(key, value) for each, key, value in kafka.records if each == f"{OUT} beside {topic}"]

    def expected(self, state: State) -> list[Sent]:
        """What the oracle gives with the floors that are durable now."""
        floors = self._durable.get(state.kafka)
        if floors is None:
            kafka = self.world.kafka[state.kafka]
            found: set[Floor] = set()
            for topic in {topic for topic, _, _ in kafka.records if not topic.startswith(OUT)}:
                table: dict[bytes, bytes] = {}
                for each, key, value in kafka.records:
                    if each == topic and key is not None:
                        table.pop(key, None)
                        if value is not None:
                            table[key] = value
                found |= set(durable_of(table, topic).floors)
            floors = self._durable[state.kafka] = frozenset(found)
        if floors:
            self.reached["a floor is durable"] += 1
        if floors not in self._expected:
            log = [message for records in self.world.size.log for message in records]
            lanes = by_lane(run_log(plan(), {IN: log}, sorted(floors))[0])[OUT]
            self._expected[floors] = [(each[0], each[1], each[2] // plan().slack_ms) for each in lanes.get(0, [])]
        return self._expected[floors]

    # -- commits ---------------------------------------------------------------------------------------------------

    def write(self, before: State, after: State, operations: tuple[Operation, ...]) -> None:
        """R16: what is committed is whole, of the current life and above the last; R17: what is needed is there."""
        tree, was = self.world.tree(after), self.world.tree(before)
        life = number_in(tree.get(PATHS.incarnation), PATHS)
        folder = PATHS.commits + "/"
        commits = [Commit.from_bytes(node.data, path) for path, node in tree.items() if path.startswith(folder)]
        for operation in operations:
            if operation.path.startswith(folder) and isinstance(operation, Create):
                self._committed(was, after, Commit.from_bytes(operation.data, ""), life)
        last = tree.get(PATHS.last_commit)
        newest = max(commits, key=lambda commit: commit.tick, default=None)
        if last is not None and (newest is None or Commit.from_bytes(last.data, "").tick != newest.tick):
            raise ViolationError(f"the last commit is {Commit.from_bytes(last.data, '').id}, the newest {newest}")
        node = tree.get(PATHS.restored)
        restored = Restored.from_bytes(node.data, "") if node else None
        if restored and restored.commit and restored.incarnation == life:
            self.reached["a life begins from a commit"] += 1
            if restored.commit.id not in {commit.id for commit in commits}:
                raise ViolationError(f"life {life} loads {restored.commit.id}, which was dropped")

    def _committed(self, was: dict[str, Any], after: State, commit: Commit, life: int) -> None:
        self.reached["commit"] += 1
        if commit.incarnation != life:
            raise ViolationError(f"life {commit.incarnation} commits {commit.id} in life {life}")
        last = was.get(PATHS.last_commit)
        before = None if last is None else Commit.from_bytes(last.data, "")
        if (
            before is not None
            and before.tick >= commit.tick
            and commit.id in _reserved(was)
            and before.incarnation == life
        ):
            self.reached["a commit beside a newer one"] += 1
        elif last is not None and before is not None and before.tick >= commit.tick:
            raise ViolationError(f"{commit.id} at {commit.tick} is committed, and {last.data!r} is the last")
        stored = self.world.stored(after)
        data = stored.get(commit.manifest, b"")
        if sha256(data) != commit.sha256:
            raise ViolationError(f"{commit.id} is committed, and its manifest is not there")
        manifest = Manifest.from_json(data, commit.manifest)
        missing = names(manifest) - stored.keys()
        if missing:
            raise ViolationError(f"{commit.id} is committed, and {sorted(missing)} is not there")
        if any(part.snapshot != commit.id for part in manifest.parts):
            self.reached["a commit has parts of an older one"] += 1
        topic = topic_of(JOB, manifest.generation)
        held = len(self.held(self.world.kafka[after.kafka], topic))
        below = [each for each in self.expected(after) if each[2] < commit.tick]
        if manifest.generation:
            below = below[-held:] if held else []
        if len(below) > held:
            raise ViolationError(
                f"{commit.id} is committed at {commit.tick}, and {_shown(below[held:])} is not durable"
            )

    def delete(self, before: State, _after: State, name: str) -> None:
        """R17: no object goes that a commit needs."""
        self.reached["delete"] += 1
        needed = self._needed.get(before.nodes)
        if needed is None:
            found: set[str] = set()
            stored = self.world.stored(before)
            for path, node in self.world.tree(before).items():
                if path.startswith(PATHS.commits + "/"):
                    manifest = Commit.from_bytes(node.data, path).manifest
                    found |= {manifest, *names(Manifest.from_json(stored[manifest], manifest))}
            needed = self._needed[before.nodes] = frozenset(found)
        if name in needed:
            raise ViolationError(f"{name} is deleted, and a commit needs it")
        for life in before.lives:
            place = self.world.scripts.places[life.driver] if life.driver >= 0 else None
            if place and place.question and place.question.what in ("get", "names"):
                self.reached["a sweep deletes while a life reads a commit"] += 1

    # -- the end ---------------------------------------------------------------------------------------------------

    def end(self, state: State) -> None:
        """Nobody can go on: the last life has delivered everything."""
        self.reached["end"] += 1
        life = state.lives[-1]
        if life.inside < 0 and life.driver >= 0 and self.world.scripts.places[life.driver].error is not None:
            self.reached["the last life finds the lease taken"] += 1
            return
        if life.inside < 0:
            raise ViolationError("the last life has not begun, and cannot go on")
        if self.world.scripts.places[life.delivery].error is not None:
            self.reached["the last life has to begin again"] += 1
            return
        begun = self.world.inside(state, len(state.lives) - 1).begun
        held = self.held(self.world.kafka[state.kafka], begun.topic)
        expected = [each for each in self.expected(state) if begun.generation == 0 or each[2] >= begun.start]
        if len(held) != len(expected):
            raise ViolationError(f"at the end the lane holds {_shown(held)} of {_shown(expected)}")


def _reserved(tree: dict[str, Any]) -> set[str]:
    """The ids of the snapshots for which a place is reserved."""
    node = tree.get(PATHS.reserved)
    return {each.snapshot for each in reserved_in(None if node is None else node.data, PATHS.reserved, 0)}


def names(manifest: Manifest) -> set[str]:
    """The parts that a manifest names."""
    return {part.name(JOB, plan().slack_ms) for part in manifest.parts}


def _shown(messages: Any) -> str:
    return "[" + ", ".join((each[1] or b"").decode() for each in messages) + "]"
