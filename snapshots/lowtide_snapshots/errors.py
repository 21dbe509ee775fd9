"""The base of all of Lowtide's errors, and those of the snapshots package: one class per thing to do about it.

Each error says what happened, where, and what to do; `exit_code` is with what a command ends that meets it. The codes
are in `lowtide.errors`, with the errors of the rest.
"""

from __future__ import annotations

from typing import ClassVar

from lowtide_snapshots.cause import Cause, Kind


class LowtideError(Exception):
    """Base of all errors that Lowtide raises on purpose.

    Attributes:
        what: one sentence, with the figures.
        where: file, step, record, node, host and port; empty where `what` says it already.
        way_out: what the reader can do now; empty only where nothing can be done.
        details: a traceback, as Python prints it; empty if there is none.
        kind: decides how to continue, see `Cause`.
        exit_code: with what a command ends.
    """

    exit_code: ClassVar[int] = 1
    kind: Kind = "other"

    def __init__(self, what: str, *, where: str = "", way_out: str = "", details: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.way_out = way_out
        self.details = details

    def __str__(self) -> str:
        return str(self.cause())

    def cause(self) -> Cause:
        """Return it as a value, to be sent and kept."""
        return Cause(self.kind, self.what, self.where, self.way_out, self.details)


def cause_of(error: BaseException, details: str = "") -> Cause:
    """Return any exception as a cause.

    Args:
        error: one of Lowtide's, or any other.
        details: for any other, its traceback; it may be left out.
    """
    if isinstance(error, LowtideError):
        return error.cause()
    return Cause("other", ": ".join(filter(None, (type(error).__name__, str(error)))), details=details)


class ServiceUnavailable(LowtideError):
    """Start or repair the service that does not answer, then try again."""

    kind = "loss"
    exit_code = 4


class ControlUnreachable(ServiceUnavailable):
    """Look whether the job still runs, then ask again: its control API gave no answer that could be used."""


class ControlRefused(LowtideError):
    """Ask for something else: the job answers, and says why it does not do this."""

    exit_code = 3


class TokenRefused(LowtideError):
    """Give the token of the job's present life."""

    exit_code = 4


class AlreadyRunning(LowtideError):
    """Stop what already runs under this name, or choose another name."""

    exit_code = 4


class FlowError(LowtideError):
    """Correct the flow: its steps do not fit together, or not to the job's record, or run only here."""

    exit_code = 3


class SnapshotDamaged(LowtideError):
    """Recover from another commit, or restore the store from a backup: what a snapshot needs is missing or damaged."""

    exit_code = 6


class SnapshotFailed(LowtideError):
    """Check what held the snapshot up, and take another one: the job runs on, and its last commit is unchanged."""

    exit_code = 6


class SnapshotsError(LowtideError):
    """Base of all errors of this package."""


class KeyRefused(SnapshotsError, ValueError):
    """Choose another key: a value of this type, or of this size, has no place in the key encoding."""


class RecordRefused(SnapshotsError, ValueError):
    """Correct what was to be written: a name, a number or a size that a job's place does not take."""

    exit_code = 2


class RecordDiffers(SnapshotsError, FlowError):
    """Give the job another name, or the field its old value: what is frozen differs from what is asked.

    Attributes:
        fields: the names of all that differ.
    """

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
    """Find out which side is wrong before you continue: a write-once node exists already, with another content."""

    exit_code = 5


class LeaseTaken(SnapshotsError, AlreadyRunning):
    """Stop the driver that runs the job, or wait until it has ended.

    Attributes:
        holder: the holder of the lease; empty if it is free.
    """

    def __init__(self, what: str, *, where: str = "", way_out: str = "", holder: str = "") -> None:
        super().__init__(what, where=where, way_out=way_out)
        self.holder = holder


class SubmissionTaken(SnapshotsError, AlreadyRunning):
    """Nothing, if this is a repetition: the life that this submission asks for has begun already.

    Attributes:
        incarnation: that life.
    """

    def __init__(self, what: str, *, where: str = "", way_out: str = "", incarnation: int = 0) -> None:
        super().__init__(what, where=where, way_out=way_out)
        self.incarnation = incarnation


class Fenced(SnapshotsError):
    """End this life and write nothing more: another life of the job has begun, or another driver leads it.

    Attributes:
        current: the incarnation that is the job's now; 0 if it has none.
    """

    kind = "loss"
    exit_code = 5

    def __init__(self, what: str, *, where: str = "", way_out: str = "", current: int = 0) -> None:
        super().__init__(what, where=where, way_out=way_out)
        self.current = current


class ZooKeeperUnavailable(SnapshotsError, ServiceUnavailable):
    """Start or repair ZooKeeper, or correct its address, then try again: it did not answer in time."""


class WriteUnknown(ZooKeeperUnavailable):
    """Call the same again: the answer to a write was lost, and it may have been done; the call finds out."""


class CommitRefused(SnapshotsError, SnapshotFailed):
    """Take another snapshot: this one is not above the last commit, or needs a commit that was dropped."""


class CommitUnknown(WriteUnknown):
    """Commit the same again: the answer was lost, and it may have been done; the call finds out."""


class CommitNeeded(SnapshotsError):
    """Drop other commits: this one is the last, or the current life was loaded from it."""

    exit_code = 2


class NoSuchCommit(SnapshotsError):
    """Choose among the commits that are there, which the text names."""

    exit_code = 2


class NoGoodCommit(SnapshotsError, SnapshotDamaged):
    """Restore the store from a backup, or start without state: each commit is damaged, and the text says how."""


class ZooKeeperRefused(SnapshotsError):
    """Give the user and password that the job's nodes were made with."""

    exit_code = 4


class NodesOpen(SnapshotsError):
    """Close the nodes to others: otherwise anyone who reaches ZooKeeper could end or forge a job's life."""

    exit_code = 4


class AddressUnproven(SnapshotsError):
    """Give the job's token, or find out what published this address: nothing proves that the job listens there."""

    exit_code = 4


class PartRefused(SnapshotsError, ValueError):
    """Correct what was to be written: a part does not take a table of these columns or types, or a name like this."""

    exit_code = 2


class PartDamaged(SnapshotsError, SnapshotDamaged):
    """Recover from another commit: a part cannot be read, or is not the one that was asked for."""


class ManifestDamaged(SnapshotsError, SnapshotDamaged):
    """Recover from another commit: a manifest cannot be read, or contradicts itself."""


class FormatTooNew(SnapshotsError):
    """Use a newer Lowtide: the part or manifest was written by one."""

    exit_code = 4
