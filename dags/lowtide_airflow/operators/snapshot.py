"""Operators that take, verify, commit and prune snapshots.

Only taking one needs the running job; the others work on the store and ZooKeeper.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from lowtide_airflow.arguments import is_true, seconds
from lowtide_airflow.compat import AirflowFailException, AirflowSkipException
from lowtide_airflow.errors import NotRunning
from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.snapshots import JobSnapshots, plain
from lowtide_airflow.operators.base import LowtideOperator
from lowtide_airflow.triggers.snapshot import SnapshotTrigger, Wanted, poll_snapshot
from lowtide_airflow.ui.links import JobLink, SnapshotLink
from lowtide_snapshots.commits.log import Commit
from lowtide_snapshots.errors import CommitRefused

__all__ = ["CommitSnapshotOperator", "PruneSnapshotsOperator", "TakeSnapshotOperator", "VerifySnapshotOperator"]

INLINE_POLL_S = 0.2
MOST_NAMED = 10


class TakeSnapshotOperator(LowtideOperator):
    """Has a running job take a snapshot, and waits until it is sealed, or committed if the job is to do that.

    The request has a key: a life that got it from an earlier try answers with the snapshot that it took then.

    Returns `snapshot` (its id), `name` if it has one, `phase`, `min_time_ms`, `parts`, `rows`, `bytes`, `job` and
    `connection`, each also as a separate output: `take.output["snapshot"]`.

    Args:
        job: the job's name.
        name: the snapshot's name; one with a name is never pruned.
        commit: whether the job commits it as soon as it is sealed, without verifying it.
        if_down: what to do if the job does not run: "fail", or "skip" the task.
        inline_s: how long the task itself waits before it defers, which costs Airflow seconds.
        timeout: seconds, or a timedelta, that it may take; the job gives up after [snapshots].taking_limit_s, 600 s.
        lowtide_conn_id, deferrable, poll_interval: see `LowtideOperator`.
    """

    template_fields: Sequence[str] = (*LowtideOperator.template_fields, "name", "commit", "if_down", "inline_s")
    operator_extra_links = (SnapshotLink(),)

    def __init__(
        self,
        *,
        job: str,
        name: str | None = None,
        commit: bool | str = False,
        if_down: str = "fail",
        inline_s: float | str = 8.0,
        timeout: float | str | timedelta = 660.0,
        **kwargs: Any,
    ) -> None:
        # `take.output["snapshot"]` is a separate XCom.
        kwargs.setdefault("multiple_outputs", True)
        super().__init__(job=job, timeout=timeout, **kwargs)
        self.name = name
        self.commit = commit
        self.if_down = if_down
        self.inline_s = inline_s

    def execute(self, context: Any) -> Any:
        """Request the snapshot, and wait a little."""
        wanted: Wanted = "committed" if is_true(self.commit) else "sealed"
        with self.client() as client:
            try:
                asked = client.control().take_snapshot(
                    name=str(self.name) if self.name else None, key=self.key(context), commit=is_true(self.commit)
                )
            except NotRunning as error:
                if self.if_down != "skip":
                    raise
                raise AirflowSkipException(str(error)) from error
            self.tell_log(client)
            self.log.info("snapshot %s has begun", asked["id"])
            SnapshotLink.note(context, job=self.job, connection=self.lowtide_conn_id, snapshot=asked["id"])
            event = self._inline(client, asked["id"], wanted)
        if event is not None:
            return self.taken(context, event)
        return self.wait(SnapshotTrigger, "taken", context, snapshot=asked["id"], wanted=wanted)

    def taken(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Resume when the snapshot has the wanted phase."""
        view = self.checked_snapshot(event)
        kept = ("name", "phase", "min_time_ms", "parts", "rows", "bytes")
        page = {"job": self.job, "connection": self.lowtide_conn_id, "snapshot": view["id"]}
        # Each is an output of its own, and Airflow 3.0 refuses one that is None.
        done = {name: view[name] for name in kept if view.get(name) is not None} | page
        self.log.info("snapshot %s is %s: %s", view["id"], view["phase"], done)
        self.note(context, **done)
        return done

    def _inline(self, client: JobClient, snapshot: str, wanted: Wanted) -> dict[str, Any] | None:
        deadline = time.monotonic() + float(self.inline_s)
        while (event := poll_snapshot(client, snapshot, wanted)) is None and time.monotonic() < deadline:
            time.sleep(INLINE_POLL_S)
        return event


