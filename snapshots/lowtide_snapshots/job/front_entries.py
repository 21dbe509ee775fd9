"""The entries of the front register: each is written once, before its front's first label (R3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lowtide_snapshots.job.paths import JobPaths
from lowtide_snapshots.zookeeper.node_values import must_be_same, number_of, to_bytes, value_of
from lowtide_snapshots.zookeeper.nodes import Create, Nodes, Operation


def read(zk: Nodes, paths: JobPaths) -> list[dict[str, Any]]:
    """All entries, by number."""
    names = zk.children(paths.fronts) or []
    found = [f"{paths.fronts}/{name}" for name in names]
    return [value_of(node.data, path) for path, node in zip(found, zk.get_all(found), strict=True) if node]


def by_path(paths: JobPaths, entries: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
    """Return the content of these entries' nodes.

    Raises:
        EntryDiffers: two of one number say different things.
    """
    asked: dict[str, bytes] = {}
    for entry in entries:
        path = paths.front(number_of(entry))
        data = to_bytes(entry, path)
        must_be_same(path, asked.setdefault(path, data), data)
    return asked


def adding(zk: Nodes, asked: Mapping[str, bytes]) -> list[Operation]:
    """Return the operations that write the missing ones of these nodes.

    Raises:
        EntryDiffers: one is there and says something else.
    """
    paths = sorted(asked)
    found = dict(zip(paths, zk.get_all(paths), strict=True))
    for path, node in found.items():
        if node is not None:
            must_be_same(path, node.data, asked[path])
    return [Create(path, asked[path]) for path in paths if found[path] is None]
