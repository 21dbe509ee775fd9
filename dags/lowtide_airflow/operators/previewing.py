"""Says what a job would begin with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lowtide_airflow.moments import ms_of
from lowtide_airflow.operators.running import RunFlow
from lowtide_airflow.submit import Start
from lowtide_airflow.ui.links import SnapshotLink
from lowtide_snapshots.errors import NoSuchCommit

__all__ = ["PreviewFlow"]


class PreviewFlow(RunFlow):
    """Says what a job would begin with, how many records it would read and deliver again; nothing is started.

    It fails for good if the start would be refused. Returns what `lowtide recover --dry-run --json` says; of a job on a
    cluster its arguments are checked and the commit that it would begin from, which is all that is returned: `commit`
    with its `id`.

    Args:
        job, flow, conf, settings, submit, spark, commit, time, no_state, redeliver, limit_s: as of `RunFlow`.
    """

    template_fields: Sequence[str] = RunFlow.template_fields
    operator_extra_links = (SnapshotLink(),)

    def execute(self, context: Any) -> Any:
        """Look ahead."""
        start = self.beginning()
        with self.no_vain_retries():
            said = self.submitter().preview(start, self.log.info)
        if said is None:
            said = {"commit": self._commit(start)}
        if said and said.get("commit"):
            SnapshotLink.note(context, job=self.job, connection=self.connection, snapshot=said["commit"]["id"])
        self.log.info("it would begin so: %s", json.dumps(said, indent=2))
        return said

    def _commit(self, start: Start) -> dict[str, str] | None:
        """The commit that it would begin from, every part of it read; None if it would begin without state."""
        if start.no_state:
            return None
        before_ms = None if start.time is None else ms_of(start.time)
        with self.client() as client, client.snapshots() as snapshots:
            try:
                choice = snapshots.choose(start.commit, before_ms)
            except NoSuchCommit:
                if start.chosen:
                    raise
                return None
        return {"id": choice.commit.id}
