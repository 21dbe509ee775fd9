"""The history of a job's lives: what each said of itself last.

The last ones are remembered, and the first: it says since when there has been the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowtide_snapshots.job.paths import JobPaths
from lowtide_snapshots.zookeeper.node_values import to_bytes, value_of
from lowtide_snapshots.zookeeper.nodes import Create, Delete, Nodes, Operation, Set

__all__ = ["noting", "told"]

KEPT = 100
"""The number of lives that are remembered, the first one among them."""


def told(zk: Nodes, paths: JobPaths) -> list[dict[str, Any]]:
    """What each life has said of itself, oldest first; `since` is when it began to."""
    found = [f"{paths.lives}/{name}" for name in zk.children(paths.lives) or []]
    return [value_of(node.data, path) for path, node in zip(found, zk.get_all(found), strict=True) if node]


def noting(zk: Nodes, paths: JobPaths, incarnation: int, life: Mapping[str, Any]) -> list[Operation]:
    """What has to be in the transaction in which a life says something of itself; nothing if it said so before."""
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
