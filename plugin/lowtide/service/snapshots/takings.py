"""The snapshots of one life, from the first request on; the oldest finished ones are dropped. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lowtide.assignment.setting import SnapshotSetting
from lowtide.errors import SnapshotFailed
from lowtide.service.snapshots.taking import Taking
from lowtide.status.job_view import SnapshotsView, SnapshotView
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.job.record import JobRecord

KEPT = 20
"""The number of the life's snapshots that are listed."""
MOST_AT_ONCE = 8


class Takings:
    """Snapshots that are being taken or were taken.

    Args:
        setting: The driver program's setting.
        incarnation: The life.
        record: The job's record.
    """

    def __init__(self, setting: SnapshotSetting, incarnation: int, record: JobRecord) -> None:
        self._setting = setting
        self._incarnation = incarnation
        self._record = record
        self._number = 0
        self._all: list[Taking] = []
        self._forgotten: list[str] = []

    def __iter__(self) -> Iterator[Taking]:
        return iter(self._all)

    def add(self, name: str | None, key: str | None, now_s: float) -> Taking:
        """Begin another snapshot.

        Args:
            name: Its name.
            key: The request's key.
            now_s: The monotonic time.

        Raises:
            SnapshotFailed: too many are being taken.
        """
        under_way = [each for each in self._all if each.phase == "taking"]
        if len(under_way) >= MOST_AT_ONCE:
            raise SnapshotFailed(
                f"{len(under_way)} snapshots are already being taken", way_out="wait until one of them is over"
            )
        over = [each for each in self._all if each.phase != "taking"]
        for oldest in over[: max(0, len(self._all) - KEPT + 1)]:
            self._all.remove(oldest)
            if oldest.reserved:
                self._forgotten.append(oldest.id)
        self._number += 1
        taking = Taking(
            self._number,
            name,
            key=key,
            setting=self._setting,
            incarnation=self._incarnation,
            record=self._record,
            began_s=now_s,
        )
        self._all.append(taking)
        return taking

    def forgotten(self) -> list[str]:
        """Return the ids of those with a reservation that were dropped since the last call."""
        forgotten, self._forgotten = self._forgotten, []
        return forgotten

    def of_key(self, key: str | None) -> Taking | None:
        """Return the one that a request with this key began, unless it failed; None if there is none."""
        same = (each for each in self._all if key is not None and each.key == key and each.phase != "failed")
        return next(same, None)

    def of_id(self, id_: str) -> Taking | None:
        """Return the one with this id; None if there is none."""
        return next((each for each in self._all if each.id == id_), None)

    def of_number(self, number: int) -> Taking | None:
        """Return the one with this number; None if there is none."""
        return next((each for each in self._all if each.number == number), None)

    def views(self, now_s: float) -> list[SnapshotView]:
        """Return all that is known of them, oldest first."""
        return [taking.view(now_s) for taking in self._all]

    def summary(self, last: Manifest | None, committed_s: float) -> SnapshotsView:
        """Return their summary for the job's status.

        Args:
            last: The job's last commit.
            committed_s: The seconds since the last commit.
        """
        counts = Counter(taking.phase for taking in self._all)
        sealed = [taking for taking in self._all if taking.manifest is not None and taking.took_s is not None]
        newest = sealed[-1] if sealed else None
        return SnapshotsView(
            last="" if last is None else last.id,
            last_ms=None if last is None else last.min_time_ms,
            committed_s=round(committed_s, 1),
            taking=next((taking.id for taking in self._all if taking.phase == "taking"), ""),
            counts={phase: count for phase, count in counts.items() if phase != "taking"},
            took_s=None if newest is None else newest.took_s,
            bytes=None if newest is None or newest.manifest is None else newest.manifest.bytes,
        )
