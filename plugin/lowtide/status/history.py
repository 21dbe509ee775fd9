"""The history of a job: its figures per second for a quarter of an hour, per 15 s for hours, and its marks.

history = History()
history.look(view)                      # each second
history.view(since_ms=0)                # what `GET /history` answers

It continues from one life to the next, as long as one service serves them. It is bounded: `FINE_KEPT` and
`COARSE_KEPT` samples, `MARKS_KEPT` marks; about 200 KB as JSON when full, 1 MB at most.
Times are the broker's, ms since 1970.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from statistics import fmean
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from lowtide.status.job_view import JobView
from lowtide.status.teller import AT

T = TypeVar("T")
FINE_STEP_MS = 1_000
FINE_KEPT = 15 * 60
COARSE_STEP_MS = 15_000
COARSE_KEPT = 6 * 60 * 4
MARKS_KEPT = 300
MAX_TEXT_CHARS = 200

MARKED = frozenset(
    {
        "life_begun",
        "life_ended",
        "snapshot_sealed",
        "snapshot_committed",
        "snapshot_failed",
        "tracker_restarted",
        "worker_lost",
        "stalled",
        "resumed",
        "zookeeper_lost",
        "zookeeper_back",
        "commits_pruned",
    }
)
"""The events that stand on the time axis."""


class Sample(Struct, frozen=True, array_like=True):
    """The figures of one step; a list in JSON, in this order. None where nothing was known.

    Attributes:
        at_ms: The end of the step.
        lag_ms: Lag of min time; the most within the step.
        delivered_lag_ms: Lag of delivered time; the most within the step.
        records_in: Records read per second.
        delivered: Records delivered per second.
        p50_ms: From a record's timestamp until it was durable.
        p99_ms: Its 99th percentile; the most within the step.
        held_s: For how long min time had stood where it was.
        holder: The holder at the greatest lag: an index into `HistoryView.holders`; None if unknown.
    """

    at_ms: int
    lag_ms: int | None
    delivered_lag_ms: int | None
    records_in: float | None
    delivered: float | None
    p50_ms: float | None
    p99_ms: float | None
    held_s: float | None
    holder: int | None


class Mark(Struct, frozen=True, kw_only=True):
    """One event on the time axis.

    Attributes:
        at_ms: When it happened, by the service's clock.
        event: Its name in the log.
        snapshot: The id of the snapshot that it is about; empty if it is about none.
        called: That snapshot's name; None if it has none.
        took_s: How long what has ended with it took; None if that is not known.
        why: The reason that it names, cut to `MAX_TEXT_CHARS`.
    """

    at_ms: int
    event: str
    snapshot: str = ""
    called: str | None = None
    took_s: float | None = None
    why: str = ""


class HistoryView(Struct, frozen=True, kw_only=True):
    """The answer of `GET /history`, ascending in time.

    Attributes:
        job: The job's name.
        incarnation: The number of its present life.
        seen_ms: The time of the last look; ask again with it as `since_ms` for what has come meanwhile.
        holders: Who has held min time: what samples point to.
        fine: One sample a second.
        coarse: One sample for 15 s; the last one may be a step behind `fine`.
        marks: What has happened.
    """

    job: str
    incarnation: int
    seen_ms: int
    holders: list[str]
    fine: list[Sample]
    coarse: list[Sample]
    marks: list[Mark]


class _Look(Struct, frozen=True):
    """A sample with the name of its holder."""

    sample: Sample
    holder: str


class History:
    """The history of a job; a look costs O(1), and a view O(samples)."""

    def __init__(self) -> None:
        self._fine: deque[_Look] = deque(maxlen=FINE_KEPT)
        self._coarse: deque[_Look] = deque(maxlen=COARSE_KEPT)
        self._marks: deque[tuple[int, Mark]] = deque(maxlen=MARKS_KEPT)
        """Each with the time of the look that found it: its own is of another clock."""
        self._step: list[_Look] = []
        """The looks of the coarse step that is under way."""
        self._event: Mapping[str, Any] | None = None
        """The newest event that was processed."""
        self._job, self._incarnation, self._seen_ms = "", 0, 0

    def look(self, view: JobView) -> None:
        """Take a view of the job; of several within a step the last one stays, and none that is older than it."""
        self._job, self._incarnation = view.job, view.incarnation
        at_ms = view.seen_ms
        older = at_ms is None or at_ms < self._seen_ms
        self._seen_ms = max(self._seen_ms, at_ms or 0)
        self._mark(view.events)
        if at_ms is None or older:
            return
        look = _look(view, at_ms)
        if self._fine and _same_step(self._fine[-1], look, FINE_STEP_MS):
            self._fine[-1] = look
        else:
            self._fine.append(look)
        if self._step and not _same_step(self._step[-1], look, COARSE_STEP_MS):
            self._coarse.append(_summed(self._step))
            self._step = []
        if self._step and _same_step(self._step[-1], look, FINE_STEP_MS):
            self._step[-1] = look
        else:
            self._step.append(look)

    def view(self, since_ms: int = 0) -> HistoryView | None:
        """Return what is later than a moment; None before the first look."""
        if not self._seen_ms:
            return None
        fine = [look for look in self._fine if look.sample.at_ms > since_ms]
        coarse = [look for look in self._coarse if look.sample.at_ms > since_ms]
        names = {look.holder: 0 for look in (*coarse, *fine) if look.holder}
        numbers = {name: number for number, name in enumerate(names)}
        return HistoryView(
            job=self._job,
            incarnation=self._incarnation,
            seen_ms=self._seen_ms,
            holders=list(numbers),
            fine=_samples(fine, numbers),
            coarse=_samples(coarse, numbers),
            marks=[mark for found_ms, mark in self._marks if found_ms > since_ms],
        )

    def _mark(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Take the events that are newer than the last processed one."""
        new = list(events)
        if self._event in new:
            new = new[len(new) - new[::-1].index(self._event) :]
        if new:
            self._event = new[-1]
        self._marks.extend((self._seen_ms, _marked(event)) for event in new if event["event"] in MARKED)


