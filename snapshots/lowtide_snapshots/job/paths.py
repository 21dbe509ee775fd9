"""Paths of a job's nodes in ZooKeeper; the table is in `snapshots/README.md`."""

from __future__ import annotations

from urllib.parse import quote, unquote

from lowtide_snapshots.errors import RecordRefused

# ZooKeeper does not take these as names.
_RESERVED = {".": "%2E", "..": "%2E%2E"}


class JobPaths:
    """The paths of one job's nodes.

    Attributes:
        folders: the nodes that hold others, from the top, and whether they are shared by all jobs.
        above: the root, and the node in it that holds all jobs.
    """

    def __init__(self, root: str, job: str) -> None:
        self.job = f"{jobs_path(root)}/{node_name(job)}"
        self.record = f"{self.job}/record"
        self.id = f"{self.job}/id"
        self.lease = f"{self.job}/lease"
        self.incarnation = f"{self.job}/incarnation"
        self.fronts = f"{self.job}/fronts"
        self.sink_ids = f"{self.job}/sink_ids"
        self.lasts = f"{self.job}/lasts"
        self.stores = f"{self.job}/stores"
        self.steps = f"{self.job}/steps"
        self.records = f"{self.job}/records"
        self.places = f"{self.job}/places"
        self.partitions = f"{self.job}/partitions"
        self.told = f"{self.job}/told"
        self.borrowed = f"{self.job}/borrowed"
        self.published = f"{self.job}/published"
        self.life = f"{self.job}/life"
        self.commits = f"{self.job}/commits"
        self.last_commit = f"{self.job}/last_commit"
        self.reserved = f"{self.job}/reserved"
        self.restored = f"{self.job}/restored"
        self.lives = f"{self.job}/lives"
        self.submissions = f"{self.job}/submissions"
        self.standbys = f"{self.job}/standbys"
        own = (self.job, self.fronts, self.sink_ids, self.commits, self.lives, self.submissions, self.standbys)
        self.above = _shared(root)[-2:]
        self.folders = [(path, True) for path in _shared(root)] + [(path, False) for path in own]

    def front(self, number: int) -> str:
        """The node of one entry of the front register."""
        return f"{self.fronts}/{number:010d}"

    def commit(self, tick: int, snapshot: str) -> str:
        """The node of one commit."""
        return f"{self.commits}/{tick:020d}-{snapshot}"

    def one_life(self, incarnation: int) -> str:
        """The node of one life in the history."""
        return f"{self.lives}/{incarnation:010d}"

    def submission(self, key: str) -> str:
        """The node of one submission."""
        return f"{self.submissions}/{node_name(key)}"

    def sink_id(self, name: str) -> str:
        """The node of one transactional id."""
        return f"{self.sink_ids}/{node_name(name)}"


def jobs_path(root: str) -> str:
    """The node that holds all jobs' places."""
    return _shared(root)[-1]


def node_name(name: str) -> str:
    """A name as a node's: percent-encoded UTF-8, of which letters, digits and `_.-~` stay as they are.

    Raises:
        RecordRefused: the name is empty or no text of Unicode.
    """
    try:
        quoted = quote(name, safe="")
    except UnicodeEncodeError:
        quoted = ""
    if not quoted:
        raise RecordRefused(f"{name!r} is not a valid name", where="ZooKeeper", way_out="use Unicode characters only")
    return _RESERVED.get(quoted, quoted)


def name_of(node: str) -> str:
    """The inverse of `node_name`."""
    return unquote(node)


def _shared(root: str) -> list[str]:
    names = [*map(node_name, root.strip("/").split("/")), "jobs"]
    return ["/" + "/".join(names[: depth + 1]) for depth in range(len(names))]
