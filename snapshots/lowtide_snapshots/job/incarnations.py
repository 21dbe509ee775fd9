"""A job's incarnation as its node tells it, and the check that every write of a life begins with."""

from __future__ import annotations

from lowtide_snapshots.errors import Fenced
from lowtide_snapshots.job.paths import JobPaths
from lowtide_snapshots.zookeeper.node_values import value_of, whole
from lowtide_snapshots.zookeeper.nodes import Check, Node


def number_in(node: Node | None, paths: JobPaths) -> int:
    """The number that the incarnation's node holds; 0 if it is not there."""
    return whole(value_of(node.data, paths.incarnation), "incarnation", paths.incarnation) if node else 0


def check_of(node: Node | None, paths: JobPaths, job: str, incarnation: int) -> Check:
    """Return the check that begins each transaction of this life.

    Args:
        node: the incarnation's, read after a sync.
        paths: the job's.
        job: its name.
        incarnation: the life that writes.

    Raises:
        Fenced: the node says that this life is over.
    """
    found = number_in(node, paths)
    if node is None or found != incarnation:
        raise fenced(job, paths, incarnation, found)
    return Check(paths.incarnation, node.version)


def fenced(job: str, paths: JobPaths, incarnation: int, current: int, holder: str = "") -> Fenced:
    """Return the error of a life that is over; `holder` leads the job now, if known."""
    now = f"incarnation {current} is the current one" if current else "it has no incarnation"
    led = f", and {holder} holds its lease" if holder else ""
    return Fenced(
        f"incarnation {incarnation} of job {job!r} is over: {now}{led}",
        where=paths.incarnation,
        way_out="nothing if the job was started elsewhere; otherwise start it again",
        current=current,
    )
