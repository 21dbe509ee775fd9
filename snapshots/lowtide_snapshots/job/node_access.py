"""Checks that only the job's own user may change its nodes in ZooKeeper.

A node keeps the access rights that it was created with, and anyone may create nodes below the jobs' folder. Anyone who
creates a job's node before the job does, or finds one created without a password, could therefore raise the job's
incarnation, forge its commits, or delete both.
"""

from __future__ import annotations

from collections.abc import Iterator

from kazoo.security import ACL, Permissions

from lowtide_snapshots.errors import NodesOpen
from lowtide_snapshots.job.paths import JobPaths
from lowtide_snapshots.zookeeper.connection import Connection

RIGHTS = {
    "create": Permissions.CREATE,
    "write": Permissions.WRITE,
    "delete": Permissions.DELETE,
    "admin": Permissions.ADMIN,
}
ANYBODY = ("world", "ip")


def check_access(zk: Connection, job: str, paths: JobPaths) -> None:
    """Check that only the connection's user may change the job's nodes, and that not everyone may change those above.

    It checks nothing without a password: everything is open then. Costs two answers per node, asked for at once.

    Raises:
        NodesOpen: others may, with the commands that close the nodes.
        ZooKeeperRefused: the nodes are closed to this user.
    """
    if zk.user is None:
        return
    # The nodes above are for all to read and to make nodes in, and belong to the first user.
    for path, acl in zip(paths.above, zk.acls(paths.above), strict=True):
        for entry in acl or ():
            rights = _rights(entry, "write", "delete", "admin")
            if rights and entry.id.scheme in ANYBODY:
                raise _open(f"the node above job {job!r}", path, entry, rights, "", ",world:anyone:cr")
    below = list(_below(zk, paths.job))
    for path, acl in zip(below, zk.acls(below), strict=True):
        for entry in acl or ():
            rights = _rights(entry, *RIGHTS)
            if rights and (entry.id.scheme, entry.id.id) not in (("digest", zk.user), ("digest", _masked(zk.user))):
                raise _open(f"the data of job {job!r}", path, entry, rights, "-R ", "", whole=paths.job)


def _below(zk: Connection, path: str) -> Iterator[str]:
    """A node and all below it, level by level."""
    level = [path]
    while level:
        yield from level
        found = zk.children_of(level)
        level = [f"{above}/{name}" for above, names in zip(level, found, strict=True) for name in names or ()]


def _rights(entry: ACL, *names: str) -> str:
    return ", ".join(name for name in names if entry.perms & RIGHTS[name])


def _masked(user: str) -> str:
    """Return a digest as ZooKeeper shows it to users that may not change the node's access: without the hash."""
    return f"{user.partition(':')[0]}:x"


def _open(what: str, path: str, entry: ACL, rights: str, deep: str, others: str, *, whole: str = "") -> NodesOpen:
    who = f"{entry.id.scheme}:{entry.id.id.partition(':')[0]}"
    return NodesOpen(
        f"others than the user of [zookeeper].auth_file can change {what} in ZooKeeper: {who} has {rights}",
        where=path,
        way_out="check who made it and that its content is the job's; then close it with ZooKeeper's zkCli.sh: "
        f"`addauth digest USER:PASSWORD`, `setAcl {deep}{whole or path} auth::cdrwa{others}`",
    )
