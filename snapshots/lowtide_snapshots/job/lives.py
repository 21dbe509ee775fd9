"""The history of a job's lives: what each said of itself last.

The last ones are remembered, and the first: it says since when there has been the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowtide_snapshots.job.paths import JobPaths
from lowtide_snapshots.zookeeper.node_values import to_bytes, value_of
from lowtide_snapshots.zookeeper.nodes import Create, Delete, Nodes, Operation, Set

KEPT = 100
"""The number of lives that are remembered, the first one among them."""


def read(zk: Nodes, paths: JobPaths) -> list[dict[str, Any]]:
    """Return the notes of all lives about themselves; `since` is the time of a life's first note."""
    found = [f"{paths.lives}/{name}" for name in zk.children(paths.lives) or []]
    return [value_of(node.data, path) for path, node in zip(found, zk.get_all(found), strict=True) if node]


def noting(zk: Nodes, paths: JobPaths, incarnation: int, life: Mapping[str, Any]) -> list[Operation]:
    """Return the operations that write a life's note in a transaction; none if the same note is there."""
    path = paths.one_life(incarnation)
    (node,) = zk.get_all([path])
    if node is None:
        data = to_bytes({**life, "incarnation": incarnation, "since": life.get("at")}, path)
        return [Create(path, data), *_forgetting(zk, paths)]
    since = value_of(node.data, path).get("since")
    data = to_bytes({**life, "incarnation": incarnation, "since": since}, path)
    return [] if data == node.data else [Set(path, data, node.version)]


def _forgetting(zk: Nodes, paths: JobPaths) -> list[Operation]:
    names = zk.children(paths.lives) or []
    gone = [f"{paths.lives}/{name}" for name in names[1 : 1 + max(0, len(names) - KEPT + 1)]]
    return [Delete(path, node.version) for path, node in zip(gone, zk.get_all(gone), strict=True) if node]
