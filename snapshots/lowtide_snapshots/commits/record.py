"""A commit: what ZooKeeper says of a snapshot that a job may be recovered from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from lowtide_snapshots.format.names import parse_name
from lowtide_snapshots.zookeeper.node_values import damaged, to_bytes, value_of, whole

_TYPES: dict[str, type | tuple[type, ...]] = {
    "tick": int,
    "id": str,
    "name": (str, type(None)),
    "manifest": str,
    "sha256": str,
    "incarnation": int,
    "at": str,
}


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit; ascending in `tick`.

    Attributes:
        tick: T.
        id: the snapshot's.
        name: the name that the user gave it; None without one.
        manifest: the manifest's name in the store.
        sha256: of the manifest, in lower hex.
        incarnation: the life that took it.
        at: when it was committed: ISO, UTC, milliseconds.
    """

    tick: int
    id: str
    name: str | None
    manifest: str
    sha256: str
    incarnation: int
    at: str

    @property
    def min_time_ms(self) -> int:
        """T in milliseconds, as the manifest's name tells it."""
        found = parse_name(self.manifest)
        if found is None:
            raise damaged(f"{self.manifest!r} is not the name of a manifest", f"commit {self.id}")
        return found.min_time_ms

    def same_as(self, other: Commit) -> bool:
        """Return whether both are one commit; a retried one has another `at`."""
        return self._but_at() == other._but_at()

    def to_bytes(self) -> bytes:
        """As a node holds it."""
        return to_bytes(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Self:
        """The inverse of `to_bytes`.

        Raises:
            RecordDamaged: it is not a commit.
        """
        return cls.from_value(value_of(data, path), path)

    @classmethod
    def from_value(cls, value: Mapping[str, Any], path: str) -> Self:
        """A commit inside another value; errors as of `from_bytes`."""
        known = {field.name for field in fields(cls)}
        wrong = [name for name in sorted(known) if not isinstance(value.get(name), _TYPES[name])]
        if wrong:
            raise damaged(f"a commit's {', '.join(wrong)} is missing or of another type", path)
        return cls(**{name: value[name] for name in known})

    def _but_at(self) -> tuple[Any, ...]:
        return (self.tick, self.id, self.name, self.manifest, self.sha256, self.incarnation)


@dataclass(frozen=True, slots=True)
class Restored:
    """From what a life was loaded; `commit` is None if it started without state."""

    incarnation: int
    commit: Commit | None

    def to_bytes(self) -> bytes:
        """As a node holds it."""
        return to_bytes(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Self:
        """The inverse of `to_bytes`.

        Raises:
            RecordDamaged: it is something else.
        """
        value = value_of(data, path)
        commit = value.get("commit")
        return cls(whole(value, "incarnation", path), commit and Commit.from_value(commit, path))
