"""One snapshot being taken: its participants, their reports, and the resulting manifest. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from lowtide.assignment.messages import PartCount, PartEmpty, PartWritten, Pinned, ShareDurable, ShareNews, ShareSaved
from lowtide.assignment.setting import SnapshotSetting
from lowtide.core.fronts.floors import Steps
from lowtide.status.job_view import Phase, SnapshotView
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.commits.log import utc
from lowtide_snapshots.format.entries import parts_in
from lowtide_snapshots.format.manifest import FloorAt, FrontAt, LaneLast, Manifest, Part
from lowtide_snapshots.format.names import snapshot_id
from lowtide_snapshots.job.record import JobRecord
from lowtide_tracker import Floor


@dataclass(slots=True)
class _Share:
    """The reports of one worker about its share."""

    heard: bool = False
    since: int | None = None
    parts: int | None = None
    written: dict[tuple[str, int], Part | None] = field(default_factory=dict)
    """The parts by vertex and hash unit; None for a unit without state."""
    done: bool = False
    accepted: bool = False

    @property
    def saved(self) -> list[Part]:
        """Return the parts that are written."""
        parts = {(part.vertex, part.unit): part for part in self.written.values() if part is not None}
        return list(parts.values())

    def lacks(self) -> str:
        """Return what is still missing; empty if nothing is."""
        if not self.done:
            return f"has saved {len(self.saved)} of {'?' if self.parts is None else self.parts} parts"
        return "" if self.accepted else "has records before it that are not durable in their sink"


class Taking:
    """A snapshot from its request to its seal.

    Args:
        number: Counts the snapshots of the life.
        name: Its name.
        key: The request's key, so that a repeated request gets this one; None for none.
        setting: The driver program's setting.
        incarnation: The life.
        record: The job's record.
        began_s: The monotonic time of the request.
    """

    def __init__(
        self,
        number: int,
        name: str | None,
        *,
        key: str | None = None,
        setting: SnapshotSetting,
        incarnation: int,
        record: JobRecord,
        began_s: float,
    ) -> None:
        self.number = number
        self.name = name
        self.key = key
        self.id = snapshot_id(incarnation, number)
        self.began_s = began_s
        self.took_s: float | None = None
        self.phase: Phase = "taking"
        self.why: Cause | None = None
        self.tick: int | None = None
        self.manifest: Manifest | None = None
        self.reserved = False
        """True if a place among the commits is reserved for it: it can be committed after a newer one."""
        self.handed_on: tuple[FloorAt, ...] = ()
        """The floors of the last commit's manifest at the time of the request."""
        self._setting = setting
        self._incarnation = incarnation
        self._record = record
        self._began = datetime.now(UTC)
        self._shares: dict[str, _Share] = {}
        self._fronts: dict[int, FrontAt] = {}
        self._lasts: dict[tuple[int, str, int], LaneLast] = {}
        self._pause_ms = 0.0
        self._early: list[tuple[str, ShareNews]] = []
        """The reports that came before the request was known here."""

    def begin(self, tick: int, workers: Iterable[str], fronts: Mapping[int, FrontAt]) -> None:
        """Note that the request is out, at this tick.

        Args:
            tick: T.
            workers: The workers that take part.
            fronts: All registered fronts; a worker reports where its own is read again.
        """
        self.tick = tick
        self._shares = {worker: _Share() for worker in workers}
        self._fronts = dict(fronts)
        early, self._early = self._early, []
        for worker, news in early:
            self.hear(worker, news)

    def hear(self, worker: str, news: ShareNews) -> None:
        """Take a worker's report of its share; ignore workers that do not take part."""
        if self.tick is None:
            self._early.append((worker, news))
            return
        share = self._shares.get(worker)
        if share is None:
            return
        share.heard = True
        match news:
            case Pinned(since=since, front=front, pause_ms=pause_ms):
                share.since = since
                self._pause_ms = max(self._pause_ms, pause_ms)
                if front is not None:
                    number, offset, label = front
                    self._fronts[number] = replace(self._fronts[number], offset=offset, label=label)
            case PartCount(parts=parts):
                share.parts = parts
            case PartWritten(part=part):
                share.written.update({(part.vertex, unit): part for unit in part.counts_for})
            case PartEmpty(vertex=vertex, unit=unit):
                share.written[vertex, unit] = None
            case ShareSaved():
                share.done = True
            case ShareDurable(lasts=lasts):
                share.accepted = True
                self._lasts |= {(lane.level, lane.sink, lane.lane): lane for lane in lasts}

    @property
    def heard(self) -> bool:
        """True if all workers have its request."""
        return self.tick is not None and not self.unheard

    @property
    def unheard(self) -> list[str]:
        """The workers that do not have its request yet."""
        return sorted(worker for worker, share in self._shares.items() if not share.heard)

    @property
    def whole(self) -> bool:
        """True if all is written, and all before T is durable (R15)."""
        return self.tick is not None and not self.waits_for

    @property
    def waits_for(self) -> list[str]:
        """The workers it waits for, and what each lacks."""
        lacking = ((worker, share.lacks()) for worker, share in sorted(self._shares.items()))
        return [f"worker {worker} {what}" for worker, what in lacking if what]

    @property
    def since(self) -> int | None:
        """The T of the newest commit on which a worker relies for unchanged state; None if none does."""
        return max((share.since for share in self._shares.values() if share.since is not None), default=None)

    @property
    def starts(self) -> dict[int, int]:
        """The offset by front from which it is read again."""
        return {number: front.offset for number, front in self._fronts.items()}

    def seal(self, base: Manifest | None, floors: Iterable[Floor]) -> Manifest:
        """Build the manifest; units that no worker rewrote keep the parts of the base (W9).

        Args:
            base: The commit at `since`: what a worker left to an older one has not changed up to this one either.
            floors: All floors that T rests on, as far as they matter from `starts` on; others may be among them.
        """
        assert self.whole, "R15: something is missing"
        assert self.tick is not None
        assert (None if base is None else base.tick) == self.since, "W9: another commit has other parts"
        parts = base.by_unit() if base else {}
        for share in self._shares.values():
            for key, part in share.written.items():
                if part is None:
                    parts.pop(key, None)
                elif part.since is None:
                    parts[key] = (part,)
                else:
                    # A delta since an older commit than the base has all that has changed since the base, too.
                    assert base is not None, "a delta rests on a commit"
                    assert part.since <= base.tick, "W9: it rests on a commit that this snapshot does not"
                    parts[key] = (*parts.get(key, ()), part)
        known = {shape.vertex for shape in self._setting.flow}
        self.manifest = Manifest(
            job=self._record.job,
            id=self.id,
            name=self.name,
            tick=self.tick,
            incarnation=self._incarnation,
            created=utc(datetime.now(UTC)),
            base=base.id if base else None,
            record=self._record,
            flow=self._setting.flow,
            fronts=tuple(self._fronts[number] for number in sorted(self._fronts)),
            floors=self._needed(floors),
            lasts=tuple(self._lasts[lane] for lane in sorted(self._lasts)),
            parts=parts_in({key: chain for key, chain in parts.items() if key[0] in known}),
            steps=self._setting.steps,
            generation=self._setting.generation,
        )
        return self.manifest

    def skip(self, skipped: Callable[[int, int], int]) -> None:
        """Move the starts of fronts past offsets without records, by a function of a front and its offset."""
        for number, front in self._fronts.items():
            self._fronts[number] = replace(front, offset=skipped(number, front.offset))

    def _needed(self, floors: Iterable[Floor]) -> tuple[FloorAt, ...]:
        """Return the floors that some front needs from where it is read again."""
        kept = Steps(floors)
        for front, offset in self.starts.items():
            kept.cut(front, offset)
        return tuple(FloorAt(each.front, each.offset, each.tick, each.cap) for each in kept)

    def over(self, phase: Phase, now_s: float) -> None:
        """Note that it is sealed, or has failed."""
        self.phase, self.took_s = phase, now_s - self.began_s

    def described(self) -> dict[str, Any]:
        """Return its fields for an event."""
        view = self.view(self.began_s)
        return {
            "snapshot": view.id,
            **({"called": view.name} if view.name else {}),
            "min_time_ms": view.min_time_ms,
            "parts": view.parts_done,
            "bytes": view.bytes,
            "took_s": view.took_s,
        }

    def view(self, now_s: float) -> SnapshotView:
        """Return its view."""
        shares = self._shares.values()
        written = [part for share in shares for part in share.saved]
        manifest = self.manifest
        return SnapshotView(
            id=self.id,
            name=self.name,
            phase=self.phase,
            min_time_ms=None if self.tick is None else self.tick * self._record.slack_ms,
            parts=sum(share.parts or 0 for share in shares),
            parts_done=len(written),
            rows=manifest.rows if manifest else sum(part.rows for part in written),
            bytes=manifest.bytes if manifest else sum(part.bytes for part in written),
            began=utc(self._began),
            took_s=round(self.took_s if self.took_s is not None else now_s - self.began_s, 3),
            pause_ms=self._pause_ms,
            waits_for=self.waits_for if self.phase == "taking" else [],
            why=self.why,
        )
