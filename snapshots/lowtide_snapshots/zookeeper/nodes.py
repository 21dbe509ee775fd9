"""Nodes as they are read from ZooKeeper, and the operations of a transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Node:
    """A node's content; `owner` is the session that an ephemeral one lives with, 0 of others."""

    data: bytes
    version: int
    owner: int


@dataclass(frozen=True, slots=True)
class Check:
    """The node is there and has this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """The node is not there; make it. An ephemeral one goes with the session."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """The node is there and has this version; change its content."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """The node is there and has this version; remove it."""

    path: str
    version: int


Operation = Check | Create | Delete | Set


class Nodes(Protocol):
    """A tree of nodes, as far as commits need one: a ZooKeeper's, or one in memory."""

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Several nodes as they are now; None for one that is not there."""

    def children(self, path: str) -> list[str] | None:
        """The names of the nodes below, sorted; None if the node is not there."""

    def write(self, plan: Callable[[], Sequence[Operation]]) -> None:
        """Carry out what the plan says is still to be done, in one transaction; see `zookeeper.Connection.write`."""

    def watch(self, path: str, on_change: Callable[[bytes | None], None]) -> None:
        """Tell a node's content now and after its changes, of which some may be left out; on any thread."""