def _look(view: JobView, at_ms: int) -> _Look:
    delivered_ms = view.delivered_time_ms
    sample = Sample(
        at_ms=at_ms,
        lag_ms=view.lag_ms,
        delivered_lag_ms=None if delivered_ms is None else max(0, at_ms - delivered_ms),
        records_in=_rounded(view.rates.records_in, 1),
        delivered=_rounded(view.rates.delivered, 1),
        p50_ms=_rounded(view.latency_ms.p50, 2),
        p99_ms=_rounded(view.latency_ms.p99, 2),
        held_s=_rounded(view.held_s, 1),
        holder=None,
    )
    return _Look(sample, view.holder.partition(AT)[0][:MAX_TEXT_CHARS])


def _summed(looks: Sequence[_Look]) -> _Look:
    """One sample for a coarse step: the worst of what should be small, the mean of the others."""
    samples = [look.sample for look in looks]
    worst = max(looks, key=lambda look: -1 if look.sample.lag_ms is None else look.sample.lag_ms)
    summed = Sample(
        at_ms=samples[-1].at_ms,
        lag_ms=max(_known(sample.lag_ms for sample in samples), default=None),
        delivered_lag_ms=max(_known(sample.delivered_lag_ms for sample in samples), default=None),
        records_in=_mean(sample.records_in for sample in samples),
        delivered=_mean(sample.delivered for sample in samples),
        p50_ms=_mean(sample.p50_ms for sample in samples),
        p99_ms=max(_known(sample.p99_ms for sample in samples), default=None),
        held_s=max(_known(sample.held_s for sample in samples), default=None),
        holder=None,
    )
    return _Look(summed, worst.holder)


def _same_step(one: _Look, other: _Look, step_ms: int) -> bool:
    return one.sample.at_ms // step_ms == other.sample.at_ms // step_ms


def _samples(looks: Iterable[_Look], numbers: Mapping[str, int]) -> list[Sample]:
    return [replace(look.sample, holder=numbers.get(look.holder)) for look in looks]


def _marked(event: Mapping[str, Any]) -> Mark:
    why = event.get("why") or event.get("cause") or event.get("how") or event.get("holder") or ""
    took_s = event.get("took_s")
    return Mark(
        at_ms=round(datetime.fromisoformat(event["ts"]).timestamp() * 1000),
        event=event["event"],
        snapshot=str(event.get("snapshot", "")),
        called=event.get("called"),
        took_s=took_s if isinstance(took_s, (int, float)) else None,
        why=str(why)[:MAX_TEXT_CHARS],
    )


def _known(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return round(fmean(known), 2) if known else None


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
