"""The standbys of a job: programs that wait for its lease, each in an ephemeral node of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from lowtide_snapshots.job.paths import JobPaths
from lowtide_snapshots.zookeeper.node_values import to_bytes, value_of
from lowtide_snapshots.zookeeper.nodes import Create, Delete, Nodes, Operation, Set


@dataclass(frozen=True, slots=True, order=True)
class Standby:
    """A program that waits for the lease.

    Attributes:
        since: when it began to wait, ISO, UTC.
        holder: the process, for people to read.
        ready: whether it could take over at once; else it is still starting.
    """

    since: str
    holder: str
    ready: bool = False

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Self:
        """Read it from its node."""
        known = {each.name: node[each.name] for each in fields(cls) if each.name in node}
        return cls(**{"since": "", "holder": "", **known})


def read(zk: Nodes, paths: JobPaths) -> list[Standby]:
    """Return the standbys that wait, the longest first."""
    found = [f"{paths.standbys}/{name}" for name in zk.children(paths.standbys) or []]
    nodes = zip(found, zk.get_all(found), strict=True)
    return sorted(Standby.of(value_of(node.data, path)) for path, node in nodes if node)


def showing(zk: Nodes, paths: JobPaths, token: str, standby: Standby | None) -> list[Operation]:
    """Return the operations that show this program among those that wait, or with None take it from there."""
    path = f"{paths.standbys}/{token}"
    (node,) = zk.get_all([path])
    if standby is None:
        return [] if node is None else [Delete(path, node.version)]
    data = to_bytes(asdict(standby), path)
    if node is None:
        return [Create(path, data, ephemeral=True)]
    return [] if data == node.data else [Set(path, data, node.version)]
