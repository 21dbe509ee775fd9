"""All errors of the snapshots package: one base, and one class per thing the caller can do about it.

Each error says what happened, where, and what to do, in the same form as those of the rest of Lowtide; `exit_code` is
with what a command ends that meets it.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AddressUnproven",
    "CommitNeeded",
    "CommitRefused",
    "CommitUnknown",
    "EntryDiffers",
    "Fenced",
    "FormatTooNew",
    "KeyRefused",
    "LeaseTaken",
    "ManifestDamaged",
    "NoGoodCommit",
    "NoSuchCommit",
    "NodesOpen",
    "PartDamaged",
    "PartRefused",
    "RecordDamaged",
    "RecordDiffers",
    "RecordRefused",
    "RecordTooNew",
    "SnapshotsError",
    "WriteUnknown",
    "ZooKeeperRefused",
    "ZooKeeperUnavailable",
]


class SnapshotsError(Exception):
    """Base of all errors of this package.

    Attributes:
        what: one sentence, with the figures.
        where: node, address, field; empty where `what` says it already.
        way_out: what the reader can do now; empty only where nothing can be done.
        exit_code: with what a command ends.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", way_out: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.way_out = way_out

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.way_out:
            lines.append(f"  what to do: {self.way_out}")
        return "\n".join(lines)


class KeyRefused(SnapshotsError, ValueError):
    """Choose another key: a value of this type, or of this size, has no place in the key encoding."""


class RecordRefused(SnapshotsError, ValueError):
    """Correct what was to be written: a name, a number or a size that a job's place does not take."""

    exit_code = 2


class RecordDiffers(SnapshotsError):
    """Give the job another name, or the field its old value: what is frozen differs from what is asked.

    Attributes:
        fields: the names of all that differ.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", way_out: str = "", fields: tuple[str, ...] = ()) -> None:
        super().__init__(what, where=where, way_out=way_out)
        self.fields = fields


class RecordTooNew(SnapshotsError):
    """Use a newer Lowtide: the job was written by one."""

    exit_code = 4


class RecordDamaged(SnapshotsError):
    """Restore what is kept in ZooKeeper: it cannot be read, or a part of it is missing."""

    exit_code = 4


class EntryDiffers(SnapshotsError):
    """Find out who is wrong before going on: what is written once is there already, and says something else."""

    exit_code = 5


class LeaseTaken(SnapshotsError):
    """Stop the driver that runs the job, or wait until it has ended.

    Attributes:
        holder: who holds the lease; empty if nobody does.
    """

    exit_code = 4

    def __init__(self, what: str, *, where: str = "", way_out: str = "", holder: str = "") -> None:
        super().__init__(what, where=where, way_out=way_out)
        self.holder = holder


class SubmissionTaken(SnapshotsError):
    """Nothing, if this is a repetition: the life that this submission asks for has begun already.

    Attributes:
        incarnation: that life.
    """

    exit_code = 4

    def __init__(self, what: str, *, where: str = "", way_out: str = "", incarnation: int = 0) -> None:
        super().__init__(what, where=where, way_out=way_out)
        self.incarnation = incarnation


class Fenced(SnapshotsError):
    """End this life and write nothing more: another life of the job has begun, or another driver leads it.

    Attributes:
        current: the incarnation that is the job's now; 0 if it has none.
    """

    exit_code = 5

    def __init__(self, what: str, *, where: str = "", way_out: str = "", current: int = 0) -> None:
        super().__init__(what, where=where, way_out=way_out)
        self.current = current


class ZooKeeperUnavailable(SnapshotsError):
    """Start or mend ZooKeeper, or correct its address, then try again: it did not answer in time."""

    exit_code = 4


class WriteUnknown(ZooKeeperUnavailable):
    """Call the same again: the answer to a write was lost, and it may have been done; the call finds out."""


class CommitRefused(SnapshotsError):
    """Take another snapshot: this one is not above the last commit, or rests on a commit that was dropped."""

    exit_code = 5


class CommitUnknown(WriteUnknown):
    """Commit the same again: the answer was lost, and it may have been done; the call finds out."""


class CommitNeeded(SnapshotsError):
    """Drop other commits: this one is the last, or the current life was loaded from it."""

    exit_code = 2


class NoSuchCommit(SnapshotsError):
    """Choose among the commits that are there, which the text names."""

    exit_code = 2


class NoGoodCommit(SnapshotsError):
    """Restore the store from a backup, or start without state: each commit is damaged, and the text says how."""

    exit_code = 4


class ZooKeeperRefused(SnapshotsError):
    """Give the user and password that the job's nodes were made with."""

    exit_code = 4


class NodesOpen(SnapshotsError):
    """Close the nodes to others: with them, a job's life could be ended or forged by whoever reaches ZooKeeper."""

    exit_code = 4


class AddressUnproven(SnapshotsError):
    """Give the job's token, or find out who named this address: nothing shows that the job's control API is there."""

    exit_code = 4


class PartRefused(SnapshotsError, ValueError):
    """Correct what was to be written: a part does not take a table of these columns or types, or a name like this."""

    exit_code = 2


class PartDamaged(SnapshotsError):
    """Recover from another commit: a part cannot be read, or is not the one that was asked for."""

    exit_code = 4


class ManifestDamaged(SnapshotsError):
    """Recover from another commit: a manifest cannot be read, or contradicts itself."""

    exit_code = 4


class FormatTooNew(SnapshotsError):
    """Use a newer Lowtide: the part or manifest was written by one."""

    exit_code = 4
