"""A tree of nodes in memory, with transactions as ZooKeeper has them: for tests and simulations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from lowtide_snapshots.zookeeper.nodes import Check, Create, Delete, Node, Operation, Set


class MemoryNodes:
    """Nodes that live as long as this object; may be used from several threads."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._watchers: list[tuple[str, Callable[[bytes | None], None]]] = []
        self._lock = threading.RLock()

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Several nodes as they are now; None for one that is not there."""
        with self._lock:
            return [self._nodes.get(path) for path in paths]

    def children(self, path: str) -> list[str] | None:
        """The names of the nodes below, sorted; None if there is none."""
        with self._lock:
            below = path + "/"
            return sorted(p.removeprefix(below) for p in self._nodes if p.startswith(below)) or None

    def watch(self, path: str, on_change: Callable[[bytes | None], None]) -> None:
        """Tell a node's content now and after every change, on the thread that changes it."""
        with self._lock:
            self._watchers.append((path, on_change))
            node = self._nodes.get(path)
        on_change(node.data if node else None)

    def write(self, plan: Callable[[], Sequence[Operation]]) -> None:
        """Carry out what the plan says is still to be done; it is asked again when a condition did not hold."""
        while (operations := plan()) and not self.commit(operations):
            pass

    def commit(self, operations: Sequence[Operation]) -> bool:
        """Return whether the transaction was done, whole; if not, a condition did not hold, and nothing was done."""
        with self._lock:
            changed = dict(self._nodes)
            for operation in operations:
                if not _apply(changed, operation):
                    return False
            self._nodes, before = changed, self._nodes
            paths = {operation.path for operation in operations}
            watchers = [(p, t) for p, t in self._watchers if p in paths and before.get(p) != changed.get(p)]
        for path, on_change in watchers:
            node = changed.get(path)
            on_change(node.data if node else None)
        return True


def _apply(nodes: dict[str, Node], operation: Operation) -> bool:
    """Apply one operation, if its condition holds."""
    node = nodes.get(operation.path)
    if isinstance(operation, Create):
        if node is not None:
            return False
        nodes[operation.path] = Node(operation.data, 0, 0)
        return True
    if node is None or node.version != operation.version:
        return False
    match operation:
        case Set(path, data, version):
            nodes[path] = Node(data, version + 1, 0)
        case Delete(path):
            del nodes[path]
        case Check():
            pass
    return True
