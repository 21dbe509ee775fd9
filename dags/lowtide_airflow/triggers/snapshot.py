"""Waits until a snapshot is sealed or committed."""

from __future__ import annotations

from typing import Any, Literal

from lowtide_airflow.client import JobClient
from lowtide_airflow.errors import ControlUnreachable, NotRunning
from lowtide_airflow.triggers.polling import PollingTrigger
from lowtide_snapshots.errors import NoSuchCommit
from lowtide_snapshots.format.names import incarnation_of

__all__ = ["SnapshotTrigger", "told_of"]

Wanted = Literal["sealed", "committed"]


class SnapshotTrigger(PollingTrigger):
    """Tells that a snapshot is sealed, or committed where that is wanted: `snapshot`, its view as the job tells it.

    Args:
        snapshot: its id.
        wanted: "sealed" or "committed".
        job, connection, until, poll_s: as of `PollingTrigger`.
    """

    waits_for = "the snapshot"

    def __init__(
        self,
        *,
        job: str,
        connection: str,
        snapshot: str,
        wanted: Wanted = "sealed",
        until: float | None = None,
        poll_s: float = 1.0,
    ) -> None:
        super().__init__(job=job, connection=connection, until=until, poll_s=poll_s)
        self.snapshot = snapshot
        self.wanted = wanted

    def arguments(self) -> dict[str, Any]:
        """See `PollingTrigger.arguments`."""
        return {**super().arguments(), "snapshot": self.snapshot, "wanted": self.wanted}

    def look(self, client: JobClient) -> dict[str, Any] | None:
        """See `PollingTrigger.look`."""
        return told_of(client, self.snapshot, self.wanted)


def told_of(client: JobClient, snapshot: str, wanted: Wanted) -> dict[str, Any] | None:
    """What is to be told of a snapshot: `snapshot` with its view once it is as wanted, or `error`; None to look again.

    A job that is silent or gone leaves what it has put into the store: that is looked at then.
    """
    try:
        views = client.control().snapshots()
    except (NotRunning, ControlUnreachable):
        return _from_store(client, snapshot, wanted)
    view = next((each for each in views if each["id"] == snapshot), None)
    if view is None:
        return _from_store(client, snapshot, wanted)
    if view["phase"] == "failed":
        return {"error": f"snapshot {snapshot} failed: {view['why']}"}
    return {"snapshot": view} if view["phase"] in (wanted, "committed") else None


def _from_store(client: JobClient, snapshot: str, wanted: Wanted) -> dict[str, Any] | None:
    with client.snapshots() as snapshots:
        try:
            known = snapshots.find(snapshot)
        except NoSuchCommit:
            known = None
    if known is not None and known.phase in (wanted, "committed"):
        return {"snapshot": known.as_object()}
    look = client.look()
    if look.incarnation > incarnation_of(snapshot) or look.state in ("stopped", "failed"):
        return {"error": f"snapshot {snapshot} came to nothing: its life ended before it was {wanted}"}
    return None
