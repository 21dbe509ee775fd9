"""Has a running job take a snapshot."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowSkipException

from lowtide_airflow.client import JobClient
from lowtide_airflow.errors import NotRunning
from lowtide_airflow.operators.job_operator import JobOperator, is_true
from lowtide_airflow.triggers.snapshot import SnapshotTrigger, Wanted, told_of
from lowtide_airflow.ui.links import SnapshotLink

__all__ = ["TakeSnapshot"]

POLL_S = 0.2


class TakeSnapshot(JobOperator):
    """Has a running job take a snapshot, and waits until it is sealed, or committed where the job is to do that.

    The request has a key: a life that has been asked by an earlier try answers with the snapshot that it began then.

    Returns `snapshot` (its id), `name`, `phase`, `min_time_ms`, `parts`, `rows`, `bytes`, `job` and `connection`, each
    as an output of its own too: `take.output["snapshot"]`.

    Args:
        job: the job's name.
        name: what to call it; one with a name is never pruned.
        commit: whether the job commits it as soon as it is sealed, without anybody's verifying it.
        if_down: of a job that does not run: "fail", or "skip" the task.
        limit_s: how long it may take; the job gives up after [snapshots].taking_limit_s, 600 s.
        inline_s: how long the task itself waits before it defers, which costs Airflow seconds.
        connection, poll_s: as of `JobOperator`.
    """

    template_fields: Sequence[str] = (*JobOperator.template_fields, "name", "commit", "if_down", "limit_s", "inline_s")
    operator_extra_links = (SnapshotLink(),)

    def __init__(
        self,
        *,
        job: Any,
        name: Any = None,
        commit: Any = False,
        if_down: Any = "fail",
        limit_s: Any = 660.0,
        inline_s: Any = 8.0,
        **kwargs: Any,
    ) -> None:
        # `take.output["snapshot"]` is an XCom of its own.
        kwargs.setdefault("multiple_outputs", True)
        super().__init__(job=job, **kwargs)
        self.name = name
        self.commit = commit
        self.if_down = if_down
        self.limit_s = limit_s
        self.inline_s = inline_s

    def execute(self, context: Any) -> Any:
        """Ask for it, and wait a little."""
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
            self.log.info("snapshot %s has begun", asked["id"])
            SnapshotLink.note(context, job=self.job, connection=self.connection, snapshot=asked["id"])
            said = self._inline(client, asked["id"], wanted)
        if said is not None:
            return self._done(context, self.told_of_snapshot(said))
        trigger = SnapshotTrigger(snapshot=asked["id"], wanted=wanted, **self.waits(self.limit_s))
        return self.defer(trigger=trigger, method_name="taken")

    def taken(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Go on when it is as wanted."""
        return self._done(context, self.told_of_snapshot(event))

    def _inline(self, client: JobClient, snapshot: str, wanted: Wanted) -> dict[str, Any] | None:
        deadline = time.monotonic() + float(self.inline_s)
        while (said := told_of(client, snapshot, wanted)) is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return said

    def _done(self, context: Any, view: Mapping[str, Any]) -> dict[str, Any]:
        kept = ("name", "phase", "min_time_ms", "parts", "rows", "bytes")
        place = {"job": self.job, "connection": self.connection, "snapshot": view["id"]}
        done = {name: view.get(name) for name in kept} | place
        self.log.info("snapshot %s is %s: %s", view["id"], view["phase"], done)
        SnapshotLink.note(context, **place)
        self.note(context, **done)
        return done
