"""The origin of a job that began with another job's fronts and floors."""

from __future__ import annotations

from dataclasses import dataclass

from lowtide_snapshots.zookeeper.node_values import tick_in, to_bytes, value_of


@dataclass(frozen=True, slots=True)
class Borrowed:
    """The other job, and its progress then.

    Attributes:
        job: the other job's name.
        tick: its progress then: everything below has its labels for good.
    """

    job: str
    tick: int

    def to_bytes(self, path: str) -> bytes:
        """The content of its node."""
        return to_bytes({"job": self.job, "tick": self.tick}, path)

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Borrowed:
        """The inverse.

        Raises:
            RecordDamaged: it holds something else.
        """
        return cls(str(value_of(data, path).get("job", "")), tick_in(data, path))
