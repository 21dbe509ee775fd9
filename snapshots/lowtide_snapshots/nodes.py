"""What is read from ZooKeeper, and what a transaction is made of."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Check", "Create", "Node", "Operation", "Set"]


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


Operation = Check | Create | Set
