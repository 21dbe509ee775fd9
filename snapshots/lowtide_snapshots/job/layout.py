"""The layout of a job: what its leader runs, and on how many workers; beside the lease, for standbys and observers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Layout:
    """A job's parallelism and placement, and the marks by which another program knows that it runs the same.

    Attributes:
        flow: SHA-256 of the flow's steps and of the text of its files, in hexadecimal.
        levels: how many levels of workers there are; level 0 has one worker for each partition of the sources.
        parallelism: the workers of each later level.
        lanes: the most workers that a level can have.
        processes: host processes on each executor; 0 for as many as fit its cores.
        master: Spark's, which says where executors are.
        settings: what the conf sets of the job's answers, by key.
    """

    flow: str = ""
    levels: int = 0
    parallelism: int = 0
    lanes: int = 0
    processes: int = 0
    master: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Self:
        """Read it from the lease's node; what an older version did not write is empty."""
        return cls(**{each.name: node[each.name] for each in fields(cls) if node.get(each.name) is not None})

    def fields(self) -> dict[str, Any]:
        """Return the fields of the lease's node that hold it."""
        return asdict(self)

    def differences(self, other: Layout) -> list[str]:
        """Return in words what another layout has otherwise: a program with it would not continue this one's job.

        Places may differ, since no answer depends on them: `processes` and `master`. A leader of an older version has
        written nothing, and nothing is compared.
        """
        if not self.flow:
            return []
        found = [] if self.flow == other.flow else ["the flow's steps or the text of its files"]
        for name in ("levels", "parallelism", "lanes"):
            here, there = getattr(self, name), getattr(other, name)
            found += [] if here == there else [f"{name} ({here} there, {there} here)"]
        for key in sorted({*self.settings, *other.settings}):
            there, here = self.settings.get(key, "nothing"), other.settings.get(key, "nothing")
            found += [] if here == there else [f"{key} ({there} there, {here} here)"]
        return found
