"""A commit log in memory, for tests and simulations: the same rules on the same kind of nodes."""

from __future__ import annotations

from typing import Any

from lowtide_snapshots.commits.log import CommitLog
from lowtide_snapshots.job.incarnations import number_in
from lowtide_snapshots.job.paths import JobPaths
from lowtide_snapshots.zookeeper.memory_nodes import MemoryNodes
from lowtide_snapshots.zookeeper.node_values import to_bytes
from lowtide_snapshots.zookeeper.nodes import Create, Operation, Set


class MemoryCommitLog(CommitLog):
    """A log in memory; those made with the same `nodes` are one log."""

    def __init__(self, job: str, nodes: MemoryNodes | None = None, **settings: Any) -> None:
        super().__init__(nodes or MemoryNodes(), JobPaths("memory", job), job, **settings)

    def raise_incarnation(self) -> int:
        """Begin a new life: every older one is fenced."""
        path = self._paths.incarnation
        number = 0

        def plan() -> list[Operation]:
            nonlocal number
            node = self._get(path)
            number = number_in(node, self._paths) + 1
            data = to_bytes({"incarnation": number})
            return [Create(path, data) if node is None else Set(path, data, node.version)]

        self._nodes.write(plan)
        return number
