"""Says what a job would begin with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lowtide_airflow.operators.running import RunFlow
from lowtide_airflow.ui.links import SnapshotLink

__all__ = ["PreviewFlow"]


class PreviewFlow(RunFlow):
    """Says what a job would begin with, how many records it would read and deliver again; nothing is started.

    It fails for good if the start would be refused. Returns what `lowtide recover --dry-run --json` says; nothing of a
    job on a cluster, of which only the arguments are checked.

    Args:
        job, flow, conf, settings, submit, spark, commit, time, no_state, redeliver, limit_s: as of `RunFlow`.
    """

    template_fields: Sequence[str] = RunFlow.template_fields
    operator_extra_links = (SnapshotLink(),)

    def execute(self, context: Any) -> Any:
        """Look ahead."""
        with self.no_vain_retries():
            said = self.submitter().preview(self.beginning(), self.log.info)
        if said and said.get("commit"):
            SnapshotLink.note(context, job=self.job, connection=self.connection, snapshot=said["commit"]["id"])
        self.log.info("it would begin so: %s", json.dumps(said, indent=2))
        return said