class VerifySnapshotOperator(LowtideOperator):
    """Reads every part of a snapshot, and fails for good if one is damaged.

    Returns `job`, `snapshot`, `parts`, `rows`, `bytes`.

    Args:
        job: the job's name.
        snapshot: its id or name; by default the last commit.
        lowtide_conn_id: see `LowtideOperator`.
    """

    template_fields: Sequence[str] = (*LowtideOperator.template_fields, "snapshot")
    operator_extra_links = (SnapshotLink(),)

    def __init__(self, *, job: str, snapshot: str | None = None, **kwargs: Any) -> None:
        super().__init__(job=job, **kwargs)
        self.snapshot = snapshot

    def execute(self, context: Any) -> Any:
        """Verify it."""
        with self.client() as client, client.snapshots() as snapshots:
            known, damages = snapshots.verify(str(self.snapshot) if self.snapshot else None)
        SnapshotLink.note(context, job=self.job, connection=self.lowtide_conn_id, snapshot=known.id)
        found = plain(known)
        if damages:
            named = "\n".join(f"  {damage.part}: {damage.why}" for damage in damages[:MOST_NAMED])
            raise AirflowFailException(
                f"snapshot {known.id} of job {self.job!r} is damaged, {len(damages)} of {found['parts']} parts:\n"
                f"{named}\n  what to do: take another one; if that is damaged too, check the store"
            )
        done = {"job": self.job, "snapshot": known.id, **{name: found[name] for name in ("parts", "rows", "bytes")}}
        self.log.info("snapshot %s is whole: %s", known.id, done)
        return done


class CommitSnapshotOperator(LowtideOperator):
    """Makes a sealed snapshot the one to recover from; does nothing if it is committed already.

    If ZooKeeper's answer was lost the outcome is unknown: the try fails, and the next one finds out. The task is
    skipped if a newer snapshot is committed, by the job itself for instance. It fails for good if another life has
    begun, or the commit that the snapshot is based on was dropped.

    Returns `job`, `snapshot`, `min_time_ms`, `committed`.

    Args:
        job: the job's name.
        snapshot: its id or name.
        lowtide_conn_id: see `LowtideOperator`.
    """

    template_fields: Sequence[str] = (*LowtideOperator.template_fields, "snapshot")
    operator_extra_links = (SnapshotLink(),)

    def __init__(self, *, job: str, snapshot: str, **kwargs: Any) -> None:
        super().__init__(job=job, **kwargs)
        self.snapshot = snapshot

    def execute(self, context: Any) -> Any:
        """Commit it."""
        with self.client() as client, client.snapshots() as snapshots:
            commit = self._commit(snapshots)
        SnapshotLink.note(context, job=self.job, connection=self.lowtide_conn_id, snapshot=commit.id)
        done = {"job": self.job, "snapshot": commit.id, "min_time_ms": commit.min_time_ms, "committed": commit.at}
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


class PruneSnapshotsOperator(LowtideOperator):
    """Drops the commits that the rule does not keep, then deletes everything that nothing needs.

    Never dropped: the last commit, the one that the current life began from, those that a sealed snapshot needs, and
    those with a name. Returns `kept`, `dropped`, `manifests`, `parts`, `bytes`, `damaged`.

    Args:
        job: the job's name.
        keep: how many commits without a name to keep.
        max_age_s: drop commits older than this; None for no limit.
        dry: only return what would be dropped.
        lowtide_conn_id: see `LowtideOperator`.
    """

    template_fields: Sequence[str] = (*LowtideOperator.template_fields, "keep", "max_age_s", "dry")
    operator_extra_links = (JobLink(),)

    def __init__(
        self,
        *,
        job: str,
        keep: int | str = 10,
        max_age_s: float | str | timedelta | None = None,
        dry: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(job=job, **kwargs)
        self.keep = keep
        self.max_age_s = max_age_s
        self.dry = dry

    def execute(self, context: Any) -> Any:
        """Drop and delete."""
        JobLink.note(context, job=self.job, connection=self.lowtide_conn_id)
        with self.client() as client, client.snapshots() as snapshots:
            age_s = seconds(self.max_age_s) if self.max_age_s else None
            pruned = snapshots.prune(int(self.keep), age_s, dry_run=is_true(self.dry))
        for commit, why in pruned.damaged.items():
            self.log.warning("no parts were deleted: commit %s may need them and is damaged: %s", commit, why)
        done = {"job": self.job, **asdict(pruned)}
        self.log.info("pruned: %s", done)
        return done
