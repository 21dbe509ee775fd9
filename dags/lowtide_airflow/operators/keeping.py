"""Verifies, commits and prunes snapshots: in the store and ZooKeeper, whether the job runs or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from lowtide_airflow.job_snapshots import JobSnapshots
from lowtide_airflow.operators.job_operator import JobOperator, is_true
from lowtide_airflow.ui.links import JobLink, SnapshotLink
from lowtide_snapshots.commits.log import Commit
from lowtide_snapshots.errors import CommitRefused

__all__ = ["CommitSnapshot", "PruneSnapshots", "VerifySnapshot"]

MOST_NAMED = 10


class VerifySnapshot(JobOperator):
    """Reads every part of a snapshot, and fails if one is damaged; another try would find the same.

    Returns `job`, `snapshot`, `parts`, `rows`, `bytes`.

    Args:
        job: the job's name.
        snapshot: its id or name; by default the last commit.
        connection, poll_s: as of `JobOperator`.
    """

    template_fields: Sequence[str] = (*JobOperator.template_fields, "snapshot")
    operator_extra_links = (SnapshotLink(),)

    def __init__(self, *, job: Any, snapshot: Any = None, **kwargs: Any) -> None:
        super().__init__(job=job, **kwargs)
        self.snapshot = snapshot

    def execute(self, context: Any) -> Any:
        """Read it."""
        with self.client() as client, client.snapshots() as snapshots:
            known, damages = snapshots.verify(str(self.snapshot) if self.snapshot else None)
        SnapshotLink.note(context, job=self.job, connection=self.connection, snapshot=known.id)
        said = known.as_object()
        if damages:
            named = "\n".join(f"  {damage.part}: {damage.why}" for damage in damages[:MOST_NAMED])
            raise AirflowFailException(
                f"snapshot {known.id} of job {self.job!r} is damaged, {len(damages)} of {said['parts']} parts:\n{named}"
                "\n  what to do: take another one; check the store if that is damaged as well"
            )
        done = {"job": self.job, "snapshot": known.id, **{name: said[name] for name in ("parts", "rows", "bytes")}}
        self.log.info("snapshot %s is whole: %s", known.id, done)
        return done


class CommitSnapshot(JobOperator):
    """Makes a sealed snapshot the one to recover from; done before, it is done.

    An outcome that is not known, as ZooKeeper's answer was lost, fails the try, and the next one finds out. Skipped: a
    newer snapshot is committed, by the job itself for instance. Refused for good: another life has begun, or the commit
    that it rests on was dropped.

    Returns `job`, `snapshot`, `min_time_ms`, `committed`.

    Args:
        job: the job's name.
        snapshot: its id or name.
        connection, poll_s: as of `JobOperator`.
    """

    template_fields: Sequence[str] = (*JobOperator.template_fields, "snapshot")
    operator_extra_links = (SnapshotLink(),)

    def __init__(self, *, job: Any, snapshot: Any, **kwargs: Any) -> None:
        super().__init__(job=job, **kwargs)
        self.snapshot = snapshot

    def execute(self, context: Any) -> Any:
        """Commit it."""
        with self.client() as client, client.snapshots() as snapshots:
            commit = self._commit(snapshots)
        SnapshotLink.note(context, job=self.job, connection=self.connection, snapshot=commit.id)
        done = {
            "job": self.job,
            "snapshot": commit.id,
            "min_time_ms": commit.min_time_ms,
            "committed": commit.at,
        }
        self.log.info("snapshot %s is committed: %s", commit.id, done)
        self.note(context, **done)
        return done

    def _commit(self, snapshots: JobSnapshots) -> Commit:
        asked = str(self.snapshot)
        try:
            return snapshots.commit(asked)
        except CommitRefused:
            newer = snapshots.newer_than(asked)
            if newer is None:
                raise
            raise AirflowSkipException(
                f"snapshot {asked} is over, as a newer one is committed: {newer.id}, at {newer.at}"
            ) from None


class PruneSnapshots(JobOperator):
    """Drops the commits that a rule does not keep, then deletes what nothing needs any more.

    Never dropped: the last commit, the one that the present life began from, those that a sealed snapshot rests on, and
    those with a name. Returns `kept`, `dropped`, `manifests`, `parts`, `bytes`, `damaged`.

    Args:
        job: the job's name.
        keep: how many commits without a name are kept.
        max_age_s: older ones are not kept; None for no limit.
        dry: only say what would be dropped.
        connection, poll_s: as of `JobOperator`.
    """

    template_fields: Sequence[str] = (*JobOperator.template_fields, "keep", "max_age_s", "dry")
    operator_extra_links = (JobLink(),)

    def __init__(self, *, job: Any, keep: Any = 10, max_age_s: Any = None, dry: Any = False, **kwargs: Any) -> None:
        super().__init__(job=job, **kwargs)
        self.keep = keep
        self.max_age_s = max_age_s
        self.dry = dry

    def execute(self, context: Any) -> Any:
        """Drop and delete."""
        JobLink.note(context, job=self.job, connection=self.connection)
        with self.client() as client, client.snapshots() as snapshots:
            age_s = float(self.max_age_s) if self.max_age_s else None
            pruned = snapshots.prune(int(self.keep), age_s, dry_run=is_true(self.dry))
        for commit, why in pruned.damaged.items():
            self.log.warning("no parts were deleted, as commit %s may need them and is damaged: %s", commit, why)
        done = pruned.as_object()
        self.log.info("pruned: %s", done)
        return {"job": self.job, **done}
