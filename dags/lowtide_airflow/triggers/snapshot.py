"""Trigger for a snapshot that has been requested."""

from __future__ import annotations

from typing import Any, Literal

from lowtide_airflow.errors import NotRunning
from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.snapshots import plain
from lowtide_airflow.triggers.base import JobTrigger
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.errors import ControlUnreachable, NoSuchCommit
from lowtide_snapshots.format.names import incarnation_of

__all__ = ["SnapshotTrigger", "Wanted", "poll_snapshot"]

Wanted = Literal["sealed", "committed"]


class SnapshotTrigger(JobTrigger):
    """Waits until a snapshot is sealed, or committed, as `wanted`: `snapshot`, as the control API shows it.

    Args:
        snapshot: its id.
        wanted: "sealed" or "committed".
        job, lowtide_conn_id, end_time, poll_interval: see `JobTrigger`.
    """

    waits_for = "the snapshot"

    def __init__(
        self,
        *,
        job: str,
        lowtide_conn_id: str,
        snapshot: str,
        wanted: Wanted = "sealed",
        end_time: float | None = None,
        poll_interval: float = 1.0,
    ) -> None:
        super().__init__(job=job, lowtide_conn_id=lowtide_conn_id, end_time=end_time, poll_interval=poll_interval)
        self.snapshot = snapshot
        self.wanted = wanted

    def poll(self, client: JobClient) -> dict[str, Any] | None:
        """See `JobTrigger.poll`."""
        return poll_snapshot(client, self.snapshot, self.wanted)


def poll_snapshot(client: JobClient, snapshot: str, wanted: Wanted) -> dict[str, Any] | None:
    """Return `snapshot` once it has the wanted phase, `error` if it never will, None to poll again.

    If the job does not answer or has ended, the store shows what it has written.
    """
    try:
        views = client.control().snapshots()
    except (NotRunning, ControlUnreachable):
        return _from_store(client, snapshot, wanted)
    view = next((each for each in views if each["id"] == snapshot), None)
    if view is None:
        return _from_store(client, snapshot, wanted)
    if view["phase"] == "failed":
        return {"error": f"snapshot {snapshot} failed: {Cause.of(view['why'])}"}
    return {"snapshot": view} if view["phase"] in (wanted, "committed") else None


def _from_store(client: JobClient, snapshot: str, wanted: Wanted) -> dict[str, Any] | None:
    with client.snapshots() as snapshots:
        try:
            known = snapshots.find(snapshot)
        except NoSuchCommit:
            known = None
    if known is not None and known.phase in (wanted, "committed"):
        return {"snapshot": plain(known)}
    status = client.status()
    if status.incarnation > incarnation_of(snapshot) or status.state in ("stopped", "failed"):
        return {"error": f"snapshot {snapshot} was abandoned: its life ended before it was {wanted}"}
    return None
