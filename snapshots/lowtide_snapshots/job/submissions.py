"""Submissions: a program that is submitted twice under one key begins one life, not two."""

from __future__ import annotations

from lowtide_snapshots.errors import SubmissionTaken
from lowtide_snapshots.job.paths import JobPaths
from lowtide_snapshots.zookeeper.node_values import to_bytes, value_of, whole
from lowtide_snapshots.zookeeper.nodes import Create, Delete, Node, Nodes, Operation, Set

KEPT = 200
"""Number of keys remembered; an older key begins another life."""


def begun_by(zk: Nodes, paths: JobPaths, key: str) -> int | None:
    """The incarnation that a submission began; None if it has begun none."""
    path = paths.submission(key)
    (node,) = zk.get_all([path])
    return None if node is None else whole(value_of(node.data, path), "incarnation", path)


def taking(zk: Nodes, paths: JobPaths, job: str, *, key: str, token: str, incarnation: int) -> list[Operation]:
    """Return the operations that record a submission in the transaction that raises the incarnation.

    Args:
        zk: Where the job's place is.
        paths: Of the job.
        job: Its name.
        key: Of the submission.
        token: Of the process: it may raise the incarnation several times.
        incarnation: The life that begins.

    Raises:
        SubmissionTaken: another process has begun a life with this key.
    """
    path = paths.submission(key)
    (node,) = zk.get_all([path])
    data = to_bytes({"incarnation": incarnation, "token": token})
    if node is None:
        return [Create(path, data), *_forgetting(zk, paths)]
    value = value_of(node.data, path)
    if value.get("token") != token:
        raise _taken(job, path, key, whole(value, "incarnation", path))
    return [Set(path, data, node.version)]


def refuse_again(zk: Nodes, paths: JobPaths, job: str, key: str) -> None:
    """See that a submission has begun no life yet, before anything is started for it.

    Raises:
        SubmissionTaken: it has.
    """
    begun = begun_by(zk, paths, key)
    if begun is not None:
        raise _taken(job, paths.submission(key), key, begun)


def _taken(job: str, where: str, key: str, incarnation: int) -> SubmissionTaken:
    """The error of a key that has begun a life."""
    return SubmissionTaken(
        f"submission {key!r} of job {job!r} has already begun life {incarnation}; it does not begin a second one",
        where=where,
        way_out="nothing if this is a repetition; to start the job once more, submit it under another key",
        incarnation=incarnation,
    )


def _forgetting(zk: Nodes, paths: JobPaths) -> list[Operation]:
    found = [f"{paths.submissions}/{name}" for name in zk.children(paths.submissions) or []]
    if len(found) < KEPT:
        return []
    nodes = [(path, node) for path, node in zip(found, zk.get_all(found), strict=True) if node is not None]
    nodes.sort(key=lambda each: _age(*each))
    return [Delete(path, node.version) for path, node in nodes[: len(nodes) - KEPT + 1]]


def _age(path: str, node: Node) -> int:
    return whole(value_of(node.data, path), "incarnation", path)
